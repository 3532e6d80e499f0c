"""Batches merge, slice and order with all their columns; watermarks are plain facts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.batch import Batch, merge

Row = tuple[int, float, int, int, int | None, str | None]
rows_strategy = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.floats(allow_nan=False),
        st.integers(0, 0xFFFF),
        st.integers(-(10**18), 10**18),
        st.none() | st.integers(0, 2**64 - 1),
        st.none() | st.text(max_size=5),
    ),
    max_size=12,
)


def build(rows: list[Row], *, group: int = 3, cycle: int = 1, received: int = 20) -> Batch:
    wide = [(i, row[4]) for i, row in enumerate(rows) if row[4] is not None]
    text = [(i, row[5]) for i, row in enumerate(rows) if row[5] is not None]
    return Batch(
        group,
        cycle,
        received - 5,
        received,
        received * 1000,
        np.array([row[0] for row in rows], np.int32),
        np.array([row[1] for row in rows], np.float64),
        np.array([row[2] for row in rows], np.uint16),
        np.array([row[3] for row in rows], np.int64),
        np.array([i for i, _ in wide], np.int32),
        np.array([value for _, value in wide], np.uint64),
        np.array([i for i, _ in text], np.int32),
        tuple(value for _, value in text if value is not None),
    )


def rows_of(batch: Batch) -> list[Row]:
    wide = dict(zip(batch.wide_pos.tolist(), batch.wide.tolist(), strict=True))
    text = dict(zip(batch.text_pos.tolist(), batch.text, strict=True))
    columns = zip(batch.tag.tolist(), batch.value.tolist(), batch.quality.tolist(), batch.source_time_ns.tolist(), strict=True)
    return [(*row, wide.get(i), text.get(i)) for i, row in enumerate(columns)]


@given(rows_strategy, rows_strategy)
def test_merging_keeps_every_row_in_arrival_order_with_its_wide_and_text_value(a: list[Row], b: list[Row]) -> None:
    merged = merge([build(a, cycle=1, received=20), build(b, cycle=2, received=30)])

    assert rows_of(merged) == a + b
    assert (merged.cycle, merged.requested_mono_ns, merged.received_mono_ns, merged.received_wall_ns) == (2, 15, 30, 30_000)


@given(rows_strategy, st.integers(-3, 14), st.integers(-3, 14))
def test_slicing_follows_python_and_carries_wide_and_text(rows: list[Row], start: int, stop: int) -> None:
    assert rows_of(build(rows).slice(start, stop)) == rows[start:stop]


@given(rows_strategy)
def test_order_is_source_time_then_arrival(rows: list[Row]) -> None:
    assert rows_of(build(rows).in_order()) == sorted(rows, key=lambda row: row[3])


@given(rows_strategy, st.integers(0, 12))
def test_cutting_and_merging_again_changes_nothing(rows: list[Row], at: int) -> None:
    whole = build(rows)

    assert rows_of(merge([whole.slice(0, at), whole.slice(at, len(rows))])) == rows


def test_columns_are_read_only_and_parallel() -> None:
    batch = build([(1, 2.0, 0, 5, None, None)])

    with pytest.raises(ValueError, match="read-only"):
        batch.value[0] = 1.0
    with pytest.raises(ValueError, match="different lengths"):
        Batch(0, 0, 0, 0, 0, batch.tag, np.zeros(2), batch.quality, batch.source_time_ns)


def test_batches_of_different_groups_or_none_do_not_merge() -> None:
    with pytest.raises(ValueError, match="different groups"):
        merge([build([], group=1), build([], group=2)])
    with pytest.raises(ValueError, match="nothing"):
        merge([])
