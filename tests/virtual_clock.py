"""A clock that moves only when a test says so."""

import asyncio
import heapq

from gateway.core.clock import NS_PER_S


class VirtualClock:
    """Satisfies `Clock`; `advance` wakes sleepers in order of their deadlines, each at its own instant."""

    def __init__(self, wall_ns: int = 1_700_000_000 * NS_PER_S, mono_ns: int = 1_000 * NS_PER_S) -> None:
        self._wall_ns = wall_ns
        self._mono_ns = mono_ns
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0

    def wall_ns(self) -> int:
        """Virtual UTC."""
        return self._wall_ns

    def mono_ns(self) -> int:
        """Virtual monotonic time."""
        return self._mono_ns

    async def sleep_until(self, mono_ns: int) -> None:
        """Wait for `advance` to reach the instant."""
        if mono_ns <= self._mono_ns:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (mono_ns, self._count, future))
        await future

    async def advance(self, seconds: float) -> None:
        """Let time pass, running everything that becomes due on the way."""
        await settle()
        end_ns = self._mono_ns + round(seconds * NS_PER_S)
        while self._sleepers and self._sleepers[0][0] <= end_ns:
            due_ns, _, future = heapq.heappop(self._sleepers)
            self._move(due_ns)
            if not future.done():
                future.set_result(None)
            await settle()
        self._move(end_ns)
        await settle()

    def step_wall(self, seconds: float) -> None:
        """Somebody sets the wall clock; monotonic time does not notice."""
        self._wall_ns += round(seconds * NS_PER_S)

    def _move(self, mono_ns: int) -> None:
        self._wall_ns += max(mono_ns - self._mono_ns, 0)
        self._mono_ns = max(mono_ns, self._mono_ns)


async def settle(turns: int = 20) -> None:
    """Let every task that can run do so."""
    for _ in range(turns):
        await asyncio.sleep(0)
