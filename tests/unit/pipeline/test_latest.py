"""The latest values: never back in time, never live when the source is not."""

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.batch import Batch
from gateway.core.quality import Code, Level, Ne107, level
from gateway.core.snapshot import SourceStatus
from gateway.core.tags import DataType, Tag
from gateway.pipeline.latest import LatestValues
from tests.unit.pipeline.flowing import at_ns, batch, mark, table
from tests.virtual_clock import VirtualClock


def latest_of(*, headline: Sequence[str] = (), trend_period_s: float = 10.0, trend_points: int = 5) -> tuple[LatestValues, VirtualClock]:
    clock = VirtualClock(wall_ns=at_ns(0))
    tags = table(("fast", 3), ("slow", 1))
    return LatestValues(tags, clock, headline=headline, trend_period_s=trend_period_s, trend_points=trend_points), clock


@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=5), max_size=10))
@settings(max_examples=150, deadline=None)
def test_a_value_is_that_of_the_newest_source_time_and_the_first_of_equal_times_stays(script: list[list[tuple[int, int]]]) -> None:
    latest, _ = latest_of()
    expected: dict[int, tuple[int, float]] = {}
    number = 0.0
    for rows in script:
        values = []
        before = {tag: second for tag, (second, _) in expected.items()}
        for tag, second in rows:
            number += 1
            values.append(number)
            if second > before.get(tag, -1) and second >= expected.get(tag, (-1, 0.0))[0]:
                expected[tag] = (second, number)
        latest.update(batch(0, [tag for tag, _ in rows], values, [float(second) for _, second in rows]))

    for tag in range(3):
        value = latest.value(tag)
        if tag in expected:
            assert (value.source_time_ns, value.value) == (at_ns(expected[tag][0]), expected[tag][1])
        else:
            assert level(value.quality) is Level.BAD
            assert math.isnan(value.value)


def test_a_source_clock_that_was_set_back_is_followed_from_its_next_watermark_on() -> None:
    latest, _ = latest_of()
    latest.update(batch(0, [0], [1], 1000))
    latest.update(mark(0, 1000))
    latest.update(batch(0, [0], [2], 5))
    assert latest.value(0).value == 1
    latest.update(mark(0, 5))
    latest.update(batch(0, [0], [3], 6))

    assert latest.value(0).value == 3


def test_values_of_a_dead_group_are_bad_until_it_lives_again_and_others_are_not_touched() -> None:
    latest, _ = latest_of()
    latest.update(batch(0, [0], [1], 1))
    latest.update(batch(1, [3], [1], 1))
    latest.update(mark(0, 2, alive=False))
    assert level(latest.value(0).quality) is Level.BAD
    assert level(latest.value(3).quality) is Level.GOOD
    assert latest.good_counts() == {"plc": (1, 4)}

    latest.update(mark(0, 3))
    assert level(latest.value(0).quality) is Level.GOOD
    assert latest.good_counts() == {"plc": (2, 4)}


def test_tags_added_by_a_reload_get_their_columns() -> None:
    clock = VirtualClock(wall_ns=at_ns(0))
    tags = table(("fast", 1))
    latest = LatestValues(tags, clock)
    number = tags.add(Tag("new", "bar", DataType.FLOAT64, 0))
    assert latest.value(number).quality == Code.BAD_WAITING
    latest.update(batch(0, [number], [7], 1))

    assert latest.value(number).value == 7
    assert latest.good_counts() == {"plc": (1, 2)}


def test_wide_and_text_values_are_shown_exactly() -> None:
    clock = VirtualClock(wall_ns=at_ns(0))
    tags = table(("fast", 0))
    for name, kind in (("signed", DataType.INT64), ("unsigned", DataType.UINT64), ("text", DataType.TEXT)):
        tags.add(Tag(name, "1", kind, 0))
    latest = LatestValues(tags, clock)
    plain = batch(0, [0, 1, 2], [-1.0, 2.0**64, math.nan], 1)
    wide = np.array([2**64 - 1, 2**64 - 1], np.uint64)
    latest.update(
        Batch(
            0, 0, plain.requested_mono_ns, plain.received_mono_ns, 0, plain.tag, plain.value, plain.quality, plain.source_time_ns,
            np.array([0, 1], np.int32), wide, np.array([2], np.int32), ("running",),
        )
    )  # fmt: skip

    assert [latest.value(tag).text for tag in range(3)] == ["-1", str(2**64 - 1), "running"]


async def test_the_trend_keeps_one_point_a_period_with_gaps_where_nothing_was_known() -> None:
    latest, clock = latest_of(headline=["fast.0"])
    for second, value in ((1, 1.0), (12, 2.0), (45, 3.0)):
        await clock.advance(second - clock.wall_ns() / 1e9 + at_ns(0) / 1e9)
        latest.update(batch(0, [0], [value], second, received_s=second))
    await clock.advance(10)
    status = latest.statuses()[0]

    assert status.trend == (1.0, None, None, 2.0, 3.0)
    assert status.value == 3.0
    assert status.age_ms == 10_000
    assert (status.low, status.high, status.unit) == (0.0, 10.0, "bar")


async def test_a_tag_shown_anew_starts_an_empty_trend_and_the_others_keep_theirs() -> None:
    latest, clock = latest_of(headline=["fast.0"])
    latest.update(batch(0, [0, 1], [1, 5], 0))
    await clock.advance(10)
    latest.statuses()
    latest.show(["fast.1", "fast.0", "unknown"])

    trends = {status.name: status.trend for status in latest.statuses()}
    assert trends == {"fast.1": (None,) * 5, "fast.0": (None, None, None, None, 1.0)}


async def test_a_value_that_is_no_number_is_none_and_its_reason_is_said() -> None:
    latest, _ = latest_of()
    latest.update(batch(0, [0], [math.nan], 1, quality=Code.BAD_NOT_A_NUMBER))
    good, never = latest.statuses(["fast.0", "fast.1", "nobody"])

    assert (good.value, good.quality_text) == (None, "bad, not a number")
    assert (never.value, never.age_ms, never.quality_text) == (None, -1.0, "bad, no value yet")


async def test_source_states_get_their_counts_and_the_age_of_the_newest_good_value() -> None:
    latest, clock = latest_of()
    bare = SourceStatus("plc", "modbus", "10.0.0.1", Ne107.GOOD, "connected")
    assert latest.filled([bare])[0].last_good_age_ms == -1.0
    latest.update(batch(0, [0], [1], 1))
    await clock.advance(2)
    latest.update(batch(0, [1], [1], 1, quality=Code.BAD, received_s=2))

    filled = latest.filled([bare])[0]
    assert (filled.good_tags, filled.tags, filled.last_good_age_ms) == (1, 4, 2_000)
