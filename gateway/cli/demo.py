"""`lineside demo`: everything in one, with nothing installed."""

import asyncio
import os
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.simulate import Duration

if TYPE_CHECKING:
    from gateway.app.gateway import Gateway

_PROGRESS_S = 5.0


@click.command()
@click.option("--headless", is_flag=True, help="No dashboard: show progress, then print the summary.")
@click.option("--for", "length_s", type=Duration(), help="End by itself after this time, for instance 30s.")
@click.option("--port", default=5020, show_default=True, help="Port of the plant; a free one is chosen if it is in use.")
@click.option("--broker-port", default=1883, show_default=True, help="Port of the broker; a free one is chosen if it is in use.")
@click.option("--picture", type=click.Path(path_type=Path), help="Save a picture of the dashboard (SVG) before the end.")
def demo(length_s: float | None, port: int, broker_port: int, picture: Path | None, *, headless: bool) -> None:
    """Start a simulated plant, an MQTT broker, the gateway with a model, and the dashboard on it. Ctrl-C ends all of it.

    Example: lineside demo --headless --for 30s
    """
    import logging

    from gateway.cli.run import run_loop
    from gateway.telemetry.logging import configure

    configure("warning" if headless else "error")
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    if not headless and not (sys.stdin.isatty() and sys.stdout.isatty()):
        click.echo("no terminal here: running headless")
        headless = True
    with tempfile.TemporaryDirectory(prefix="lineside-demo-") as folder:
        run_loop(_Demo(Path(folder), port, broker_port, length_s, picture).run(headless=headless))


class _Demo:
    """One run of the demo.

    Args:
        folder: For configuration and state; goes away at the end.
        port: Wanted port of the plant.
        broker_port: Wanted port of the broker.
        length_s: Time after which it ends, None for Ctrl-C.
        picture: Where a picture of the dashboard goes.
    """

    def __init__(self, folder: Path, port: int, broker_port: int, length_s: float | None, picture: Path | None) -> None:
        self._file = folder / "demo.yaml"
        self._port = port
        self._broker_port = broker_port
        self._length_s = length_s
        self._picture = picture

    async def run(self, *, headless: bool) -> None:
        """All of it, from the plant up; the end comes in the other order."""
        from connectors.mqtt.embedded import EmbeddedBroker
        from connectors.simulator.pumps import PumpPlant
        from gateway.cli.run import serve, stop_on_signals
        from gateway.config.load import load
        from gateway.core.clock import SystemClock
        from gateway.core.errors import ConfigError

        stop = stop_on_signals()
        ready = asyncio.Event()
        running: list[Gateway] = []

        def up(gateway: "Gateway") -> None:
            running.append(gateway)
            ready.set()

        async with AsyncExitStack() as stack:
            try:
                broker = await stack.enter_async_context(EmbeddedBroker(self._broker_port))
            except ModuleNotFoundError as error:
                raise ConfigError(f"the demo needs {error.name}", remedy="pip install 'lineside[demo]'") from error
            plant = await stack.enter_async_context(PumpPlant(SystemClock(), port=self._port))
            self._say(f"plant on port {plant.port}", plant.port, self._port)
            self._say(f"broker on port {broker.port}", broker.port, self._broker_port)
            self._file.write_text(_configuration(plant.port, broker.port), encoding="utf-8")
            gateway_end = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(serve(load(self._file), gateway_end, up), name="gateway")
                await asyncio.wait((task, asyncio.create_task(ready.wait())), return_when=asyncio.FIRST_COMPLETED)
                if not running:
                    return
                try:
                    await (self._watch(running[0], stop) if headless else self._dashboard(stop))
                    if self._picture is not None:
                        await _save_picture(self._file, self._picture)
                    if headless:
                        _summarise(running[0])
                finally:
                    gateway_end.set()
        click.echo("demo ended; plant, broker and gateway are down")

    @staticmethod
    def _say(text: str, port: int, wanted: int) -> None:
        click.echo(text if port == wanted else f"{text} ({wanted} is in use)")

    async def _watch(self, gateway: "Gateway", stop: asyncio.Event) -> None:
        """Progress every few seconds until the time is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._length_s if self._length_s else float("inf")
        started = loop.time()
        while not stop.is_set() and (left := end - loop.time()) > 0:
            try:
                async with asyncio.timeout(min(_PROGRESS_S, left)):
                    await stop.wait()
            except TimeoutError:
                model = gateway.snapshot([]).models[0]
                inferred, warming = model.outcomes.get("inferred", 0), model.outcomes.get("warming up", 0)
                backend = model.backend if inferred else "filling the window"
                click.echo(f"{loop.time() - started:5.0f} s  {inferred} predictions, {warming} steps of warm-up, {backend}")

    async def _dashboard(self, stop: asyncio.Event) -> None:
        """The dashboard is a process of its own, here too: it may end without the gateway, and the gateway without it."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway.cli", "tui", str(self._file), "--operator", env=os.environ | {"LINESIDE_DEMO": "1"}
        )
        closed = asyncio.create_task(process.wait(), name="dashboard")
        stopped = asyncio.create_task(stop.wait(), name="stop")
        try:
            await asyncio.wait((closed, stopped), timeout=self._length_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if process.returncode is None:
                process.terminate()
                await process.wait()


def _configuration(plant_port: int, broker_port: int) -> str:
    """The sample configuration with the demo's ports, armed, without the metrics port."""
    from importlib.resources import files

    text = files("gateway.config").joinpath("sample.yaml").read_text(encoding="utf-8")
    for old, new in (
        ("port: 5020\n    unit", f"port: {plant_port}\n    unit"),
        ("port: 1883", f"port: {broker_port}"),
        ("name: EDGE-01", "name: DEMO"),
        ("arm_at_start: false", "arm_at_start: true"),
        ("metrics: {port: 9108}", "metrics: {port: 0}"),
    ):
        if old not in text:
            raise ValueError(f"the sample configuration has no '{old}'")
        text = text.replace(old, new)
    return text


async def _save_picture(file: Path, picture: Path) -> None:
    """By a dashboard in a process of its own, as an operator's is."""
    command = (sys.executable, "-m", "gateway.cli", "tui", str(file), "--picture", str(picture))
    process = await asyncio.create_subprocess_exec(*command)
    await process.wait()


def _summarise(gateway: "Gateway") -> None:
    from rich.console import Console

    from gateway.cli.summary import show

    show(gateway.snapshot([]), Console(width=None if sys.stdout.isatty() else 150))
