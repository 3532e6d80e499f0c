"""Windows are what a plain reading of the definitions makes of the samples, however these were packed and in whatever order groups came."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.batch import Batch, Watermark, merge
from gateway.core.quality import Code
from gateway.core.tags import GroupMode
from preprocess.scaling import Scaling
from preprocess.spec import Alignment, ChainSpec, DerivedSpec, FilterSpec, InputSpec, ScalingSpec
from preprocess.steps import Step
from tests.unit.preprocess.feeds import at_ns, batch, chain_of, run, steps_of, table_of

SECONDS = 9
samples_strategy = st.lists(
    st.tuples(
        st.integers(1, SECONDS * 20).map(lambda n: n / 20),
        st.floats(-12, 12) | st.sampled_from([math.nan, math.inf, -math.inf, 1e300]),
    ),
    max_size=40,
)
Samples = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Cell:
    value: float
    observed: bool
    kept: bool


def by_definition(samples: Samples, spec: InputSpec) -> list[Cell]:
    """One input, step by step, in plain Python."""
    first_of: dict[float, float] = {}
    for time, value in samples:
        first_of.setdefault(time, value)
    good = sorted((t, v) for t, v in first_of.items() if math.isfinite(v) and spec.low <= v <= spec.high)
    cells: list[Cell] = []
    for end in range(1, SECONDS + 1):
        before = [(t, v) for t, v in good if t <= end - 1]
        inside = [(t, v) for t, v in good if end - 1 < t <= end]
        newest = (before + inside)[-1] if before or inside else None
        kept = newest is not None and (bool(inside) or end - newest[0] <= spec.hold_limit_s)
        if newest is None:
            value = 0.0
        elif not inside:
            value = cells[-1].value if spec.align == "mean" else newest[1]
        elif spec.align == "mean":
            value = sum(v for _, v in inside) / len(inside)
        elif spec.align == "interpolate" and before and inside[0][0] - before[-1][0] <= spec.hold_limit_s + 1:
            (t0, v0), (t1, v1) = before[-1], inside[0]
            value = v0 + (v1 - v0) * (end - 1 - t0) / (t1 - t0)
        else:
            value = inside[0][1] if spec.align == "interpolate" else inside[-1][1]
        cells.append(Cell(value, bool(inside), kept))
    return cells


@settings(max_examples=150)
@given(samples_strategy, st.sampled_from(["last", "mean", "interpolate"]), st.sampled_from([0.0, 1.0, 2.5]))
def test_every_cell_is_what_the_definition_says(samples: Samples, align: Alignment, hold_s: float) -> None:
    table = table_of({"g": ["x"]})
    spec = InputSpec(name="x", unit="1", low=-10, high=10, align=align, hold_limit_s=hold_s)
    chain = ChainSpec(period_s=1.0, window=1, inputs=(spec,), coverage_good=0.0, coverage_uncertain=0.0)
    feed: list[Batch | Watermark] = [Watermark(0, at_ns(0))]
    for end in range(1, SECONDS + 1):
        feed += [batch(table, t, {"x": v}) for t, v in samples if end - 1 < t <= end]
        feed.append(Watermark(0, at_ns(end)))
    expected = by_definition(samples, spec)
    steps = steps_of(chain, table)
    closed = run(steps, feed)

    assert len(closed) == SECONDS
    for step, cell in zip(closed, expected, strict=True):
        window = step.assets[0].window
        assert window is not None
        assert window.aligned[0, 0] == pytest.approx(cell.value, rel=1e-9, abs=1e-9)
        assert bool(window.observed[0, 0]) is cell.observed
        assert step.assets[0].coverage == float(cell.kept)
    assert steps.counters.duplicates == len(samples) - len({t for t, _ in samples})


def rich_chain() -> ChainSpec:
    """Everything a path can have: both kinds of filters, all alignments, derived signals, an enable expression."""
    smooth = (FilterSpec(kind="hampel", window=3), FilterSpec(kind="moving_mean", window=2))
    return ChainSpec(
        period_s=1.0,
        window=3,
        inputs=(
            InputSpec(name="x", unit="1", hold_limit_s=2.0, source_filters=smooth),
            InputSpec(name="y", unit="1", hold_limit_s=4.0, align="interpolate", step_filters=(FilterSpec(kind="ewma", alpha=0.5),)),
            InputSpec(name="v", unit="1", hold_limit_s=4.0, align="mean", scaling=ScalingSpec(kind="last_value", scale=2.0)),
        ),
        derived=(DerivedSpec(name="v", kind="rate", sources=("x",)),),
        enable="x > -1e9",
        coverage_uncertain=0.0,
        max_lateness_s=100.0,
        gap_reset_s=1000.0,
    )


def aligned(closed: Sequence[Step]) -> dict[int, tuple[bytes, bytes, float, int]]:
    """What was due, by the end of its step."""
    due = [(step.end_ns, step.assets[0]) for step in closed if step.assets[0].window is not None]
    return {end: (a.window.values.tobytes(), a.window.observed.tobytes(), a.coverage, a.quality) for end, a in due if a.window is not None}


values_strategy = st.lists(st.floats(-50, 50) | st.just(math.nan), min_size=20, max_size=20)


@settings(max_examples=80)
@given(st.data(), values_strategy)
def test_windows_do_not_depend_on_how_groups_interleave(data: st.DataObject, values: list[float]) -> None:
    table = table_of({"fast": ["x"], "slow": ["y"]})
    fast: list[list[Batch | Watermark]] = []
    slow: list[list[Batch | Watermark]] = []
    for second in range(10):
        x, y = values[2 * second], values[2 * second + 1]
        fast.append([batch(table, second + 0.3, {"x": x}), batch(table, second + 0.8, {"x": x + 1}), Watermark(0, at_ns(second + 1))])
        slow.append([batch(table, second + 0.5, {"y": y}), Watermark(1, at_ns(second + 1))] if second % 2 else [])
    natural = [item for pair in zip(fast, slow, strict=True) for part in pair for item in part]
    streams = [iter([item for part in fast for item in part]), iter([item for part in slow for item in part])]
    # The first item anchors the grid: it is the same in all orders.
    order = data.draw(st.permutations([0] * 27 + [1] * 10))
    mixed = [*(next(streams[0]) for _ in range(3)), *(next(streams[place]) for place in order)]
    chain = rich_chain()
    expected, got = aligned(run(steps_of(chain, table), natural)), aligned(run(steps_of(chain, table), mixed))

    assert got
    # Only the newest of several steps closed at once has a window, so each order shows some of them.
    both = expected.keys() & got.keys()
    assert max(got) in both
    assert {end: got[end] for end in both} == {end: expected[end] for end in both}


@settings(max_examples=80)
@given(st.data(), values_strategy)
def test_windows_do_not_depend_on_how_samples_are_packed_into_batches(data: st.DataObject, values: list[float]) -> None:
    table = table_of({"g": ["x", "y"]})
    single: list[Batch | Watermark] = []
    packed: list[Batch | Watermark] = []
    for second in range(5):
        rows = [batch(table, second + 0.2 + 0.2 * i, {"xy"[i % 2]: values[4 * second + i]}) for i in range(4)]
        cut = data.draw(st.integers(0, 3))
        single += [*rows, Watermark(0, at_ns(second + 1))]
        packed += [*([merge(rows[:cut])] if cut else []), merge(rows[cut:]), Watermark(0, at_ns(second + 1))]
    chain = rich_chain()

    assert aligned(run(steps_of(chain, table), single)) == aligned(run(steps_of(chain, table), packed))


@settings(max_examples=40)
@given(values_strategy, st.integers(1, 19))
def test_a_constant_offset_of_all_stamps_changes_no_window(values: list[float], shift: int) -> None:
    table = table_of({"g": ["x", "y"]})

    def feed(offset: int) -> list[Batch | Watermark]:
        items: list[Batch | Watermark] = []
        for i, value in enumerate(values):
            items += [batch(table, offset + i + 0.5, {"x": value, "y": -value}), Watermark(0, at_ns(offset + i + 1))]
        return items

    chain = rich_chain()

    assert list(aligned(run(steps_of(chain, table), feed(0))).values()) == list(aligned(run(steps_of(chain, table), feed(shift))).values())


def test_of_a_stamp_repeated_inside_one_batch_the_first_counts() -> None:
    table = table_of({"g": ["x"]})
    steps = steps_of(chain_of(window=1), table)
    rows = merge([batch(table, 0.5, {"x": value}) for value in (1.0, 2.0, 3.0)])
    window = run(steps, [rows, Watermark(0, at_ns(1))])[-1].assets[0].window

    assert window is not None
    assert window.aligned.tolist() == [[1.0]]
    assert steps.counters.duplicates == 2


def test_an_uncertain_value_stays_uncertain_for_as_long_as_it_stands_in() -> None:
    table = table_of({"g": ["x"]}, mode=GroupMode.ON_CHANGE)
    steps = steps_of(chain_of(window=2), table)
    closed = run(steps, [batch(table, 0.5, {"x": 1.0}, qualities=[Code.UNCERTAIN_CLOCK]), *(Watermark(0, at_ns(s)) for s in range(1, 6))])

    assert [step.assets[0].quality for step in closed[1:]] == [Code.UNCERTAIN_CLOCK] * 4


def test_a_bad_parent_makes_a_derived_input_bad_whatever_flags_the_other_has() -> None:
    table = table_of({"g": ["a", "b"]})
    derived = (DerivedSpec(name="dp", kind="difference", sources=("a", "b")),)
    chain = ChainSpec(period_s=1.0, window=1, inputs=(InputSpec(name="dp", unit="1"),), derived=derived)
    steps = steps_of(chain, table, {"a": {"a": "a", "b": "b"}})
    item = batch(table, 0.5, {"a": 5.0, "b": 3.0}, qualities=[0x100, Code.BAD_DEVICE])

    assert run(steps, [item, Watermark(0, at_ns(1))])[-1].assets[0].window is None


def test_a_window_is_finite_even_where_scaling_leaves_float32() -> None:
    scaling = Scaling([InputSpec(name="x", unit="1", scaling=ScalingSpec(kind="standard", scale=1e-300))])

    assert np.isfinite(scaling.scale(np.array([[3e38], [-3e38]]))).all()


def test_a_conversion_that_overflows_is_a_gap_and_no_warning() -> None:
    table = table_of({"g": ["x"]})
    steps = steps_of(chain_of(window=1), table)
    steps._router._factor[:] = 1e10

    assert run(steps, [batch(table, 0.5, {"x": 1e305}), Watermark(0, at_ns(1))])[-1].assets[0].window is None
