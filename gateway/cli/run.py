"""`lineside run`, and what the demo shares with it."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gateway.app.gateway import Gateway
    from gateway.config.load import Loaded


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where it is installed, else on asyncio's own loop."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ModuleNotFoundError):
        from uvloop import new_event_loop as factory
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main)
    except BaseExceptionGroup as group:
        raise first_fault(group) from group


def first_fault(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error that matters of a group: ours before others."""
    from gateway.core.errors import LinesideError

    ours, _ = group.split(LinesideError)
    chosen: BaseException = ours or group
    while isinstance(chosen, BaseExceptionGroup):
        chosen = chosen.exceptions[0]
    return chosen


def stop_on_signals() -> asyncio.Event:
    """An event that SIGINT, SIGTERM and SIGHUP set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(name, stop.set)
    return stop


async def serve(loaded: "Loaded", stop: asyncio.Event, ready: Callable[["Gateway"], None]) -> None:
    """Run a gateway until stopped."""
    from gateway.app.gateway import Gateway
    from gateway.core.clock import SystemClock

    await Gateway(loaded, SystemClock()).run(stop, ready)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def run(file: Path) -> None:
    """Run the gateway until SIGTERM or Ctrl-C.

    Example: lineside run gateway.yaml
    """
    from gateway.config.load import load
    from gateway.telemetry.logging import configure

    loaded = load(file)
    configure(loaded.settings.gateway.log.level, loaded.settings.gateway.log.format)

    async def main() -> None:
        stop = stop_on_signals()
        await serve(loaded, stop, lambda _gateway: click.echo(f"running; dashboard: lineside tui {file}", err=True))

    run_loop(main())
