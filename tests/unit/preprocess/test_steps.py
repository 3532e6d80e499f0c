"""Steps close by event time alone, exactly once each, and their windows say how good they are."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.batch import Batch, Watermark
from gateway.core.prediction import Outcome
from gateway.core.quality import Code, Level, code, level
from gateway.core.tags import GroupMode
from preprocess.spec import ChainSpec, DerivedSpec, InputSpec, ScalingSpec
from tests.unit.preprocess.feeds import at_ns, batch, chain_of, run, same, steps_of, table_of


def test_a_step_closes_when_the_watermark_passes_its_end_and_not_before() -> None:
    table = table_of({"g": ["x"]})
    steps = steps_of(chain_of(), table)
    steps.feed(batch(table, 0.5, {"x": 1.0}))

    assert [s.end_ns for s in steps.feed(Watermark(0, at_ns(0.9)))] == []
    assert [s.end_ns for s in steps.feed(Watermark(0, at_ns(1.0)))] == [at_ns(1)]


def test_a_sample_on_the_boundary_belongs_to_the_step_that_ends_there() -> None:
    table = table_of({"g": ["x"]})
    steps = steps_of(chain_of(window=2), table)
    feed: list[Batch | Watermark] = []
    for second in range(1, 5):
        feed += [batch(table, second, {"x": float(second)}), Watermark(0, at_ns(second))]
    last = run(steps, feed)[-1].assets[0].window

    assert last is not None
    assert last.aligned[:, 0].tolist() == [3.0, 4.0]
    assert last.observed.all()


@given(st.lists(st.floats(0, 0.98), min_size=12, max_size=12))
def test_jitter_inside_a_step_leaves_none_empty(jitter: list[float]) -> None:
    table = table_of({"g": ["x"]})
    steps = steps_of(chain_of(window=4), table)
    feed: list[Batch | Watermark] = []
    for second, shift in enumerate(jitter):
        feed += [batch(table, second + 0.01 + shift, {"x": float(second)}), Watermark(0, at_ns(second + 1))]
    closed = run(steps, feed)

    assert [s.end_ns for s in closed] == [at_ns(s + 1) for s in range(12)]
    windows = [s.assets[0].window for s in closed[3:]]
    assert all(w is not None and w.observed.all() and w.coverage == 1.0 and w.quality == Code.GOOD for w in windows)


items_strategy = st.lists(
    st.one_of(
        st.tuples(st.just("value"), st.integers(0, 1), st.floats(-3, 40), st.floats(-5, 5) | st.sampled_from([float("nan"), float("inf")])),
        st.tuples(st.just("mark"), st.integers(0, 1), st.floats(-3, 60), st.booleans()),
    ),
    max_size=60,
)


def build(items: list[tuple[str, int, float, float]], table: object) -> list[Batch | Watermark]:
    feed: list[Batch | Watermark] = []
    for kind, group, second, extra in items:
        name = "xy"[group]
        feed.append(
            batch(table, second, {name: float(extra)})  # type: ignore[arg-type]  # a TagTable
            if kind == "value"
            else Watermark(group, at_ns(second), alive=bool(extra)),
        )
    return feed


@settings(max_examples=200)
@given(items_strategy)
def test_whatever_comes_in_every_step_closes_once_in_order_and_a_replay_is_bit_equal(items: list[tuple[str, int, float, float]]) -> None:
    table = table_of({"fast": ["x"], "slow": ["y"]})
    chain = chain_of(("x", "y"), window=3, max_lateness_s=2.0, gap_reset_s=10.0)
    feed = build(items, table)
    steps = steps_of(chain, table)
    closed = run(steps, feed)

    assert same(closed, run(steps_of(chain, table), feed))
    for _, group in itertools.groupby(closed, key=lambda step: step.epoch):
        ends = [step.end_ns for step in group]
        assert all(b - a == at_ns(1) - at_ns(0) for a, b in itertools.pairwise(ends))
    for step in closed:
        for asset in step.assets:
            assert (asset.window is not None) == (asset.outcome is Outcome.INFERRED)
            if asset.window is not None:
                assert np.isfinite(asset.window.values).all()
                assert level(asset.window.quality) is not Level.BAD
    taken = sum(kind == "value" for kind, *_ in items)
    counters = steps.counters
    waiting = sum(len(samples.column) for samples in steps._pending)
    assert counters.applied + counters.late + counters.discarded + waiting == taken


def test_a_late_value_is_counted_and_not_put_into_a_window() -> None:
    table = table_of({"g": ["x"]})
    steps = steps_of(chain_of(window=2), table)
    run(steps, [batch(table, 0.5, {"x": 1.0}), Watermark(0, at_ns(1)), batch(table, 1.5, {"x": 2.0}), Watermark(0, at_ns(2))])
    closed = run(steps, [batch(table, 1.7, {"x": 99.0}), batch(table, 2.5, {"x": 3.0}), Watermark(0, at_ns(3))])

    assert steps.counters.late == 1
    window = closed[-1].assets[0].window
    assert window is not None
    assert window.aligned[:, 0].tolist() == [2.0, 3.0]


def test_a_dead_group_holds_nobody_up_and_its_inputs_age_from_held_to_missing() -> None:
    table = table_of({"fast": ["x"], "slow": ["y"]})
    chain = chain_of(("x", "y"), window=4, coverage_good=1.0, coverage_uncertain=0.8)
    steps = steps_of(chain, table)
    outcomes = []
    for second in range(12):
        feed: list[Batch | Watermark] = [batch(table, second + 0.5, {"x": 1.0}), Watermark(0, at_ns(second + 1))]
        if second < 5:
            feed += [batch(table, second + 0.5, {"y": 2.0}), Watermark(1, at_ns(second + 1))]
        else:
            feed.append(Watermark(1, at_ns(second + 1), alive=False))
        outcomes += [(s.assets[0].outcome, code(s.assets[0].quality)) for s in run(steps, feed)]

    assert outcomes[3:5] == [(Outcome.INFERRED, Code.GOOD)] * 2
    assert outcomes[5][1] == Code.UNCERTAIN_COVERAGE
    assert outcomes[-1] == (Outcome.COVERAGE, Code.BAD_COVERAGE)


def test_a_group_without_any_watermark_delays_a_step_by_the_lateness_and_no_longer() -> None:
    table = table_of({"fast": ["x"], "slow": ["y"]})
    steps = steps_of(chain_of(("x", "y"), max_lateness_s=2.0), table)
    closed = [run(steps, [batch(table, s + 0.5, {"x": 1.0}), Watermark(0, at_ns(s + 1))]) for s in range(4)]

    assert [len(c) for c in closed] == [0, 0, 1, 1]


def test_silence_that_only_monotonic_time_covers_leaves_a_subscribed_value_unobserved() -> None:
    table = table_of({"g": ["x"]}, mode=GroupMode.ON_CHANGE)
    steps = steps_of(chain_of(window=2), table)
    run(steps, [batch(table, 0.5, {"x": 7.0}), Watermark(0, at_ns(1)), Watermark(0, at_ns(2))])
    living = run(steps, [Watermark(0, at_ns(3))])[-1].assets[0].window
    dead = run(steps, [Watermark(0, at_ns(4), alive=False)])[-1].assets[0].window

    assert living is not None
    assert living.observed.all()
    assert dead is not None
    assert dead.observed[:, 0].tolist() == [True, False]
    assert dead.aligned[:, 0].tolist() == [7.0, 7.0]


def test_several_steps_at_once_all_advance_and_only_the_newest_is_due() -> None:
    table = table_of({"g": ["x"]})
    steps = steps_of(chain_of(window=2), table)
    run(steps, [batch(table, 0.5, {"x": 1.0}), Watermark(0, at_ns(1))])
    closed = run(steps, [batch(table, s + 0.5, {"x": float(s)}) for s in range(1, 5)] + [Watermark(0, at_ns(5))])

    assert [step.due for step in closed] == [False, False, False, True]
    assert [step.assets[0].outcome for step in closed[:3]] == [Outcome.CAUGHT_UP] * 3
    window = closed[-1].assets[0].window
    assert window is not None
    assert window.aligned[:, 0].tolist() == [3.0, 4.0]


@pytest.mark.parametrize("jump_s", [500.0, -500.0])
def test_a_jump_of_the_clock_starts_a_new_epoch_once_and_is_not_stepped_through(jump_s: float) -> None:
    table = table_of({"g": ["x"]})
    steps = steps_of(chain_of(window=3, gap_reset_s=30.0), table)
    run(steps, [item for s in range(5) for item in (batch(table, s + 0.5, {"x": 1.0}), Watermark(0, at_ns(s + 1)))])
    closed = run(
        steps,
        [item for s in range(4) for item in (batch(table, jump_s + s + 0.5, {"x": 2.0}), Watermark(0, at_ns(jump_s + s + 1)))],
    )

    assert steps.counters.epochs == 1
    assert [s.end_ns for s in closed] == [at_ns(jump_s + s + 1) for s in range(4)]
    assert [s.assets[0].outcome for s in closed] == [Outcome.WARMING_UP, Outcome.WARMING_UP, Outcome.INFERRED, Outcome.INFERRED]
    assert closed[-1].assets[0].window is not None
    assert (closed[-1].assets[0].window.aligned == 2.0).all()


def test_a_clock_that_goes_back_a_little_is_waited_for() -> None:
    table = table_of({"g": ["x"]})
    steps = steps_of(chain_of(window=2, max_lateness_s=2.0), table)
    run(steps, [batch(table, 0.5, {"x": 1.0}), Watermark(0, at_ns(1)), Watermark(0, at_ns(3))])

    assert run(steps, [batch(table, 2.2, {"x": 1.0}), Watermark(0, at_ns(2.5))]) == []
    assert steps.counters.epochs == 0
    assert steps.counters.late == 0 or steps.counters.epochs == 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e9])
def test_a_sample_that_is_no_credible_number_is_a_gap(bad: float) -> None:
    table = table_of({"g": ["x"]})
    chain = ChainSpec(period_s=1.0, window=2, inputs=(InputSpec(name="x", unit="1", low=-10, high=10, hold_limit_s=5),))
    steps = steps_of(chain, table)
    feed: list[Batch | Watermark] = []
    for second, value in enumerate([1.0, 2.0, bad]):
        feed += [batch(table, second + 0.5, {"x": value}), Watermark(0, at_ns(second + 1))]
    window = run(steps, feed)[-1].assets[0].window

    assert window is not None
    assert window.aligned[:, 0].tolist() == [2.0, 2.0]
    assert window.observed[:, 0].tolist() == [True, False]


def test_a_repeat_of_a_stamp_is_ignored_and_counted() -> None:
    table = table_of({"g": ["x"]})
    steps = steps_of(chain_of(window=1), table)
    closed = run(steps, [batch(table, 0.5, {"x": 1.0}), batch(table, 0.5, {"x": 2.0}), Watermark(0, at_ns(1))])

    assert steps.counters.duplicates == 1
    assert closed[-1].assets[0].window is not None
    assert closed[-1].assets[0].window.aligned.tolist() == [[1.0]]


def test_an_uncertain_or_simulated_input_makes_the_window_so() -> None:
    table = table_of({"g": ["x"]})
    steps = steps_of(chain_of(window=2), table)
    feed: list[Batch | Watermark] = []
    for second in range(3):
        feed += [batch(table, second + 0.5, {"x": 1.0}, qualities=[0x100 | Code.UNCERTAIN_CLOCK]), Watermark(0, at_ns(second + 1))]
    window = run(steps, feed)[-1].assets[0].window

    assert window is not None
    assert window.quality == 0x100 | Code.UNCERTAIN_CLOCK


def test_one_grid_serves_many_assets_and_tells_them_apart() -> None:
    table = table_of({"g": ["p1", "p2"]})
    steps = steps_of(chain_of(window=2), table, {"one": {"x": "p1"}, "two": {"x": "p2"}})
    feed: list[Batch | Watermark] = []
    for second in range(3):
        feed += [batch(table, second + 0.5, {"p1": second, "p2": 100.0 + second}), Watermark(0, at_ns(second + 1))]
    one, two = run(steps, feed)[-1].assets

    assert one.window is not None
    assert two.window is not None
    assert one.window.aligned[:, 0].tolist() == [1.0, 2.0]
    assert two.window.aligned[:, 0].tolist() == [101.0, 102.0]


def test_a_machine_that_stands_still_is_disabled_and_its_first_steps_afterwards_are_left_out() -> None:
    table = table_of({"g": ["x"]})
    steps = steps_of(chain_of(window=2, enable="x > 0.5", enable_discard_steps=2), table)
    outcomes: list[Outcome] = []
    for second, value in enumerate([0, 0, 0, 1, 1, 1, 1, 0]):
        outcomes += [s.assets[0].outcome for s in run(steps, [batch(table, second + 0.5, {"x": value}), Watermark(0, at_ns(second + 1))])]

    assert outcomes == [*[Outcome.DISABLED] * 3, *[Outcome.WARMING_UP] * 2, *[Outcome.INFERRED] * 2, Outcome.DISABLED]


def test_alignment_by_mean_and_by_interpolation_follow_their_definitions() -> None:
    table = table_of({"g": ["m", "i"]})
    inputs = (InputSpec(name="m", unit="1", align="mean"), InputSpec(name="i", unit="1", align="interpolate"))
    steps = steps_of(ChainSpec(period_s=1.0, window=1, inputs=inputs), table)
    feed: list[Batch | Watermark] = []
    for second in range(4):
        for part in (0.25, 0.75):
            now = second + part
            feed.append(batch(table, now, {"m": now, "i": 10 * now}))
        feed.append(Watermark(0, at_ns(second + 1)))
    window = run(steps, feed)[-1].assets[0].window

    assert window is not None
    assert window.aligned[0].tolist() == pytest.approx([3.5, 30.0])


def test_a_derived_input_is_computed_before_anything_else() -> None:
    table = table_of({"g": ["a", "b"]})
    chain = ChainSpec(
        period_s=1.0,
        window=1,
        inputs=(InputSpec(name="dp", unit="1"),),
        derived=(DerivedSpec(name="dp", kind="difference", sources=("a", "b")),),
    )
    steps = steps_of(chain, table, {"a": {"a": "a", "b": "b"}})
    window = run(steps, [batch(table, 0.5, {"a": 5.0, "b": 3.0}), Watermark(0, at_ns(1))])[-1].assets[0].window

    assert window is not None
    assert window.aligned.tolist() == [[2.0]]


def test_last_value_scaling_puts_the_newest_row_at_zero() -> None:
    table = table_of({"g": ["x"]})
    inputs = (InputSpec(name="x", unit="1", scaling=ScalingSpec(kind="last_value", scale=2.0)),)
    steps = steps_of(ChainSpec(period_s=1.0, window=2, inputs=inputs), table)
    feed: list[Batch | Watermark] = []
    for second, value in enumerate([10.0, 14.0]):
        feed += [batch(table, second + 0.5, {"x": value}), Watermark(0, at_ns(second + 1))]
    window = run(steps, feed)[-1].assets[0].window

    assert window is not None
    assert window.values[:, 0].tolist() == [-2.0, 0.0]


def test_the_trace_and_the_oldest_input_come_from_the_samples_used() -> None:
    table = table_of({"fast": ["x"], "slow": ["y"]})
    steps = steps_of(chain_of(("x", "y"), window=1), table)
    feed: list[Batch | Watermark] = [
        batch(table, 0.2, {"y": 1.0}, received=100),
        Watermark(1, at_ns(1)),
        batch(table, 0.8, {"x": 1.0}, received=900),
        Watermark(0, at_ns(1)),
    ]
    window = run(steps, feed)[-1].assets[0].window

    assert window is not None
    assert (window.requested_mono_ns, window.received_mono_ns) == (900, 901)
    assert window.oldest_age_ns(1101) == 1000
