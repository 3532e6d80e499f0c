"""`lineside record`: a tape of a predictor's intake."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from gateway.cli.simulate import Duration

if TYPE_CHECKING:
    from aiohttp import StreamReader


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("tape", type=click.Path(path_type=Path))
@click.option("--model", required=True, help="Model whose intake is taped.")
@click.option("--for", "length_s", type=Duration(), help="End after this time; Ctrl-C ends it too.")
def record(file: Path, tape: Path, model: str, length_s: float | None) -> None:
    """Tape what a predictor of a running gateway takes: batches and watermarks, in the order taken.

    `lineside replay` gives the same windows again from it, bit by bit.

    Example: lineside record gateway.yaml night.tape --model bearing --for 10m
    """
    from aiohttp import ClientTimeout

    from gateway.cli.client import connect, socket_of
    from gateway.cli.run import stop_on_signals
    from gateway.core.errors import ConfigError

    async def main() -> None:
        stop = stop_on_signals()
        async with connect(socket_of(file)) as session:
            timeout = ClientTimeout(total=None)
            async with session.get("/v1/tape", params={"model": model}, timeout=timeout) as response:
                if response.status != 200:
                    answer = await response.json()
                    raise ConfigError(answer.get("error", "refused"), remedy=answer.get("remedy", ""))
                with tape.open("wb") as out:
                    reader = asyncio.create_task(_copy(response.content, out), name="tape")
                    stopped = asyncio.create_task(stop.wait(), name="stop")
                    await asyncio.wait((reader, stopped), timeout=length_s, return_when=asyncio.FIRST_COMPLETED)
                    for task in (reader, stopped):
                        task.cancel()
                    await asyncio.gather(reader, stopped, return_exceptions=True)

    asyncio.run(main())
    click.echo(f"{tape}: {tape.stat().st_size} bytes")


async def _copy(content: "StreamReader", out: BinaryIO) -> None:
    async for chunk in content.iter_any():
        out.write(chunk)
        out.flush()
