"""The reconnect machine."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from structlog.testing import capture_logs

from connectors.reconnect import Link, Reconnect
from gateway.core.clock import NS_PER_S
from tests.virtual_clock import VirtualClock


def test_pauses_grow_to_the_cap_and_start_again_after_success() -> None:
    clock = VirtualClock()
    link = Reconnect("plc", clock, first_s=0.5, cap_s=5.0, jitter=0.0)
    pauses = []
    for _ in range(8):
        link.down("no answer")
        pauses.append((link.next_try_ns - clock.mono_ns()) / NS_PER_S)
    assert pauses[0] == 0.5
    assert pauses == sorted(pauses)
    assert pauses[-1] == 5.0
    link.up()
    link.down("no answer")
    assert link.next_try_ns - clock.mono_ns() == 0.5 * NS_PER_S


def test_jitter_spreads_the_pause_around_its_nominal_length() -> None:
    clock = VirtualClock()
    for draw, expected in ((0.0, 0.4), (0.5, 0.5), (1.0, 0.6)):
        link = Reconnect("plc", clock, first_s=0.5, jitter=0.2, draw=lambda draw=draw: draw)  # type: ignore[misc]
        link.down("cut")
        assert abs(link.next_try_ns - clock.mono_ns() - expected * NS_PER_S) < 10


def test_free_tries_come_without_a_pause() -> None:
    link = Reconnect("plc", VirtualClock(), free_tries=1)
    link.down("no answer")
    assert link.due
    link.down("no answer")
    assert not link.due


async def test_it_may_be_tried_again_when_the_pause_is_over() -> None:
    clock = VirtualClock()
    link = Reconnect("plc", clock, first_s=1.0, jitter=0.0)
    link.down("cut", "check the cable")
    assert link.words() == "cut, down 0 s, try 1, next in 1 s"
    due = [link.due]
    await clock.advance(1.0)
    due.append(link.due)
    assert due == [False, True]
    assert link.remedy == "check the cable"


def test_an_idle_close_is_no_failure_and_nobody_is_told() -> None:
    link = Reconnect("plc", VirtualClock())
    with capture_logs() as logs:
        link.up()
        link.closed()
        assert link.link is Link.IDLE
        assert link.due
        link.up()
    assert logs == []
    assert link.reconnects == 1


class Links(RuleBasedStateMachine):
    """Whatever happens: one line down, one up, in turn; a pause within its bounds; a reason while it is down."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.link = Reconnect("plc", self.clock, first_s=0.5, cap_s=4.0, jitter=0.25, draw=lambda: 0.9)
        self.lines: list[str] = []

    def _do(self, act: str, *args: str) -> None:
        with capture_logs() as logs:
            getattr(self.link, act)(*args)
        lines: list[Any] = [entry["event"] for entry in logs]
        self.lines += lines

    @rule()
    def up(self) -> None:
        self._do("up")

    @rule()
    def closed(self) -> None:
        self._do("closed")

    @rule()
    def down(self) -> None:
        self._do("down", "cut")
        assert 0 < self.link.next_try_ns - self.clock.mono_ns() <= 5.0 * NS_PER_S

    @rule(seconds=st.floats(0, 6))
    def wait(self, seconds: float) -> None:
        self.clock._move(self.clock.mono_ns() + round(seconds * NS_PER_S))

    @invariant()
    def lines_alternate(self) -> None:
        expected = ["link.down", "link.up"] * (len(self.lines) // 2 + 1)
        assert self.lines == expected[: len(self.lines)]

    @invariant()
    def a_reason_is_there_while_it_is_down(self) -> None:
        assert (self.link.link is Link.DOWN) == bool(self.link.reason)
        assert (self.link.link is Link.DOWN) == (len(self.lines) % 2 == 1)


TestLinks = Links.TestCase
TestLinks.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
