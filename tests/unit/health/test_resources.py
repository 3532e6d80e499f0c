"""Readings of the process itself."""

import asyncio

from gateway.core.clock import NS_PER_MS
from gateway.health.resources import Resources
from tests.virtual_clock import VirtualClock


class LateClock(VirtualClock):
    """A loop that is kept busy: every sleep ends late."""

    late_ms = 0.0

    async def sleep_until(self, mono_ns: int) -> None:
        await super().sleep_until(mono_ns)
        self._move(mono_ns + round(self.late_ms * NS_PER_MS))


async def test_the_largest_delay_of_the_last_ten_seconds_is_shown_and_then_forgotten() -> None:
    clock = LateClock()
    resources = Resources(clock)
    task = asyncio.create_task(resources.run(), name="resources")
    assert resources.loop_delay_ms == 0.0
    await clock.advance(2)
    assert resources.loop_delay_ms == 0.0
    clock.late_ms = 80.0
    await clock.advance(0.5)
    clock.late_ms = 0.0
    await clock.advance(5)
    assert resources.loop_delay_ms == 80.0
    await clock.advance(20)

    assert resources.loop_delay_ms == 0.0
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


def test_memory_is_that_of_a_python_process() -> None:
    assert 10 < Resources(VirtualClock()).rss_mb < 2000
