"""The asyncio shell around `preprocess.steps`: drains its intake, asks the model once for all that is due, answers every closed step."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import structlog

from gateway.core.batch import Batch, Watermark
from gateway.core.clock import NS_PER_MS, Clock
from gateway.core.condition import Condition, Priority
from gateway.core.errors import DataError, LinesideError
from gateway.core.prediction import Outcome, OutputSpec, Prediction, Trace
from gateway.core.protocols import Answer
from gateway.core.quality import Code, Ne107, combine, describe, level
from gateway.core.snapshot import AssetStatus, ModelStatus, OutputStatus, StageStatus
from gateway.core.window import Window
from gateway.pipeline.queue import FlowQueue
from gateway.pipeline.residual import Residuals
from preprocess.spec import ChainSpec
from preprocess.steps import AssetStep, Step, Steps

log = structlog.get_logger(__name__)

_TREND_POINTS = 30
_LATENCY_SAMPLES = 1024


class Model(Protocol):
    """A bundle in service."""

    @property
    def version(self) -> str:
        """Of the bundle."""
        ...

    @property
    def digest(self) -> str:
        """Of the bundle."""
        ...

    @property
    def chain(self) -> ChainSpec:
        """The declared signal path."""
        ...

    @property
    def outputs(self) -> Sequence[OutputSpec]:
        """What it predicts, in order."""
        ...

    @property
    def backend_name(self) -> str:
        """Rung that serves."""
        ...

    @property
    def reason(self) -> str:
        """Why that one serves."""
        ...

    async def infer(self, windows: Sequence[Window], deadline_mono_ns: int) -> Answer:
        """Answer all windows in one call.

        Raises:
            TransientError: No answer by the deadline.
            PermanentError: No back end is left.
        """
        ...


@dataclass(slots=True)
class _AssetState:
    """What was last said of one asset."""

    outputs: npt.NDArray[np.float64]
    sequence: int = 0
    last: Prediction | None = None
    coverage: float = 0.0
    trends: list[deque[float | None]] = field(default_factory=list)


class Predictor:
    """One model over all its assets: exactly one prediction per closed step and asset.

    Args:
        name: Of the model in the configuration.
        model: What answers.
        steps: The grid; fed by nobody else.
        domain: Time domain of its groups.
        clock: For deadlines and traces.
        emit: Takes each prediction; must not wait.
        on_condition: Told when the model stops answering and when it answers again.
        deadline_ms: Time a call may take; half the model's period if None.
        capacity: Values that may wait in the intake.
    """

    def __init__(
        self,
        *,
        name: str,
        model: Model,
        steps: Steps,
        domain: str,
        clock: Clock,
        emit: Callable[[Prediction], None],
        on_condition: Callable[[Condition], None],
        deadline_ms: float | None = None,
        capacity: int = 1_000_000,
    ) -> None:
        self.name = name
        self.stage_name = f"model {name}"
        self.model = model
        self.steps = steps
        self.queue = FlowQueue(capacity)
        self.residuals = Residuals(model.chain, model.outputs)
        self._domain = domain
        self._clock = clock
        self._emit = emit
        self._on_condition = on_condition
        self._deadline_ns = round((deadline_ms or model.chain.period_s * 500) * NS_PER_MS)
        self._assets: dict[str, _AssetState] = {}
        self._tapes: list[Callable[[Batch | Watermark], None]] = []
        self._window_taps: list[Callable[[Window], None]] = []
        self._outcomes: dict[str, int] = {}
        self._latency: dict[str, deque[float]] = {}
        self._fault = ""
        self._late_answers = 0

    @property
    def late_answers(self) -> int:
        """Answers that came after their deadline; they were used all the same."""
        return self._late_answers

    def refill(self, items: Iterable[Batch | Watermark]) -> None:
        """Bring the state up to date from history before the first live item; a tape gets these too, since the state rests on them."""
        for item in items:
            for tape in self._tapes:
                tape(item)
            self.steps.feed(item)

    def tape(self, hook: Callable[[Batch | Watermark], None]) -> Callable[[], None]:
        """Give every item to a hook in the order taken; the result ends that."""
        self._tapes.append(hook)
        return lambda: self._tapes.remove(hook)

    def tap_windows(self, hook: Callable[[Window], None]) -> None:
        """Give every window that is due to a hook, before inference."""
        self._window_taps.append(hook)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self.queue.wait()
            ended: BaseException | None = None
            with self.queue.take_all() as items:
                try:
                    await self.process([item for item in items if isinstance(item, Batch | Watermark)])
                except asyncio.CancelledError as error:
                    # Everything taken was fed and answered before this came up: it is consumed.
                    ended = error
            if ended is not None:
                raise ended

    async def process(self, items: Sequence[Batch | Watermark]) -> None:
        """Take items; of all the steps they close, only the newest is inferred.

        Whatever goes wrong, every item is fed (a watermark is never lost) and every closed step answered before an error leaves here.
        """
        closed: list[Step] = []
        fault: Exception | None = None

        def feed(item: Batch | Watermark) -> None:
            closed.extend(self.steps.feed(item))

        for item in items:
            for take in (*self._tapes, feed):
                try:
                    take(item)
                except Exception as error:  # noqa: BLE001 - raised below, after the others had their turn
                    fault = fault or error
        for step in closed[:-1]:
            for asset in step.assets:
                self._answer(step, replace(asset, outcome=Outcome.CAUGHT_UP, window=None, quality=Code.BAD_STALE))
        if closed:
            await self._due(closed[-1])
        if fault is not None:
            raise fault

    async def _due(self, step: Step) -> None:
        ready_ns = self._clock.mono_ns()
        windows = [asset.window for asset in step.assets if asset.window is not None]
        answer: Answer | None = None
        try:
            for window in windows:
                self.residuals.window(window)
                for tap in self._window_taps:
                    tap(window)
            if windows:
                answer = await self._ask(windows, ready_ns)
        finally:
            # Also when cancelled: a closed step is never left without its prediction.
            self._answer_step(step, answer, ready_ns)

    def _answer_step(self, step: Step, answer: Answer | None, ready_ns: int) -> None:
        row = 0
        for asset in step.assets:
            if asset.window is None:
                self._answer(step, asset)
                continue
            self._answer_window(step, asset, asset.window, answer, row, ready_ns)
            row += 1

    async def _ask(self, windows: Sequence[Window], ready_ns: int) -> Answer | None:
        """One call for all windows. Exactly one result, whatever happens below."""
        deadline_ns = ready_ns + self._deadline_ns
        try:
            answer = _checked(await self.model.infer(windows, deadline_ns), len(windows), len(self.model.outputs))
        except LinesideError as error:
            self._say_fault(error.text, error.remedy)
            return None
        except Exception as error:  # a fault of a back end must not leave a step unanswered
            if not self._fault:
                log.exception("model.fault", model=self.name)
            self._say_fault(f"internal error ({type(error).__name__}: {error})", "see the log; report it if it stays")
            return None
        if answer.ended_mono_ns > deadline_ns:
            self._late_answers += 1
        if answer.row_errors:
            self._say_fault(next(iter(answer.row_errors.values())), "look at the inputs of that asset")
        else:
            self._say_well()
        return answer

    def _answer_window(self, step: Step, asset: AssetStep, window: Window, answer: Answer | None, row: int, ready_ns: int) -> None:
        trace = Trace(window.requested_mono_ns, window.received_mono_ns, ready_ns)
        if answer is None or row in answer.row_errors:
            quality = combine(window.quality, Code.BAD_NO_BACKEND)
            self._answer(step, replace(asset, outcome=Outcome.NO_BACKEND, quality=quality), trace=trace)
            return
        trace = replace(trace, inference_start_ns=answer.started_mono_ns, inference_end_ns=answer.ended_mono_ns)
        quality = combine(window.quality, answer.quality[row])
        self._answer(step, replace(asset, quality=quality), trace=trace, outputs=answer.outputs[row], backend=answer.backend)

    def _answer(
        self, step: Step, asset: AssetStep, *, trace: Trace | None = None, outputs: npt.NDArray[np.float64] | None = None, backend: str = ""
    ) -> None:
        """Emit the one prediction of a closed step; without outputs it is the last one, held."""
        state = self._assets.get(asset.asset)
        if state is None:
            count = len(self.model.outputs)
            trends = [deque[float | None](maxlen=_TREND_POINTS) for _ in range(count)]
            state = self._assets[asset.asset] = _AssetState(np.full(count, np.nan), trends=trends)
        if outputs is not None:
            state.outputs = outputs
        state.sequence += 1
        window = asset.window
        prediction = Prediction(
            self.name,
            asset.asset,
            state.sequence,
            step.end_ns,
            self._domain,
            state.outputs,
            asset.quality,
            asset.outcome,
            self.model.digest,
            backend,
            trace or Trace(),
            self._clock.wall_ns(),
            window.oldest_lag_ns if window else 0,
            window.oldest_received_mono_ns if window else 0,
        )
        state.last, state.coverage = prediction, asset.coverage
        self._outcomes[asset.outcome] = self._outcomes.get(asset.outcome, 0) + 1
        self.residuals.prediction(prediction)
        if asset.outcome is not Outcome.CAUGHT_UP:
            for i, trend in enumerate(state.trends):
                trend.append(float(state.outputs[i]) if asset.outcome is Outcome.INFERRED else None)
        self.note_latency(prediction.trace)
        self.queue.produce("predictions", 1)
        self._emit(prediction)

    def note_latency(self, trace: Trace) -> None:
        """Keep the parts of a trace for the percentiles; called again when the write and the read-back have closed it."""
        for part, value_ms in trace.steps_ms().items():
            if part in ("total", "write", "read back") and not trace.written_ns:
                continue
            if trace.written_ns and part not in ("total", "write", "read back"):
                continue
            self._latency.setdefault(part, deque(maxlen=_LATENCY_SAMPLES)).append(value_ms)

    def _say_fault(self, text: str, remedy: str) -> None:
        if text == self._fault:
            return
        self._fault = text
        log.warning("model.no_answer", model=self.name, text=text)
        condition = Condition(self.name, "no back end", True, Priority.MEDIUM, text, remedy, Ne107.FAILURE, self._clock.wall_ns())
        self._on_condition(condition)

    def _say_well(self) -> None:
        if self._fault:
            self._fault = ""
            log.info("model.answers", model=self.name)
            self._on_condition(Condition(self.name, "no back end", active=False, since_wall_ns=self._clock.wall_ns()))

    def status(self) -> ModelStatus:
        """Its state."""
        chain, counters = self.model.chain, self.steps.counters
        latency = {
            part: tuple(float(p) for p in np.percentile(np.fromiter(values, np.float64), (50, 95, 99)))
            for part, values in self._latency.items()
        }
        assets = tuple(self._asset_status(name, state) for name, state in sorted(self._assets.items()))
        worst = max((level(asset.quality) for asset in assets), default=0)
        return ModelStatus(
            self.name,
            self.model.version,
            self.model.digest,
            Ne107.FAILURE if self._fault else (Ne107.GOOD, Ne107.OUT_OF_SPECIFICATION, Ne107.OUT_OF_SPECIFICATION)[worst],
            "none, last value held" if self._fault else self.model.backend_name,
            self._fault or self.model.reason,
            chain.period_s,
            chain.window,
            len(chain.inputs),
            dict(self._outcomes),
            {part: (p[0], p[1], p[2]) for part, p in latency.items()},
            counters.late,
            counters.epochs,
            assets,
            self.residuals.status(),
        )

    def _asset_status(self, name: str, state: _AssetState) -> AssetStatus:
        last, now_ns = state.last, self._clock.mono_ns()
        outputs = tuple(
            OutputStatus(
                spec.name,
                spec.unit,
                spec.horizon_s,
                float(state.outputs[i]) if np.isfinite(state.outputs[i]) else None,
                *_scale(spec, state.trends[i]),
                tuple(state.trends[i]),
            )
            for i, spec in enumerate(self.model.outputs)
        )
        quality = last.quality if last else int(Code.BAD_WAITING)
        age_ms = last.oldest_age_ns(now_ns) / NS_PER_MS if last else -1.0
        outcome = last.outcome.value if last else Outcome.WARMING_UP.value
        return AssetStatus(name, quality, describe(quality), outcome, state.coverage, state.sequence, age_ms, outputs)

    def stage(self) -> StageStatus:
        """Its accounts."""
        return StageStatus(self.stage_name, Ne107.FAILURE if self._fault else Ne107.GOOD, self._fault, self.queue.ledgers())


def _checked(answer: Answer, windows: int, outputs: int) -> Answer:
    if answer.outputs.shape != (windows, outputs) or len(answer.quality) != windows:
        raise DataError(f"answer of shape {answer.outputs.shape} to {windows} windows of {outputs} outputs", remedy="check the bundle")
    return answer


def _scale(spec: OutputSpec, trend: Iterable[float | None]) -> tuple[float, float]:
    """Ends of the scale an output is drawn on: its limits or, where it has none, what was seen (JSON knows no infinity)."""
    seen = [value for value in trend if value is not None and np.isfinite(value)]
    low = spec.low if np.isfinite(spec.low) else min(seen, default=min(spec.high, 0.0))
    high = spec.high if np.isfinite(spec.high) else max(seen, default=max(low, 0.0))
    return low, high


async def drain(predictor: Predictor, items: Iterable[Batch | Watermark]) -> None:
    """Run a predictor over recorded items as fast as it can, every closed step on its own."""
    for item in items:
        if isinstance(item, Watermark) or len(item):
            await predictor.process([item])
        await asyncio.sleep(0)
