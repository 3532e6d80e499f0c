"""Exactly one prediction per closed step and asset, whatever the model and the source do."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.batch import Batch, Watermark
from gateway.core.condition import Condition
from gateway.core.errors import DataError, PermanentError, TransientError
from gateway.core.prediction import Outcome, OutputSpec, Prediction
from gateway.core.protocols import Answer
from gateway.core.quality import Code, Level, code, level
from gateway.core.tags import TagTable
from gateway.core.window import Window
from gateway.pipeline.predictor import Predictor, drain
from preprocess.spec import ChainSpec, InputSpec
from preprocess.steps import AssetBinding, Step, Steps
from tests.unit.pipeline.flowing import at_ns, batch, mark, table
from tests.virtual_clock import VirtualClock, settle

ASSETS = ("pump1", "pump2")
CHAIN = ChainSpec(
    period_s=1.0,
    window=3,
    inputs=(InputSpec(name="p", unit="bar", hold_limit_s=2.0),),
    max_lateness_s=2.0,
    gap_reset_s=20.0,
)
OUTPUTS = (OutputSpec("next", "bar", horizon_s=1.0, source_input="p"),)


@dataclass(frozen=True)
class Rows:
    """Rows that fail, of an otherwise good answer."""

    errors: Mapping[int, str]


Fate = Exception | Rows | str


class ScriptedModel:
    """Says the newest value of each window plus one, or what its script says: an error, failed rows, "slow", "hang" or "misshapen"."""

    version = "1"
    digest = "abc"
    chain = CHAIN
    outputs = OUTPUTS
    backend_name = "cpu-float"
    reason = "the only one"

    def __init__(self, clock: VirtualClock, script: Sequence[Fate] = ()) -> None:
        self._clock = clock
        self._script = list(script)
        self.calls: list[list[Window]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def infer(self, windows: Sequence[Window], deadline_mono_ns: int) -> Answer:
        self.calls.append(list(windows))
        fate = self._script.pop(0) if self._script else "well"
        started_ns = self._clock.mono_ns()
        await self.go_on.wait()
        if isinstance(fate, Exception):
            raise fate
        if fate == "hang":
            await asyncio.Event().wait()
        outputs = np.array([[window.aligned[-1, 0] + 1.0] for window in windows])
        ended_ns = deadline_mono_ns + 1 if fate == "slow" else self._clock.mono_ns()
        errors = fate.errors if isinstance(fate, Rows) else {}
        if fate == "misshapen":
            outputs = outputs[:0]
        return Answer(outputs, [Code.GOOD] * len(windows), errors, "cpu-float", started_ns, ended_ns)


class CountedSteps(Steps):
    """The real steps, with a list of all that they closed, and a fault on demand."""

    def __init__(self, tags: TagTable) -> None:
        super().__init__(CHAIN, [AssetBinding(asset, {"p": i}) for i, asset in enumerate(ASSETS)], tags)
        self.closed: list[Step] = []
        self.fails_at: set[int] = set()
        self.fed = 0

    def feed(self, item: Batch | Watermark) -> list[Step]:
        self.fed += 1
        if self.fed in self.fails_at:
            raise ZeroDivisionError("a fault of ours")
        steps = super().feed(item)
        self.closed.extend(steps)
        return steps


class Bench:
    """A predictor of two pumps of one group with all that it said."""

    def __init__(self, *script: Fate) -> None:
        self.clock = VirtualClock(wall_ns=at_ns(0))
        self.model = ScriptedModel(self.clock, script)
        self.steps = CountedSteps(table(("fast", 2)))
        self.said: list[Prediction] = []
        self.conditions: list[Condition] = []
        self.taped: list[Batch | Watermark] = []
        self.windows: list[Window] = []
        self.predictor = Predictor(
            name="bearing",
            model=self.model,
            steps=self.steps,
            domain="gateway",
            clock=self.clock,
            emit=self.said.append,
            on_condition=self.conditions.append,
        )
        self.predictor.tape(self.taped.append)
        self.predictor.tap_windows(self.windows.append)

    async def second(self, second: int, value: float | None = None) -> None:
        await self.predictor.process(seconds_of(second, value))

    def newest(self) -> list[Prediction]:
        return self.said[-len(ASSETS) :]

    def check(self) -> None:
        """One prediction for each closed step and asset, in order, counted and with a bad quality where it was not inferred."""
        expected = [(step.end_ns, asset) for step in self.steps.closed for asset in ASSETS]
        assert [(p.end_ns, p.asset) for p in self.said] == expected
        for asset in ASSETS:
            own = [p for p in self.said if p.asset == asset]
            assert [p.sequence for p in own] == list(range(1, len(own) + 1))
            last = np.full(1, np.nan)
            for p in own:
                if p.outcome is Outcome.INFERRED:
                    last = p.outputs
                else:
                    assert level(p.quality) is Level.BAD
                assert np.array_equal(p.outputs, last, equal_nan=True)
        ledgers = self.predictor.queue.ledgers()
        assert all(ledger.balanced for ledger in ledgers.values())
        status = self.predictor.status()
        assert sum(status.outcomes.values()) == len(self.said)
        if self.said:
            assert ledgers["predictions"].produced == len(self.said)


def seconds_of(second: int, value: float | None = None) -> list[Batch | Watermark]:
    worth = float(second) if value is None else value
    return [batch(0, [0, 1], [worth, worth + 100], second + 0.5, cycle=second), mark(0, second + 1)]


async def warm(bench: Bench, seconds: int = 3) -> None:
    for second in range(seconds):
        await bench.second(second)


async def test_due_assets_are_asked_for_in_one_call_and_answered_in_order() -> None:
    bench = Bench()
    await warm(bench, 4)

    assert [len(call) for call in bench.model.calls] == [2, 2]
    assert [(p.asset, p.outputs[0], p.outcome, p.quality) for p in bench.newest()] == [
        ("pump1", 4.0, Outcome.INFERRED, Code.GOOD),
        ("pump2", 104.0, Outcome.INFERRED, Code.GOOD),
    ]
    assert [p.outcome for p in bench.said[:4]] == [Outcome.WARMING_UP] * 4
    assert np.isnan(bench.said[0].outputs[0])
    bench.check()


async def test_of_all_that_waits_only_the_newest_step_is_inferred() -> None:
    bench = Bench()
    await warm(bench)
    for second in range(3, 9):
        for item in seconds_of(second):
            bench.predictor.queue.put(item)
    task = asyncio.create_task(bench.predictor.run(), name="bearing")
    await settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    caught_up = [p for p in bench.said if p.outcome is Outcome.CAUGHT_UP]
    assert len(caught_up) == 5 * len(ASSETS)
    assert {p.outputs[0] for p in caught_up} == {3.0, 103.0}
    assert [p.outputs[0] for p in bench.newest()] == [9.0, 109.0]
    assert len(bench.model.calls) == 2
    bench.check()


async def test_offline_every_step_is_inferred() -> None:
    bench = Bench()
    await drain(bench.predictor, [item for second in range(9) for item in seconds_of(second)])

    assert len(bench.model.calls) == 7
    assert Outcome.CAUGHT_UP not in {p.outcome for p in bench.said}
    bench.check()


@pytest.mark.parametrize("fate", [TransientError("late"), PermanentError("lost"), KeyError("bug"), "misshapen"])
async def test_a_model_that_does_not_answer_leaves_the_last_value_and_a_condition_until_it_answers(fate: Fate) -> None:
    bench = Bench("well", fate, fate, "well")
    await warm(bench, 4)
    held = bench.newest()
    await bench.second(4)
    assert [condition.active for condition in bench.conditions] == [True]
    assert bench.predictor.status().backend == "none, last value held"
    await bench.second(5)

    assert [p.outputs[0] for p in held] == [3.0, 103.0]
    assert {p.outcome for p in held} == {Outcome.NO_BACKEND}
    assert {code(p.quality) for p in held} == {Code.BAD_NO_BACKEND}
    assert {p.backend for p in held} == {""}
    assert [condition.active for condition in bench.conditions] == [True, False]
    assert bench.newest()[0].outputs[0] == 6.0
    bench.check()


async def test_a_row_that_fails_is_that_assets_own_trouble() -> None:
    bench = Bench("well", Rows({1: "not a number"}))
    await warm(bench, 4)
    first, second = bench.newest()

    assert (first.outcome, first.outputs[0]) == (Outcome.INFERRED, 4.0)
    assert (second.outcome, second.outputs[0]) == (Outcome.NO_BACKEND, 103.0)
    assert bench.conditions[0].text == "not a number"
    bench.check()


async def test_an_answer_after_its_deadline_is_used_and_counted() -> None:
    bench = Bench("slow", "well")
    await warm(bench, 4)

    assert bench.predictor.late_answers == 1
    bench.check()


async def test_a_cancelled_call_leaves_no_step_unanswered_and_everything_taken_is_consumed() -> None:
    bench = Bench("hang")
    await warm(bench, 2)
    for item in seconds_of(2):
        bench.predictor.queue.put(item)
    task = asyncio.create_task(bench.predictor.run(), name="bearing")
    await settle()
    assert bench.predictor.queue.ledgers()["values"].in_flight == 2
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert task.cancelled()
    assert {p.outcome for p in bench.newest()} == {Outcome.NO_BACKEND}
    ledger = bench.predictor.queue.ledgers()["values"]
    assert (ledger.consumed, ledger.in_flight) == (2, 0)
    bench.check()


async def test_a_poll_is_never_held_up_by_a_model_that_hangs() -> None:
    bench = Bench("hang")
    task = asyncio.create_task(bench.predictor.run(), name="bearing")
    for second in range(50):
        for item in seconds_of(second):
            bench.predictor.queue.put(item)
        await settle(3)
    assert len(bench.predictor.queue) > 80
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    bench.check()


async def test_a_fault_at_one_item_costs_neither_the_others_nor_a_prediction() -> None:
    bench = Bench()
    await warm(bench)
    bench.steps.fails_at = {bench.steps.fed + 3}
    with pytest.raises(ZeroDivisionError):
        await bench.predictor.process([*seconds_of(3), *seconds_of(4), *seconds_of(5)])

    assert len(bench.steps.closed) == 6
    bench.check()


async def test_a_tape_that_fails_costs_no_item() -> None:
    bench = Bench()

    def full(_: Batch | Watermark) -> None:
        raise DataError("disk full")

    stop = bench.predictor.tape(full)
    with pytest.raises(DataError):
        await warm(bench)
    stop()
    assert len(bench.taped) == 2
    bench.check()


async def test_refill_brings_the_state_up_to_date_without_a_prediction_and_is_on_the_tape() -> None:
    bench = Bench()
    bench.predictor.refill([item for second in range(3) for item in seconds_of(second)])
    assert bench.said == []
    assert len(bench.taped) == 6
    bench.steps.closed.clear()
    await bench.second(3)

    assert {p.outcome for p in bench.said} == {Outcome.INFERRED}
    bench.check()


async def test_the_trace_and_the_age_of_the_oldest_input_come_from_the_window() -> None:
    bench = Bench()
    await warm(bench, 2)
    await bench.clock.advance(2.75)
    await bench.predictor.process([batch(0, [0, 1], [2, 102], 2.5, received_s=2.5), mark(0, 3)])
    trace = bench.newest()[0].trace

    assert trace.received_ns - trace.requested_ns == 1_000_000
    assert trace.window_ready_ns - trace.received_ns == 250_000_000
    assert trace.inference_end_ns >= trace.inference_start_ns >= trace.window_ready_ns
    assert bench.newest()[0].oldest_age_ns(bench.clock.mono_ns()) >= 250_000_000
    latency = bench.predictor.status().latency_ms
    assert latency["window"] == (250.0, 250.0, 250.0)


async def test_the_state_shows_each_asset_with_scales_that_are_numbers() -> None:
    bench = Bench("well", TransientError("late"))
    await warm(bench, 4)
    status = bench.predictor.status()

    assert (status.name, status.features, status.window, status.period_s) == ("bearing", 1, 3, 1.0)
    pump1, pump2 = status.assets
    assert (pump1.name, pump2.name, pump1.outcome, pump1.sequence) == ("pump1", "pump2", "no back end", 4)
    output = pump1.outputs[0]
    assert (output.value, output.trend) == (3.0, (None, None, 3.0, None))
    assert (output.low, output.high) == (3.0, 3.0)


_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("value"), st.floats(-2, 40), st.floats(-5, 5) | st.sampled_from([float("nan"), float("inf")])),
        st.tuples(st.just("mark"), st.floats(-2, 60), st.booleans()),
        st.tuples(st.just("poll"), st.integers(1, 8), st.just(0.0)),
        st.tuples(st.just("turn"), st.integers(1, 4), st.just(0.0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0.0)),
    ),
    max_size=40,
)
_FATES = st.lists(
    st.sampled_from(
        ["well", "well", "slow", "hang", "misshapen", TransientError("t"), PermanentError("p"), KeyError("k"), Rows({0: "bad row"})]
    ),
    max_size=15,
)


@given(_EVENTS, _FATES)
@settings(max_examples=150, deadline=None)
def test_whatever_comes_every_step_is_answered_once_and_the_tape_gives_the_same_windows(
    events: list[tuple[str, float, float]], fates: list[Fate]
) -> None:
    bench, replayed = asyncio.run(_play(events, fates))

    bench.check()
    # Live, the steps of a busy moment are caught up; of those the replay alone makes windows.
    remaining = iter(replayed.windows)
    for window in bench.windows:
        assert any(_same(window, other) for other in remaining)


def _same(left: Window, right: Window) -> bool:
    return (
        (left.asset, left.end_ns, left.quality, left.coverage) == (right.asset, right.end_ns, right.quality, right.coverage)
        and left.values.tobytes() == right.values.tobytes()
        and left.aligned.tobytes() == right.aligned.tobytes()
        and left.observed.tobytes() == right.observed.tobytes()
    )


async def _play(events: list[tuple[str, float, float]], fates: list[Fate]) -> tuple[Bench, Bench]:
    bench = Bench(*fates)
    put: Callable[[Batch | Watermark], bool] = bench.predictor.queue.put
    task = asyncio.create_task(bench.predictor.run(), name="bearing")
    polled = 0
    for kind, number, extra in events:
        if kind == "value":
            put(batch(0, [0, 1], [extra, extra], number))
        elif kind == "mark":
            put(mark(0, number, alive=bool(extra)))
        elif kind == "turn":
            await settle(int(number))
        elif kind == "restart":
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            task = asyncio.create_task(bench.predictor.run(), name="bearing again")
        else:
            for _ in range(int(number)):
                for item in seconds_of(polled):
                    put(item)
                polled += 1
        assert all(ledger.balanced for ledger in bench.predictor.queue.ledgers().values())
    await settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    replayed = Bench()
    await drain(replayed.predictor, bench.taped)
    return bench, replayed
