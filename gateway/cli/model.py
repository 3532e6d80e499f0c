"""`lineside model`: train, inspect and verify bundles."""

import hashlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from gateway.core.tags import TagTable
    from inference.workshop.dataset import Feed
    from inference.workshop.plan import TrainingPlan
    from preprocess.steps import AssetBinding

FILE = click.Path(path_type=Path)


@click.group()
def model() -> None:
    """Train, inspect and verify model bundles.

    Example: lineside model inspect bundles/pump
    """


@model.command()
@click.argument("specification", type=FILE)
@click.option(
    "--train",
    "training",
    type=FILE,
    multiple=True,
    required=True,
    help="Recording to train on (CSV, or a .tape of `lineside record`); may be given several times.",
)
@click.option("--validation", type=FILE, multiple=True, help="Recording for early stopping and choice only.")
@click.option("--test", "test", type=FILE, multiple=True, help="Recording read once, at the end.")
@click.option("--out", type=FILE, required=True, help="Folder of the bundle, or a zip file if the name ends so.")
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
    options = (("--train", training), ("--validation", validation), ("--test", test), ("--out", (out,)))
    files = [word for option, paths in options for path in paths for word in (option, path.name)]
    # Without the folders of one machine.
    command = shlex.join(["lineside", "model", "train", specification.name, *files, "--seed", str(seed)])
    with Progress(console=Console(stderr=True), transient=True) as progress:
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
    console = Console(width=140 if not sys.stdout.isatty() else None)
    console.print(report.table())
    console.print(report.remark)
    size = sum(len(data) for name, data in report.bundle.files.items() if name != "golden.npz")
    console.print(f"bundle: {report.bundle.path} ({size / 1000:.0f} kB without golden.npz), digest {report.bundle.digest[:16]}")


def _feed(plan: "TrainingPlan", path: Path) -> "Feed":
    from connectors.replay.recording import feed, read_recording
    from connectors.replay.tape import TapeReader
    from gateway.core.errors import ConfigError
    from gateway.core.tags import DataType, Tag, TagTable
    from inference.workshop.dataset import Feed

    if path.suffix == ".tape":
        tape = TapeReader(path)
        return Feed(str(path), tape.table, _bindings(plan, path, tape.table), tape)
    recording = read_recording(path)
    table = TagTable()
    group = table.add_group("recording", "recording", recording.period_s, domain="recording")
    units = {spec.name: spec.unit for spec in plan.chain().inputs}
    columns = {plan.column_of(signal, asset): units.get(signal, "1") for asset in plan.assets or ("",) for signal in plan.chain().signals()}
    for column, unit in columns.items():
        if column not in recording.names:
            raise ConfigError(f"{path}:1: no column '{column}'", remedy=f"the file has: {', '.join(recording.names)}")
        table.add(Tag(column, unit, DataType.FLOAT64, group.id))
    items = feed(recording, [(column, column) for column in columns], table)
    return Feed(str(path), table, _bindings(plan, path, table), items)


def _bindings(plan: "TrainingPlan", path: Path, table: "TagTable") -> "list[AssetBinding]":
    """The tags of each asset, converted to the specification's units."""
    from gateway.core.errors import ConfigError
    from gateway.core.units import conversion
    from preprocess.steps import AssetBinding

    chain = plan.chain()
    units = {spec.name: spec.unit for spec in chain.inputs}
    assets: list[AssetBinding] = []
    for asset in plan.assets or ("",):
        names = {signal: plan.column_of(signal, asset) for signal in chain.signals()}
        missing = [name for name in names.values() if name not in table]
        if missing:
            raise ConfigError(f"{path}: no tag '{missing[0]}'", remedy="name the tag as the input's column in the specification")
        tags = {signal: table.number(name) for signal, name in names.items()}
        factors = {signal: conversion(table[tag].unit, units[signal]) for signal, tag in tags.items() if signal in units}
        assets.append(AssetBinding(asset or "recording", tags, {k: f for k, f in factors.items() if f != (1.0, 0.0)}))
    return assets


@model.command()
@click.argument("bundle")
def inspect(bundle: str) -> None:
    """Show what a bundle says of itself: inputs, outputs, signal path, training.

    Example: lineside model inspect bundles/pump
    """
    from rich.console import Console
    from rich.table import Table

    from inference.bundle import Bundle, bundle_path

    loaded = Bundle.load(bundle_path(bundle, Path()))
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
        console.print(f"made by: {manifest.training.command}\nseed {manifest.training.seed}; {versions}\n{manifest.training.remark}")


@model.command()
@click.argument("bundle")
def verify(bundle: str) -> None:
    """Check every digest of a bundle and run its golden windows.

    Example: lineside model verify bundles/pump
    """
    import asyncio

    from gateway.core.clock import SystemClock
    from inference.bundle import Bundle, bundle_path
    from inference.runtime import Runtime

    async def load() -> str:
        async with Runtime(Bundle.load(bundle_path(bundle, Path())), SystemClock()) as runtime:
            return f"{runtime.name} {runtime.version}: {runtime.backend_name}, {runtime.reason}"

    click.echo(asyncio.run(load()))
