"""Quality combines to the worst, keeps flags, and maps to words."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.quality import Code, Flag, Level, Ne107, code, combine, combine_columns, describe, from_ne107, level, levels, ne107

codes = st.sampled_from([int(c) for c in Code])
flags = st.integers(0, 15).map(lambda bits: bits << 8)
qualities = st.tuples(codes, flags).map(lambda parts: parts[0] | parts[1])


@given(qualities, qualities, qualities)
def test_combining_is_commutative_associative_and_idempotent(a: int, b: int, c: int) -> None:
    assert combine(a, b) == combine(b, a)
    assert combine(a, combine(b, c)) == combine(combine(a, b), c)
    assert combine(a, a) == a
    assert combine(a, Code.GOOD) == a


@given(st.lists(qualities, min_size=1))
def test_a_combination_is_never_better_than_its_worst_part(parts: list[int]) -> None:
    whole = combine(*parts)

    assert level(whole) == max(level(part) for part in parts)
    assert code(whole) in {code(part) for part in parts}


@given(st.lists(st.tuples(qualities, qualities), min_size=1))
def test_columns_combine_and_level_like_single_values(pairs: list[tuple[int, int]]) -> None:
    left, right = (np.array(side, np.uint16) for side in zip(*pairs, strict=True))

    assert combine_columns(left, right).tolist() == [combine(a, b) for a, b in pairs]
    assert levels(left).tolist() == [int(level(a)) for a, _ in pairs]


@given(st.integers(0, 0xFFFF))
def test_every_word_read_from_a_device_has_a_level_and_a_description(quality: int) -> None:
    assert level(quality) in Level
    assert describe(quality)
    assert ne107(quality) in Ne107


def test_flags_are_named_in_words() -> None:
    assert describe(Code.UNCERTAIN_SUBSTITUTED | Flag.LIMITED_HIGH) == "uncertain, substituted (limited high)"


def test_ne107_words_keep_their_severity_over_a_round_trip() -> None:
    assert level(from_ne107(Ne107.MAINTENANCE_REQUIRED)) is Level.GOOD
    assert level(from_ne107(Ne107.OUT_OF_SPECIFICATION)) is Level.UNCERTAIN
    assert ne107(from_ne107(Ne107.FAILURE)) is Ne107.FAILURE
    assert ne107(Code.GOOD | Flag.SIMULATED) is Ne107.FUNCTION_CHECK
