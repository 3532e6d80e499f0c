"""The pipeline over a file: the same steps, model and account as live, no sockets, as fast as it can."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from connectors.replay.recording import feed, read_recording
from connectors.replay.tape import TapeReader
from gateway.core.batch import Batch, Watermark
from gateway.core.clock import NS_PER_S, SystemClock
from gateway.core.condition import Condition
from gateway.core.errors import ConfigError
from gateway.core.prediction import Prediction
from gateway.core.snapshot import GatewaySnapshot, ModelStatus, StageStatus
from gateway.core.tags import DataType, Tag, TagTable
from gateway.core.window import Window
from gateway.pipeline.predictor import Predictor
from inference.bundle import Bundle, bundle_path
from inference.runtime import Runtime
from preprocess.spec import ChainSpec
from preprocess.steps import AssetBinding, Steps

_DEADLINE_MS = 10_000.0  # nobody waits for a back-test


class Backtest:
    """Runs one bundle over recordings, each on its own; scores and accounts are of the last one's predictor and of all predictions.

    Args:
        bundle: Name of the bundle.
        pattern: Of the columns or tags, with `{asset}` and `{input}`.
        assets: Assets to predict for.
        mapped: Columns of single inputs.
    """

    def __init__(self, bundle: str, pattern: str, assets: Sequence[str], mapped: Mapping[str, str]) -> None:
        self._path = bundle_path(bundle, Path())
        self._pattern = pattern
        self._assets = assets
        self._mapped = mapped
        self._clock = SystemClock()
        self._started_ns = self._clock.mono_ns()
        self.predictions: list[Prediction] = []
        self.windows: list[Window] = []
        self._status: list[ModelStatus] = []
        self._stages: list[StageStatus] = []
        self._outputs: list[str] = []

    async def run(self, recordings: Sequence[Path]) -> None:
        """Run them one after the other.

        Raises:
            ConfigError: A recording or the bundle is unusable.
        """
        bundle = await asyncio.to_thread(Bundle.load, self._path)
        async with Runtime(bundle, self._clock) as runtime:
            self._outputs = [spec.name for spec in runtime.outputs]
            for path in recordings:
                table, items = self._open(path, runtime.chain)
                steps = Steps(runtime.chain, self._bindings(path, runtime.chain, table), table)
                await self._one(path, runtime, steps, items)

    def _open(self, path: Path, chain: ChainSpec) -> tuple[TagTable, Iterable[Batch | Watermark]]:
        if path.suffix == ".tape":
            tape = TapeReader(path)
            return tape.table, tape
        recording = read_recording(path)
        table = TagTable()
        group = table.add_group("recording/rows", "recording", recording.period_s, domain="recording")
        names = [self._column(asset, signal) for asset in self._assets for signal in chain.signals()]
        columns = list(dict.fromkeys(names))
        units = {self._column(asset, spec.name): spec.unit for asset in self._assets for spec in chain.inputs}
        for column in columns:
            if column not in recording.names:
                raise ConfigError(
                    f"{path}:1: no column '{column}'", remedy=f"map it with --map; the file has: {', '.join(recording.names)}"
                )
            table.add(Tag(column, units.get(column, "1"), DataType.FLOAT64, group.id))
        return table, feed(recording, [(column, column) for column in columns], table)

    def _column(self, asset: str, signal: str) -> str:
        return self._mapped.get(signal) or self._pattern.format(asset=asset, input=signal)

    def _bindings(self, path: Path, chain: ChainSpec, table: TagTable) -> list[AssetBinding]:
        wanted = {asset: {signal: self._column(asset, signal) for signal in chain.signals()} for asset in self._assets}
        missing = [tag for tags in wanted.values() for tag in tags.values() if tag not in table]
        if missing:
            raise ConfigError(f"{path}: no tag '{missing[0]}' on the tape", remedy="name the assets with --asset, or map inputs with --map")
        return [AssetBinding(asset, {signal: table.number(tag) for signal, tag in tags.items()}) for asset, tags in wanted.items()]

    async def _one(self, path: Path, runtime: Runtime, steps: Steps, items: Iterable[Batch | Watermark]) -> None:
        def fail(condition: Condition) -> None:
            if condition.active:
                raise ConfigError(f"{path}: {condition.text}", remedy=condition.remedy)

        predictor = Predictor(
            name=path.stem,
            model=runtime,
            steps=steps,
            domain="recording",
            clock=self._clock,
            emit=self.predictions.append,
            on_condition=fail,
            deadline_ms=_DEADLINE_MS,
        )
        predictor.tap_windows(self.windows.append)
        for item in items:
            predictor.queue.put(item)
            if isinstance(item, Watermark):
                with predictor.queue.take_all() as taken:
                    await predictor.process([part for part in taken if isinstance(part, Batch | Watermark)])
        self._status.append(predictor.status())
        self._stages.append(predictor.stage())

    def rows(self) -> Iterator[Sequence[object]]:
        """Every prediction, with a header."""
        yield ["recording", "asset", "end_ns", "outcome", "quality", *self._outputs]
        for p in self.predictions:
            yield [p.model, p.asset, p.end_ns, p.outcome.value, p.quality, *p.outputs.tolist()]

    def snapshot(self, title: str) -> GatewaySnapshot:
        """The summary."""
        elapsed_s = (self._clock.mono_ns() - self._started_ns) / NS_PER_S
        return GatewaySnapshot(
            "back-test",
            version("lineside"),
            "finished",
            self._clock.wall_ns(),
            elapsed_s,
            0.0,
            0.0,
            title,
            stages=tuple(self._stages),
            models=tuple(self._status),
        )
