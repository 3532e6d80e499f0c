"""`lineside model`: train, inspect and verify bundles."""

import hashlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from inference.workshop.dataset import Feed
    from inference.workshop.plan import TrainingPlan
    from inference.workshop.train import Report

FILE = click.Path(path_type=Path)


@click.group()
def model() -> None:
    """Train, inspect and verify model bundles.

    Example: lineside model inspect bundles/pump
    """


@model.command()
@click.argument("specification", type=FILE)
@click.option(
    "--train", "training", type=FILE, multiple=True, required=True, help="Recording to train on (CSV); may be given several times."
)
@click.option("--validation", type=FILE, multiple=True, help="Recording for early stopping and choice only.")
@click.option("--test", "test", type=FILE, multiple=True, help="Recording read once, at the end.")
@click.option("--out", type=FILE, required=True, help="Folder of the bundle.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of everything random.")
def train(specification: Path, training: Sequence[Path], validation: Sequence[Path], test: Sequence[Path], out: Path, seed: int) -> None:
    """Train the reference LSTM on recordings and write a complete bundle.

    The recordings go through the signal path that will serve. Model, its linear path alone, ridge and persistence are printed side by side.

    Example: lineside model train training.yaml --train plant.csv --out bundles/pump --seed 0
    """
    from gateway.core.errors import ConfigError

    try:
        from inference.workshop.train import Split, build
    except ModuleNotFoundError as error:
        raise ConfigError(f"training needs {error.name}", remedy="pip install torch==2.13.0 'lineside[workshop]'") from error
    from rich.console import Console
    from rich.progress import Progress

    from inference.workshop.plan import load_plan

    if bool(validation) != bool(test):
        raise ConfigError("--validation and --test go together", remedy="name both, or neither: then shares of the training files are used")
    plan = load_plan(specification)
    split = Split(*([_feed(plan, path) for path in paths] for paths in (training, validation, test)))
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (*training, *validation, *test)}
    command = shlex.join(["lineside", "model", "train", *_portable(sys.argv[3:])])
    console = Console(stderr=True)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(f"training {plan.name}", total=plan.network.epochs)
        report = build(
            plan,
            split,
            out,
            seed=seed,
            command=command,
            digests=digests,
            progress=lambda epoch, error: progress.update(task, completed=epoch, description=f"epoch {epoch}, validation {error:.4f}"),
        )
    _print(report)


def _portable(arguments: Sequence[str]) -> list[str]:
    """The arguments without the folders of one machine."""
    return [Path(argument).name if "/" in argument else argument for argument in arguments]


def _feed(plan: "TrainingPlan", path: Path) -> "Feed":
    from connectors.replay.recording import feed, read_recording
    from gateway.core.errors import ConfigError
    from gateway.core.tags import DataType, Tag, TagTable
    from inference.workshop.dataset import Feed
    from preprocess.steps import AssetBinding

    recording = read_recording(path)
    chain = plan.chain()
    table = TagTable()
    group = table.add_group("recording", "recording", recording.period_s, domain="recording")
    units = {spec.name: spec.unit for spec in chain.inputs}
    tags: dict[str, str] = {}
    assets: list[AssetBinding] = []
    for asset in plan.assets or ("",):
        binding: dict[str, int] = {}
        for signal in chain.signals():
            column = plan.column_of(signal, asset)
            if column not in recording.names:
                raise ConfigError(f"{path}:1: no column '{column}'", remedy=f"the file has: {', '.join(recording.names)}")
            tags[column] = column
            binding[signal] = table.add(Tag(column, units.get(signal, "1"), DataType.FLOAT64, group.id))
        assets.append(AssetBinding(asset or "recording", binding))
    return Feed(str(path), table, assets, feed(recording, list(tags.items()), table))


def _print(report: "Report") -> None:
    from rich.console import Console
    from rich.table import Table

    from inference.workshop.score import by_target

    table = Table(title="RMSE on the test part", title_justify="left")
    for heading in ("output", "unit"):
        table.add_column(heading)
    columns = {
        "model": report.scores.model,
        "linear path alone": report.scores.linear,
        "ridge": report.scores.ridge,
        "persistence": report.scores.persistence,
    }
    for heading in (*columns, "model / ridge", "model MSE, standardised"):
        table.add_column(heading, justify="right")
    units = {spec.source_input: spec.unit for spec in report.outputs}
    pooled = {heading: by_target(report.outputs, values) for heading, values in columns.items()}
    spread = by_target(report.outputs, report.spread)
    for name, unit in units.items():
        values = [pooled[heading][name] for heading in columns]
        ratio, standardised = values[0] / values[2], (values[0] / spread[name]) ** 2
        table.add_row(name, unit, *(f"{value:.4g}" for value in values), f"{ratio:.3f}", f"{standardised:.3f}")
    console = Console(width=140 if not sys.stdout.isatty() else None)
    console.print(table)
    console.print(report.remark)
    size = sum(len(data) for name, data in report.bundle.files.items() if name != "golden.npz")
    console.print(f"bundle: {report.bundle.path} ({size / 1000:.0f} kB without golden.npz), digest {report.bundle.digest[:16]}")


@model.command()
@click.argument("bundle", type=FILE)
def inspect(bundle: Path) -> None:
    """Show what a bundle says of itself: inputs, outputs, signal path, training.

    Example: lineside model inspect bundles/pump
    """
    from rich.console import Console
    from rich.table import Table

    from inference.bundle import Bundle

    loaded = Bundle.load(bundle)
    manifest = loaded.manifest
    console = Console()
    console.print(f"[bold]{manifest.name}[/] version {manifest.version}, digest {loaded.digest[:16]}, {manifest.state_mode} mode")
    console.print(f"window: {manifest.chain.window} steps of {manifest.chain.period_s:g} s, enabled: {manifest.chain.enable or 'always'}")
    inputs = Table("input", "unit", "range", "align", "hold s", "filters", "scaling")
    for spec in manifest.chain.inputs:
        filters = ", ".join(f.kind for f in (*spec.source_filters, *spec.step_filters)) or "-"
        scaling = f"{spec.scaling.kind} / {spec.scaling.scale:.4g}"
        inputs.add_row(spec.name, spec.unit, f"{spec.low:g} .. {spec.high:g}", spec.align, f"{spec.hold_limit_s:g}", filters, scaling)
    console.print(inputs)
    scores = manifest.training.scores if manifest.training else {}
    outputs = Table("output", "unit", "horizon s", "limits", "RMSE", "ridge", "persistence")
    for out in manifest.outputs:
        score = scores.get(out.name)
        figures = [f"{score.model:.4g}", f"{score.ridge:.4g}", f"{score.persistence:.4g}"] if score else ["-"] * 3
        outputs.add_row(out.name, out.unit, f"{out.horizon_s:g}", f"{out.low:g} .. {out.high:g}", *figures)
    console.print(outputs)
    if manifest.training is not None:
        versions = ", ".join(f"{name} {version}" for name, version in manifest.training.versions.items())
        console.print(f"made by: {manifest.training.command}\nseed {manifest.training.seed}; {versions}")


@model.command()
@click.argument("bundle", type=FILE)
def verify(bundle: Path) -> None:
    """Check every digest of a bundle and run its golden windows.

    Example: lineside model verify bundles/pump
    """
    import asyncio

    from gateway.core.clock import SystemClock
    from inference.bundle import Bundle
    from inference.runtime import Runtime

    async def load() -> str:
        async with Runtime(Bundle.load(bundle), SystemClock()) as runtime:
            return f"{runtime.name} {runtime.version}: {runtime.backend_name}, {runtime.reason}"

    click.echo(asyncio.run(load()))
