"""What the end of a session tells."""

from hypothesis import given
from hypothesis import strategies as st

from connectors.mqtt.session import Rivals, Suspects
from gateway.core.protocols import Message

_SMALL = Message("plant/values", b"x" * 100)
_LARGE = Message("plant/values", b"x" * 1000)


def test_a_large_message_alone_at_the_end_of_five_sessions_is_poison() -> None:
    suspects = Suspects(20)
    suspects.confirmed(_SMALL)
    for _ in range(5):
        assert not suspects.is_poison(_LARGE)
        assert suspects.ended([_LARGE])
    assert suspects.is_poison(_LARGE)
    assert suspects.at_once == 20
    assert not suspects.is_poison(_LARGE)


def test_a_broker_that_says_too_large_needs_no_second_proof() -> None:
    suspects = Suspects(20)
    suspects.confirmed(_LARGE)
    assert suspects.ended([_LARGE], told=True)
    assert suspects.is_poison(_LARGE)


def test_one_strange_message_among_others_makes_the_sink_send_them_one_by_one() -> None:
    suspects = Suspects(20)
    suspects.confirmed(_SMALL)
    assert suspects.ended([_SMALL, _LARGE])
    assert suspects.at_once == 1
    assert not suspects.is_poison(_LARGE)
    for _ in range(20):
        suspects.confirmed(_SMALL)
    assert suspects.at_once == 20


@given(st.lists(st.integers(0, 200), min_size=1, max_size=60))
def test_a_link_that_is_cut_again_and_again_never_makes_poison_of_what_was_taken_before(sizes: list[int]) -> None:
    suspects = Suspects(20)
    suspects.confirmed(_SMALL)
    for size in sizes:
        message = Message(_SMALL.topic, b"x" * size)
        assert not suspects.ended([message])
        assert not suspects.is_poison(message)


def test_a_topic_never_confirmed_is_strange_and_one_confirmed_is_not() -> None:
    suspects = Suspects(20)
    suspects.confirmed(_SMALL)
    other = Message("plant/other", b"x")
    assert suspects.ended([other])
    suspects.confirmed(other)
    assert not suspects.ended([other])


def test_three_short_sessions_in_a_row_are_a_rival_and_a_long_one_clears_it() -> None:
    rivals = Rivals()
    for _ in range(3):
        assert not rivals.seen
        rivals.ended(0.5)
    assert rivals.seen
    rivals.pausing(5.0)
    assert not rivals.gone(9.0)
    assert rivals.gone(10.0)
    assert not rivals.seen


def test_a_session_as_short_as_the_pause_before_it_still_counts_as_taken_over() -> None:
    rivals = Rivals()
    rivals.pausing(4.0)
    rivals.ended(6.0)
    assert rivals.rounds == 1
    rivals.ended(60.0)
    assert rivals.rounds == 0
