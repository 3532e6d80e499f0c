"""Time as several groups tell it: slow ones, dead ones, clocks that were set, stamps from nowhere."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import preprocess.steps
from gateway.core.batch import Batch, Watermark
from gateway.core.errors import ConfigError
from gateway.core.prediction import Outcome
from gateway.core.tags import DataType, Tag, TagTable
from preprocess.spec import ChainSpec, InputSpec
from preprocess.steps import Step, Steps
from tests.unit.preprocess.feeds import at_ns, batch, chain_of, run, steps_of, table_of


def two(*, uncertain: float = 0.4, **changes: object) -> tuple[TagTable, Steps]:
    table = table_of({"a": ["x"], "b": ["y"]})
    return table, steps_of(chain_of(("x", "y"), window=2, coverage_uncertain=uncertain, **changes), table)


def healthy(table: TagTable, start: float, count: int) -> list[Batch | Watermark]:
    feed: list[Batch | Watermark] = []
    for k in range(count):
        now = start + k
        feed += [batch(table, now + 0.5, {"x": now}), batch(table, now + 0.5, {"y": now})]
        feed += [Watermark(0, at_ns(now + 1)), Watermark(1, at_ns(now + 1))]
    return feed


def seen(steps: list[Step], feature: int = 0) -> list[bool]:
    """Whether the newest cell of an input was observed, for the steps that have a window."""
    return [bool(s.assets[0].window.observed[-1, feature]) for s in steps if s.assets[0].window is not None]


@pytest.mark.parametrize("slow_s", [2.0, 5.0, 10.0, 60.0])
def test_a_slow_poll_that_promises_a_long_silence_makes_no_fast_value_late(slow_s: float) -> None:
    table = TagTable()
    for name, period_s, tag in (("fast", 1.0, "x"), ("slow", slow_s, "y")):
        table.add(Tag(tag, "1", DataType.FLOAT32, table.add_group(name, "plc", period_s).id))
    inputs = tuple(InputSpec(name=name, unit="1", hold_limit_s=2 * slow_s) for name in "xy")
    steps = steps_of(ChainSpec(period_s=1.0, window=4, inputs=inputs), table)
    polls = [(k + 0.5, "x", k + 1.5) for k in range(120)]
    polls += [((k + 0.5) * slow_s, "y", (k + 1.5) * slow_s) for k in range(int(120 / slow_s))]
    closed: list[Step] = []
    for when, tag, following in sorted(polls):
        closed += run(steps, [batch(table, when, {tag: 1.0}), Watermark("xy".index(tag), at_ns(following) - 1)])

    assert (steps.counters.late, steps.counters.epochs) == (0, 0)
    assert [b.end_ns - a.end_ns for a, b in itertools.pairwise(closed)] == [at_ns(1) - at_ns(0)] * (len(closed) - 1)
    assert all(seen(closed))
    assert sum(s.assets[0].outcome is Outcome.CAUGHT_UP for s in closed) <= 1
    # Before the first slow value has come there is nothing to infer from; afterwards every step has its window.
    first = next(i for i, s in enumerate(closed) if s.end_ns > at_ns(slow_s / 2 + 4))
    assert all(s.assets[0].outcome is Outcome.INFERRED for s in closed[first:])


@settings(max_examples=80)
@given(st.sampled_from([-5000.0, -500.0, -20.0, -5.0, 20.0, 500.0]) | st.floats(-1, 1), st.floats(0.3, 3), st.integers(6, 20))
def test_a_dead_group_whose_clock_was_left_behind_or_ahead_harms_no_living_value(offset: float, pace_s: float, count: int) -> None:
    table, steps = two()
    run(steps, healthy(table, 0, 6))
    # The living group's clock is set by `-offset`; the dead one counts on from the old time.
    jump = -offset if abs(offset) > 2 else 0.0
    base, dead_at, closed = 6 + jump, 6.0, []
    for k in range(count):
        closed += run(steps, [batch(table, base + k + 0.5, {"x": 2.0}), Watermark(0, at_ns(base + k + 1))])
        # Such marks tell the time that went by, so they are never ahead of it.
        while dead_at + pace_s <= 6 + k + 1:
            dead_at += pace_s
            closed += run(steps, [Watermark(1, at_ns(dead_at + (offset if not jump else 0.0)), alive=False)])

    assert steps.counters.late == 0
    assert steps.counters.epochs == (1 if abs(jump) > (30 if jump > 0 else 2) else 0)
    assert seen(closed)
    assert closed[-1].end_ns >= at_ns(base + count - 3)


def test_a_dead_group_that_comes_back_joins_the_epoch_it_missed() -> None:
    table, steps = two()
    run(steps, healthy(table, 0, 6))
    for k in range(5):
        run(steps, [batch(table, k - 500 + 0.5, {"x": 2.0}), Watermark(0, at_ns(k - 499)), Watermark(1, at_ns(k + 7), alive=False)])
    closed = run(steps, healthy(table, -495, 4))

    assert steps.counters.epochs == 1
    assert all(seen(closed[1:], 0))
    assert all(seen(closed[1:], 1))


def test_a_group_that_falls_silent_without_a_word_does_not_stop_the_time_of_the_dead_one() -> None:
    table, steps = two()
    run(steps, healthy(table, 0, 6))
    closed = run(steps, [Watermark(1, at_ns(7 + k), alive=False) for k in range(100)])

    assert closed[-1].end_ns == at_ns(104)
    assert closed[-1].assets[0].outcome is Outcome.COVERAGE
    assert steps.counters.epochs == 0


def test_when_all_are_dead_every_step_still_closes() -> None:
    table, steps = two()
    run(steps, healthy(table, 0, 6))
    closed = run(steps, [Watermark(g, at_ns(7 + k), alive=False) for k in range(50) for g in (0, 1)])

    assert [s.end_ns for s in closed] == [at_ns(7 + k) for k in range(50)]


@pytest.mark.parametrize("jump_s", [500.0, -500.0, -20.0])
def test_values_of_a_new_epoch_that_came_before_its_first_watermark_are_kept_for_all_groups(jump_s: float) -> None:
    table, steps = two()
    run(steps, healthy(table, 0, 6))
    start = 6 + jump_s
    feed = [batch(table, start + 0.5, {"y": 7.0}), batch(table, start + 0.5, {"x": 7.0})]
    run(steps, [*feed, Watermark(0, at_ns(start + 1)), Watermark(1, at_ns(start + 1))])
    closed = run(steps, healthy(table, start + 1, 1))

    assert (steps.counters.epochs, steps.counters.discarded, steps.counters.late) == (1, 0, 0)
    assert closed[-1].assets[0].window is not None
    assert closed[-1].assets[0].window.aligned[0].tolist() == [7.0, 7.0]


def test_values_of_the_old_clock_do_not_reach_into_the_new_epoch() -> None:
    table, steps = two()
    run(steps, healthy(table, 0, 30))
    run(steps, [batch(table, 30.5, {"y": 99.0}), batch(table, 10.5, {"x": 1.0}), Watermark(0, at_ns(11)), Watermark(1, at_ns(11))])
    closed = run(steps, healthy(table, 11, 25))

    assert steps.counters.discarded == 1
    assert not any((s.assets[0].window.aligned == 99.0).any() for s in closed if s.assets[0].window is not None)


def test_stamps_from_a_far_future_are_counted_and_do_not_pile_up() -> None:
    table = table_of({"g": ["x"]})
    steps = steps_of(chain_of(window=1), table)
    closed: list[Step] = []
    for k in range(50):
        closed += run(steps, [batch(table, k + 0.5, {"x": 1.0}), batch(table, 1e6 + k, {"x": 1.0}), Watermark(0, at_ns(k + 1))])

    assert steps.counters.discarded == 50
    assert steps._pending == []
    assert all(seen(closed))


def test_what_waits_is_bounded_and_the_oldest_is_given_up_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preprocess.steps, "_PENDING_PARTS", 100)
    table = table_of({"g": ["x"]})
    steps = steps_of(chain_of(window=1), table)
    run(steps, [batch(table, k + 0.5, {"x": float(k)}) for k in range(300)])

    assert len(steps._pending) == 100
    assert steps.counters.discarded == 200
    assert int(steps._pending[-1].value[0]) == 299


def test_a_gap_shorter_than_the_fastest_group_is_refused_because_each_value_would_begin_an_epoch() -> None:
    table = table_of({"g": ["x"]}, period_s=60.0)

    with pytest.raises(ConfigError, match="fastest group comes every 60 s"):
        steps_of(chain_of(), table)
