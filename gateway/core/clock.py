"""Time, injected: the only place that reads the host's clocks."""

import asyncio
import time
from typing import Protocol

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


class Clock(Protocol):
    """Wall time for stamps, monotonic time for durations, and waiting on the latter."""

    def wall_ns(self) -> int:
        """UTC, nanoseconds since 1970."""
        ...

    def mono_ns(self) -> int:
        """Monotonic nanoseconds since an arbitrary origin; never goes back."""
        ...

    async def sleep_until(self, mono_ns: int) -> None:
        """Return once `mono_ns()` has reached the given instant, never before it."""
        ...


class SystemClock:
    """The host's own clocks."""

    def wall_ns(self) -> int:
        """UTC, nanoseconds since 1970."""
        return time.time_ns()

    def mono_ns(self) -> int:
        """CLOCK_MONOTONIC in nanoseconds."""
        return time.monotonic_ns()

    async def sleep_until(self, mono_ns: int) -> None:
        """Sleep to an absolute instant; an event loop that fires its timers early is waited out."""
        while (left_ns := mono_ns - time.monotonic_ns()) > 0:  # noqa: ASYNC110 - time is the event
            await asyncio.sleep(left_ns / NS_PER_S)
        # A deadline already in the past must still let other tasks run.
        await asyncio.sleep(0)


async def sleep_s(clock: Clock, seconds: float) -> None:
    """Sleep for a duration on the injected clock."""
    await clock.sleep_until(clock.mono_ns() + int(seconds * NS_PER_S))
