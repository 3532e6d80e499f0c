"""`lineside replay`: back-testing without sockets."""

import asyncio
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click


@click.command()
@click.argument("recordings", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--bundle", required=True, help="Bundle to run; `demo` is the one that comes with Lineside.")
@click.option("--inputs", default="{asset}.{input}", show_default=True, help="Pattern of the columns or tags.")
@click.option("--asset", "assets", multiple=True, help="Asset to predict for; may be repeated. Not needed if the pattern does not name it.")
@click.option("--map", "mappings", multiple=True, help="INPUT=COLUMN where the pattern does not hold; may be repeated.")
@click.option("--out", type=click.Path(path_type=Path), help="Write every prediction to a CSV file.")
def replay(recordings: Sequence[Path], bundle: str, inputs: str, assets: Sequence[str], mappings: Sequence[str], out: Path | None) -> None:
    """Run a model over recordings (CSV, or tapes of `lineside record`) as fast as it can, and print the summary of a run.

    Example: lineside replay plant.csv --bundle demo --asset pump1 --asset pump2
    """
    from rich.console import Console

    from gateway.app.backtest import Backtest
    from gateway.cli.summary import show
    from gateway.core.errors import ConfigError

    mapped = dict(mapping.partition("=")[::2] for mapping in mappings)
    if any(not column for column in mapped.values()):
        raise ConfigError("--map needs INPUT=COLUMN", remedy="for instance --map 'flow=Volume Flow RateRMS'")
    backtest = Backtest(bundle, inputs, tuple(assets) or ("recording",), mapped)
    asyncio.run(backtest.run(recordings))
    if out is not None:
        _write(out, backtest.rows())
    show(backtest.snapshot(", ".join(map(str, recordings))), Console(width=None if sys.stdout.isatty() else 150))


def _write(out: Path, rows: Iterable[Sequence[object]]) -> None:
    import csv

    with out.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
