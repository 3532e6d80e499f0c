"""Derived signals: differences, rates, counters that roll over, bit fields, ratios."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.batch import Batch
from gateway.core.errors import ConfigError
from gateway.core.quality import Code, Level, level
from preprocess.derive import Derivation, DerivedTags, whole
from preprocess.enable import Enable
from preprocess.spec import DerivedSpec
from tests.unit.preprocess.feeds import batch, table_of

ONE = np.array([True])
SECOND_NS = 1_000_000_000


def counter(bits: int, readings: list[int]) -> list[float]:
    derivation = Derivation(DerivedSpec(name="c", kind="counter", sources=("x",), bits=bits), 1)
    return [
        float(derivation.update(i * SECOND_NS, [np.array([float(r)])], np.array([r], np.uint64), ONE)[0]) for i, r in enumerate(readings)
    ]


@given(st.sampled_from([16, 32, 64]), st.data())
def test_a_counter_counts_through_its_roll_over(bits: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, 2**bits - 1))
    steps = data.draw(st.lists(st.integers(0, min(2 ** (bits - 1) - 1, 2**50)), min_size=1, max_size=5))
    readings = [start]
    for step in steps:
        readings.append((readings[-1] + step) % 2**bits)

    assert counter(bits, readings)[1:] == [float(step) for step in steps]


def test_a_counter_that_starts_anew_gives_no_huge_count() -> None:
    increments = counter(32, [1_000_000, 1_000_010, 0, 5])

    assert increments[1] == 10
    assert np.isnan(increments[2])
    assert increments[3] == 5


@given(st.integers(0, 2**32 - 1), st.integers(0, 20), st.integers(1, 10))
def test_a_bit_field_is_cut_out(word: int, first: int, count: int) -> None:
    derivation = Derivation(DerivedSpec(name="b", kind="bit_field", sources=("x",), first_bit=first, bit_count=count), 1)
    value = np.array([float(word)])

    assert derivation.update(0, [value], whole(value), ONE)[0] == (word >> first) & (2**count - 1)


def test_a_ratio_by_zero_and_the_first_rate_are_no_numbers() -> None:
    ratio = Derivation(DerivedSpec(name="r", kind="ratio", sources=("x", "y")), 1)
    rate = Derivation(DerivedSpec(name="v", kind="rate", sources=("x",)), 1)
    one, zero = np.array([1.0]), np.array([0.0])

    assert np.isnan(ratio.update(0, [one, zero], whole(one), ONE)[0])
    assert np.isnan(rate.update(0, [zero], whole(zero), ONE)[0])
    assert rate.update(2 * SECOND_NS, [one], whole(one), ONE)[0] == 0.5


def test_a_derived_tag_joins_its_batch_with_the_worst_quality_of_its_parents() -> None:
    table = table_of({"g": ["a", "b", "dp"]})
    spec = DerivedSpec(name="dp", kind="difference", sources=("a", "b"))
    tags = DerivedTags([spec], {name: table.number(name) for name in ("a", "b", "dp")})
    whole_batch = tags.append(batch(table, 1, {"a": 5.0, "b": 3.0}, qualities=[0, Code.UNCERTAIN_STALE]))

    assert whole_batch.tag.tolist() == [0, 1, 2]
    assert whole_batch.value.tolist() == [5.0, 3.0, 2.0]
    assert whole_batch.quality[2] == Code.UNCERTAIN_STALE
    assert isinstance(whole_batch, Batch)


def test_a_derived_tag_of_a_missing_number_is_bad() -> None:
    table = table_of({"g": ["a", "b", "dp"]})
    tags = DerivedTags([DerivedSpec(name="dp", kind="ratio", sources=("a", "b"))], {n: table.number(n) for n in ("a", "b", "dp")})

    assert level(int(tags.append(batch(table, 1, {"a": 5.0, "b": 0.0})).quality[2])) is Level.BAD


def test_a_lost_or_bad_reading_loses_no_count() -> None:
    table = table_of({"g": ["a", "c"]})
    tags = DerivedTags([DerivedSpec(name="c", kind="counter", sources=("a",))], {n: table.number(n) for n in ("a", "c")})
    readings = [(10.0, 0), (15.0, 0), (float("nan"), Code.BAD_COMM_LOST), (25.0, 0), (3.0, Code.BAD_DEVICE), (30.0, 0)]
    rows = [tags.append(batch(table, i, {"a": value}, qualities=[quality])) for i, (value, quality) in enumerate(readings)]

    assert np.nan_to_num([row.value[1] for row in rows], nan=-1).tolist() == [-1, 5, -1, 10, -1, 5]
    assert [int(row.quality[1]) for row in rows[2::2]] == [Code.BAD_COMM_LOST, Code.BAD_DEVICE]


def test_a_rate_over_time_that_goes_back_is_no_number_and_counts_on_from_there() -> None:
    rate = Derivation(DerivedSpec(name="v", kind="rate", sources=("x",)), 1)
    feed = [(1, 1.0), (2, 2.0), (1, 9.0), (3, 13.0)]
    rates = [float(rate.update(t * SECOND_NS, [np.array([v])], whole(np.array([v])), ONE)[0]) for t, v in feed]

    assert np.nan_to_num(rates, nan=-1).tolist() == [-1, 1, -1, 2]


@pytest.mark.parametrize("text", ["__import__('os')", "a.b", "a[0]", "f(a)", "lambda: 1", "a if b else c", "'x' == a", "a >", "a @ b"])
def test_an_enable_expression_is_no_program(text: str) -> None:
    with pytest.raises(ConfigError, match="enable"):
        Enable(text)


def test_an_enable_expression_works_on_whole_columns() -> None:
    enable = Enable("current > 0.5 and not (flow < 1 or -flow > 3) and 0 < current / 2 <= 10")
    signals = {"current": np.array([0.4, 1.0, 1.0, np.nan]), "flow": np.array([5.0, 5.0, 0.5, 5.0])}

    assert enable(signals, 4).tolist() == [False, True, False, False]
    assert enable.names == {"current", "flow"}
    assert Enable("")({}, 2).tolist() == [True, True]
