"""Everything that a reload replaces: sources, predictors, publishers, and their wiring."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from connectors.modbus.connector import ModbusConnector
from connectors.mqtt.encoding import Encoder
from connectors.mqtt.sink import MqttSink
from connectors.replay.tape import header_frame, item_frame
from gateway.config.load import Loaded
from gateway.config.plan import bindings, derived_tags, rules, tag_table
from gateway.control.alarms import Alarms
from gateway.control.guard import Guard
from gateway.core.batch import Batch, Watermark
from gateway.core.clock import Clock
from gateway.core.errors import ConfigError, TransientError
from gateway.core.prediction import Prediction, Trace
from gateway.core.protocols import Flowing
from gateway.core.tags import TagTable
from gateway.pipeline.flow import Fanout, Stage
from gateway.pipeline.latest import LatestValues
from gateway.pipeline.predictor import Predictor
from gateway.pipeline.source_stage import SourceStage
from gateway.pipeline.supervisor import Supervisor
from gateway.store.database import Database
from gateway.store.history import History
from gateway.store.outbox import Outbox
from inference.bundle import Bundle, bundle_path
from inference.runtime import Runtime
from preprocess.steps import Steps

_TREND_PERIOD_S, _TREND_POINTS = 6.0, 10  # the last minute of a headline tag
_TAPE_LIMIT = 65_536  # items a slow reader of a tape may be behind before its tape is ended


@dataclass(frozen=True, slots=True)
class House:
    """What outlives a reload."""

    clock: Clock
    table: TagTable
    supervisor: Supervisor
    modbus: ModbusConnector
    database: Database
    history: History
    guard: Guard
    alarms: Alarms


class Generation:
    """One configuration at work.

    Args:
        loaded: The checked configuration.
        house: What it lives in.
    """

    def __init__(self, loaded: Loaded, house: House) -> None:
        self.loaded = loaded
        self._house = house
        self._stack = AsyncExitStack()
        self._values = Fanout()
        self._predictions = Fanout()
        self._parts: list[str] = []
        self.latest = LatestValues(house.table, house.clock, trend_period_s=_TREND_PERIOD_S, trend_points=_TREND_POINTS)
        self.stages: list[Stage] = []
        self.sources: list[SourceStage] = []
        self.predictors: dict[str, Predictor] = {}
        self.outboxes: list[Outbox] = []
        self._encoders: list[Encoder] = []

    async def __aenter__(self) -> Self:
        try:
            await self._build()
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._leave()

    async def _leave(self) -> None:
        """Sources first, so that what they have brought still goes its way."""
        await self._house.supervisor.stop(*self._parts)
        for outbox in self.outboxes:
            try:
                await outbox.spill()
            except TransientError:
                break
        await self._stack.aclose()

    def _start(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        self._house.supervisor.start(name, run)
        self._parts.append(name)

    async def _build(self) -> None:
        settings, house = self.loaded.settings, self._house
        tag_table(settings, house.table)
        self.latest.show(settings.gateway.headline)
        models = [await self._model(i) for i in range(len(settings.models))]
        exact = {tag for predictor, tags in models for tag in tags}
        house.history.keep_exact(exact)
        self._store()
        for sink in range(len(settings.publish)):
            await self._publisher(sink)
        self._targets()
        self._values.tap(self._update_latest)
        self._predictions.tap(self._offer)
        for predictor, _ in models:
            self._values.outlet(predictor.queue, predictor.steps.groups)
            self._start(predictor.stage_name, predictor.run)
        self._read()
        await house.modbus.keep({(source.host, source.port) for source in settings.sources})

    async def _model(self, index: int) -> tuple[Predictor, set[int]]:
        house, model = self._house, self.loaded.settings.models[index]
        path = bundle_path(model.bundle, self.loaded.folder)
        bundle = await asyncio.to_thread(Bundle.load, path)
        runtime = await self._stack.enter_async_context(Runtime(bundle, house.clock))
        wired = bindings(model, runtime.chain, house.table)
        steps = Steps(runtime.chain, wired, house.table)
        groups = [house.table.group(group) for group in sorted(steps.groups)]
        predictor = Predictor(
            name=model.name,
            model=runtime,
            steps=steps,
            domain=groups[0].domain,
            clock=house.clock,
            emit=self._predictions.put,
            on_condition=house.alarms.condition,
            deadline_ms=model.deadline_ms,
        )
        try:
            predictor.refill(await house.history.recent([group.name for group in groups], runtime.chain.warm_up_s))
        except TransientError as error:
            raise ConfigError(error.text, remedy=error.remedy) from error
        self.predictors[model.name] = predictor
        return predictor, {tag for binding in wired for tag in binding.tags.values()}

    def _store(self) -> None:
        stage = Stage("history", self._house.history.take, capacity=200_000)
        self._values.outlet(stage.queue)
        self._predictions.outlet(stage.queue)
        self.stages.append(stage)
        self._start(stage.name, stage.run)

    async def _publisher(self, index: int) -> None:
        settings, house = self.loaded.settings, self._house
        publish = settings.publish[index]
        sink = await self._stack.enter_async_context(MqttSink(publish, settings.gateway.name, house.clock))
        outbox = Outbox(house.database, sink, house.clock, publish.outbox_mb * 1e6)
        await outbox.load()
        outputs = {name: predictor.model.outputs for name, predictor in self.predictors.items()}
        encoder = Encoder(settings.gateway.name, publish.topics, house.table, outputs)

        async def publish_items(items: Sequence[Flowing]) -> None:
            messages = [
                encoder.batch(item) if isinstance(item, Batch) else encoder.prediction(item, house.clock.mono_ns())
                for item in items
                if not isinstance(item, Watermark)
            ]
            stage.queue.produce("messages", len(messages))
            outbox.put(messages)

        stage = Stage(f"publish {publish.name}", publish_items)
        if publish.values:
            self._values.outlet(stage.queue)
        self._predictions.outlet(stage.queue)
        self.stages.append(stage)
        self.outboxes.append(outbox)
        self._encoders.append(encoder)
        self._start(stage.name, stage.run)
        self._start(f"outbox {publish.name}", outbox.run)

    def _targets(self) -> None:
        settings, house = self.loaded.settings, self._house
        sources = {source.name: source for source in settings.sources}
        wanted = {target.name for target in settings.control.targets}
        for name in house.guard.names:
            if name not in wanted:
                house.guard.remove(name)
        for target in settings.control.targets:
            outputs = self.predictors[target.model].model.outputs
            place = house.modbus.target(target.name, target, sources[target.source], outputs)
            source = sources[target.source]
            where = (source.host, source.port, source.unit, target.address, target.order)
            house.guard.add(place, model=target.model, asset=target.asset, outputs=outputs, rules=rules(target), place=where)
            name = target.name
            self._start(f"target {name}", lambda name=name: house.guard.run_target(name))  # type: ignore[misc]  # binds the name

    def _read(self) -> None:
        settings, house = self.loaded.settings, self._house
        derived = derived_tags(settings, house.table)
        for source in settings.sources:
            stage = SourceStage(
                house.modbus.source(source, house.table),
                house.table,
                house.clock,
                self._values,
                derived=derived,
                on_condition=house.alarms.condition,
            )
            self.sources.append(stage)
            self._start(f"source {source.name}", stage.run)

    def _update_latest(self, item: Flowing) -> None:
        if not isinstance(item, Prediction):
            self.latest.update(item)

    def _offer(self, item: Flowing) -> None:
        if isinstance(item, Prediction):
            self._house.guard.offer(item)

    def closed(self, prediction: Prediction, trace: Trace) -> None:
        """Take the closed trace of a written prediction: to the percentiles, and out with the next message."""
        predictor = self.predictors.get(prediction.model)
        if predictor is not None:
            predictor.note_latency(trace)
        for encoder in self._encoders:
            encoder.closed(prediction, trace)

    async def tape(self, model: str) -> AsyncIterator[bytes]:
        """Frames of a model's intake from now on.

        Raises:
            ConfigError: There is no such model.
        """
        predictor = self.predictors.get(model)
        if predictor is None:
            raise ConfigError(f"no model '{model}'", remedy=f"known: {', '.join(self.predictors)}")
        frames: asyncio.Queue[bytes | None] = asyncio.Queue(_TAPE_LIMIT)

        def take(item: Batch | Watermark) -> None:
            # A tape with a hole would lie: a reader that cannot follow gets an end instead.
            if frames.full():
                end()
                frames.get_nowait()
                frames.put_nowait(None)
            else:
                frames.put_nowait(item_frame(item))

        end = predictor.tape(take)
        try:
            yield header_frame(self._house.table, model)
            while (frame := await frames.get()) is not None:
                yield frame
        finally:
            end()
