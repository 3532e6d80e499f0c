"""`lineside simulate`: plants to connect to."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from connectors.simulator.plant import Injection

_FAULTS = ("bearing-wear", "cavitation", "blocked-outlet", "stuck-sensor", "noisy-sensor", "communication-loss")


@click.group()
def simulate() -> None:
    """Serve a simulated plant or a recording over Modbus TCP.

    Example: lineside simulate plant --port 5020
    """


def duration_s(text: str) -> float:
    """Seconds of `30s`, `5m`, `2h` or a plain number."""
    factor = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:].lower())
    try:
        value = float(text[:-1]) * factor if factor else float(text)
    except ValueError:
        raise click.BadParameter(f"'{text}' is no duration: write 30s, 5m or 2h") from None
    if not value > 0:
        raise click.BadParameter("a duration is longer than nothing")
    return value


class Duration(click.ParamType[float]):
    """A duration such as `30s`."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ARG002 - click's
        """See `duration_s`."""
        return value if isinstance(value, float) else duration_s(str(value))


async def _until(stop: asyncio.Event, length_s: float | None) -> None:
    try:
        async with asyncio.timeout(length_s):
            await stop.wait()
    except TimeoutError:
        return


@simulate.command()
@click.option("--port", default=5020, show_default=True, help="TCP port; a free one is chosen if it is in use.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--seed", default=7, show_default=True, help="Of demand and noise.")
@click.option("--speed", default=1.0, show_default=True, help="Plant seconds per second.")
@click.option("--fault", "faults", multiple=True, help="FAULT@SECONDS:PUMP, for instance bearing-wear@60:1; may be repeated.")
@click.option("--for", "length_s", type=Duration(), help="End after this time.")
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), help="Write the signals to a file instead, without sockets.")
@click.option("--period", "period_s", default=0.25, show_default=True, help="Seconds between the rows of --csv.")
def plant(
    port: int, host: str, seed: int, speed: float, faults: Sequence[str], length_s: float | None, csv_file: Path | None, period_s: float
) -> None:
    """Two pumps with physics: flow, pressure, current, bearing temperature, vibration.

    Faults: bearing-wear, cavitation, blocked-outlet, stuck-sensor, noisy-sensor, communication-loss.

    Example: lineside simulate plant --port 5020 --fault bearing-wear@60:1
    """
    from connectors.simulator.plant import columns, rows
    from connectors.simulator.pumps import PumpPlant
    from gateway.cli.run import run_loop, stop_on_signals
    from gateway.core.clock import SystemClock

    injections = tuple(_injection(text) for text in faults)
    if csv_file is not None:
        with csv_file.open("w", encoding="ascii") as out:
            out.write(",".join(["time", *columns()]) + "\n")
            for time_s, values in rows(seed, period_s, round((length_s or 3600.0) / period_s), injections):
                out.write(f"{1_700_000_000 + time_s:.3f}," + ",".join(f"{value:.4f}" for value in values.ravel()) + "\n")
        click.echo(f"{csv_file} written")
        return

    async def main() -> None:
        stop = stop_on_signals()
        async with PumpPlant(SystemClock(), port=port, host=host, seed=seed, speed=speed, injections=injections) as pumps:
            chosen = "" if pumps.port == port else f" ({port} is in use)"
            click.echo(f"pump plant on {host}:{pumps.port}{chosen}; map in connectors/simulator/README.md; Ctrl-C ends it")
            await _until(stop, length_s)

    run_loop(main())


def _injection(text: str) -> "Injection":
    from connectors.simulator.plant import Fault, Injection

    name, _, rest = text.partition("@")
    seconds, _, pump = rest.partition(":")
    try:
        return Injection({"": 0, "1": 0, "2": 1}[pump], Fault(name), float(seconds or 0))
    except (KeyError, ValueError):
        raise click.BadParameter(f"'{text}' is no fault: write FAULT@SECONDS:PUMP, FAULT one of {', '.join(_FAULTS)}") from None


@simulate.command()
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--port", default=5020, show_default=True, help="TCP port; a free one is chosen if it is in use.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--speed", default=1.0, show_default=True, help="Recorded seconds per second.")
@click.option("--on-hole", type=click.Choice(["freeze", "exception"]), default="freeze", show_default=True, help="What a hole looks like.")
@click.option("--wait", is_flag=True, help="Start with the first request.")
@click.option("--columns", default="", help="Columns to serve, separated by commas; all of them if left out.")
def replay(files: Sequence[Path], port: int, host: str, speed: float, on_hole: str, columns: str, *, wait: bool) -> None:
    """Serve the rows of CSV files as input registers at their recorded times; ends after the last row.

    Registers: 0-1 unix seconds of the row, 2-3 row number, then each column as float32.

    Example: lineside simulate replay pump.csv --speed 10
    """
    from connectors.replay.recording import read_recording
    from connectors.simulator.playback import OnHole, RecordingPlant
    from gateway.cli.run import run_loop, stop_on_signals
    from gateway.core.clock import SystemClock, sleep_s

    recordings = [read_recording(path) for path in files]
    wanted = [name.strip() for name in columns.split(",") if name.strip()]
    if wanted:
        recordings = [recording.only(wanted) for recording in recordings]

    async def main() -> None:
        stop = stop_on_signals()
        clock = SystemClock()
        async with RecordingPlant(recordings, clock, speed=speed, on_hole=OnHole(on_hole), port=port, host=host, wait=wait) as playback:
            click.echo(f"{playback.rows} rows on {host}:{playback.port}")
            for i, name in enumerate(recordings[0].names):
                click.echo(f"  input {4 + 2 * i}: {name} (float32)")
            ended = asyncio.create_task(playback.finished.wait(), name="end of the recording")
            stopped = asyncio.create_task(stop.wait(), name="stop")
            await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                # The last row must be there long enough to be read.
                await sleep_s(clock, max(2.0, 2 * recordings[-1].period_s / speed))
            for task in (ended, stopped):
                task.cancel()
            click.echo(f"{playback.row} rows served")

    run_loop(main())
