"""Readings of this process."""

from collections import deque

import psutil

from gateway.core.clock import NS_PER_MS, NS_PER_S, Clock

_SAMPLE_S = 0.5


class Resources:
    """Samples the event loop's delay and reads the process's memory.

    Args:
        clock: Measures the delay.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._process = psutil.Process()
        self._delays_ms: deque[float] = deque(maxlen=20)

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            due_ns = self._clock.mono_ns() + round(_SAMPLE_S * NS_PER_S)
            await self._clock.sleep_until(due_ns)
            self._delays_ms.append((self._clock.mono_ns() - due_ns) / NS_PER_MS)

    @property
    def loop_delay_ms(self) -> float:
        """Largest delay of the last ten seconds."""
        return max(self._delays_ms, default=0.0)

    @property
    def rss_mb(self) -> float:
        """Resident memory."""
        return float(self._process.memory_info().rss) / 1e6
