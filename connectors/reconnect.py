"""The one reconnect machine: when to try again, what to tell, and how long it has been."""

import random
from collections.abc import Callable
from enum import StrEnum

import structlog

from gateway.core.clock import NS_PER_S, Clock

log = structlog.get_logger(__name__)

_GROWTH = 1.8


class Link(StrEnum):
    """State of a connection."""

    IDLE = "not yet connected"
    UP = "connected"
    DOWN = "no connection"


class Reconnect:
    """Decides when a connection may be tried, with growing pauses; logs one line when it goes and one when it is back.

    Args:
        name: For the log.
        clock: For the pauses.
        first_s: Pause after the first failure.
        cap_s: Longest pause.
        jitter: Share of the pause by which it is varied, so that many gateways do not knock at once.
        free_tries: Failures in a row after which it may be tried again at once.
        draw: Uniform random numbers in [0, 1).
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        first_s: float = 0.5,
        cap_s: float = 15.0,
        jitter: float = 0.2,
        free_tries: int = 0,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._name = name
        self._clock = clock
        self._first_s = first_s
        self._cap_s = cap_s
        self._jitter = jitter
        self._free_tries = free_tries
        self._draw = draw
        self.link = Link.IDLE
        self.tries = 0
        self.reconnects = 0
        self.reason = ""
        self.remedy = ""
        self._next_ns = 0
        self._since_ns = clock.mono_ns()
        self._was_up = False

    @property
    def due(self) -> bool:
        """Whether a connection may be tried now."""
        return self.link is not Link.UP and self._clock.mono_ns() >= self._next_ns

    @property
    def next_try_ns(self) -> int:
        """Monotonic instant from which a connection may be tried."""
        return self._next_ns

    def up(self) -> None:
        """It is connected."""
        if self.link is Link.DOWN:
            log.info("link.up", link=self._name, after_s=round((self._clock.mono_ns() - self._since_ns) / NS_PER_S, 1), tries=self.tries)
        if self._was_up and self.link is not Link.UP:
            self.reconnects += 1
        self._was_up = True
        self.link, self.tries, self.reason, self.remedy = Link.UP, 0, "", ""
        self._next_ns = 0

    def closed(self) -> None:
        """The peer closed an idle connection, which is its right: it may be opened again at once, and nobody is told."""
        if self.link is Link.UP:
            self.link = Link.IDLE

    def down(self, reason: str, remedy: str = "") -> None:
        """A try failed or the connection was lost."""
        if self.link is not Link.DOWN:
            self._since_ns = self._clock.mono_ns()
            log.warning("link.down", link=self._name, reason=reason)
        self.link, self.reason, self.remedy = Link.DOWN, reason, remedy
        self.tries += 1
        paused = self.tries - self._free_tries
        pause_s = min(self._first_s * _GROWTH ** min(paused - 1, 30), self._cap_s) if paused > 0 else 0.0
        pause_s *= 1 + self._jitter * (2 * self._draw() - 1)
        self._next_ns = self._clock.mono_ns() + round(pause_s * NS_PER_S)

    def words(self) -> str:
        """State in the operator's words."""
        if self.link is not Link.DOWN:
            return self.link.value
        now_ns = self._clock.mono_ns()
        gone_s, next_s = (now_ns - self._since_ns) / NS_PER_S, max(self._next_ns - now_ns, 0) / NS_PER_S
        return f"{self.reason}, down {gone_s:.0f} s, try {self.tries}, next in {next_s:.0f} s"
