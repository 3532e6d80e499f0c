"""A consumer can hold up neither the others nor the producer."""

import asyncio
from collections.abc import Sequence

import pytest

from gateway.core.errors import DataError, TransientError
from gateway.core.protocols import Flowing
from gateway.core.quality import Ne107
from gateway.pipeline.flow import Fanout, Stage
from gateway.pipeline.queue import FlowQueue, Overflow
from tests.unit.pipeline.flowing import batch, mark, prediction
from tests.virtual_clock import settle


async def test_a_stuck_consumer_costs_only_its_own_oldest_values() -> None:
    never = asyncio.Event()
    seen: list[Flowing] = []

    async def stick(_: Sequence[Flowing]) -> None:
        await never.wait()

    async def keep(items: Sequence[Flowing]) -> None:
        seen.extend(items)

    stuck, quick, fanout = Stage("stuck", stick, capacity=10), Stage("quick", keep), Fanout()
    fanout.outlet(stuck.queue)
    fanout.outlet(quick.queue)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(stage.run(), name=stage.name) for stage in (stuck, quick)]
        for second in range(100):
            fanout.put(batch(0, [0], [1.0], second))
            fanout.put(mark(0, second))
            await settle(3)
        for task in running:
            task.cancel()

    assert len(seen) == 200
    status = stuck.status()
    assert status.ledgers["values"].dropped == 89
    assert status.ledgers["values"].balanced
    assert status.ledgers["watermarks"].dropped == 0
    assert status.ledgers["watermarks"].balanced
    assert "89 dropped" in status.text


def test_outlets_get_the_groups_they_ask_for_and_taps_get_all() -> None:
    fanout, some, everything = Fanout(), FlowQueue(10), FlowQueue(10)
    tapped: list[Flowing] = []
    fanout.outlet(some, groups=[1])
    fanout.outlet(everything)
    fanout.tap(tapped.append)
    for item in (mark(0, 1), mark(1, 1), prediction(1)):
        fanout.put(item)
    fanout.remove(everything)
    fanout.put(mark(1, 2))

    with some.take_all() as items:
        assert items == [tapped[1], tapped[2], tapped[3]]
    with everything.take_all() as items:
        assert items == tapped[:3]


async def test_offline_the_producer_waits_for_the_consumers_that_ask_for_it() -> None:
    fanout, queue = Fanout(), FlowQueue(1, Overflow.WAIT)
    before = fanout.waits
    fanout.outlet(queue)
    assert (before, fanout.waits) == (False, True)

    await fanout.send(prediction(1))
    blocked = asyncio.create_task(fanout.send(prediction(2)), name="producer")
    await settle()
    assert not blocked.done()
    with queue.take_all():
        pass
    await asyncio.wait_for(blocked, 1)


async def test_unusable_items_are_rejected_and_the_stage_goes_on() -> None:
    answers = [DataError("cannot be encoded"), None]

    async def handle(_: Sequence[Flowing]) -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    stage = Stage("encoder", handle)
    task = asyncio.create_task(stage.run(), name="encoder")
    stage.queue.put(batch(0, [0, 1], [1.0, 2.0], 1))
    await settle()
    assert stage.status().word is Ne107.OUT_OF_SPECIFICATION
    stage.queue.put(batch(0, [0, 1], [1.0, 2.0], 2))
    await settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    ledger = stage.status().ledgers["values"]
    assert stage.status().word is Ne107.GOOD
    assert (ledger.rejected, ledger.consumed, ledger.balanced) == (2, 2, True)


async def test_other_errors_end_the_stage_and_what_comes_later_waits_for_its_restart() -> None:
    async def handle(_: Sequence[Flowing]) -> None:
        raise TransientError("broker is away")

    stage = Stage("sink", handle)
    stage.queue.put(prediction(1))
    with pytest.raises(TransientError):
        await stage.run()
    stage.queue.put(prediction(2))

    ledger = stage.status().ledgers["predictions"]
    assert (ledger.rejected, ledger.waiting, ledger.balanced) == (1, 1, True)
