"""Clocks wait for instants, not for durations."""

import asyncio

from gateway.core.clock import NS_PER_MS, NS_PER_S, SystemClock, sleep_s
from tests.virtual_clock import VirtualClock


async def test_the_system_clock_never_wakes_early() -> None:
    clock = SystemClock()
    due_ns = clock.mono_ns() + 5 * NS_PER_MS

    await clock.sleep_until(due_ns)

    assert clock.mono_ns() >= due_ns


async def test_virtual_sleepers_wake_in_order_each_at_its_instant() -> None:
    clock = VirtualClock(mono_ns=0)
    woken: list[tuple[str, int]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await sleep_s(clock, seconds)
        woken.append((name, clock.mono_ns()))

    async with asyncio.TaskGroup() as group:
        group.create_task(sleeper("late", 2))
        group.create_task(sleeper("soon", 1))
        await clock.advance(3)

    assert woken == [("soon", NS_PER_S), ("late", 2 * NS_PER_S)]


async def test_setting_the_wall_clock_leaves_durations_alone() -> None:
    clock = VirtualClock()
    before_ns = clock.mono_ns()

    clock.step_wall(-3600)

    assert clock.mono_ns() == before_ns
