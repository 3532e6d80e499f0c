"""Every value is somewhere, no watermark is lost or too early, and memory is bounded."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.core.batch import Batch, Watermark
from gateway.core.protocols import Flowing
from gateway.pipeline.queue import FlowQueue, Overflow, measure
from tests.unit.pipeline.flowing import batch, mark, prediction
from tests.virtual_clock import settle

CAPACITY = 12
MAX_ITEMS = 5
GROUPS = 3


class QueueMachine(RuleBasedStateMachine):
    """Random puts and takes, with consumers that fail, against a model that keeps all that was ever put."""

    overflow = Overflow.DROP_OLDEST

    def __init__(self) -> None:
        super().__init__()
        self.queue = FlowQueue(CAPACITY, self.overflow, max_items=MAX_ITEMS)
        self.put: list[Flowing] = []
        self.place: dict[int, int] = {}
        self.waited_for = 0
        self.taken: list[Flowing] = []
        self.held = ExitStack()
        self.holding = False
        self.time = 0

    def _remember(self, item: Flowing) -> None:
        admitted = self.queue.put(item)
        if admitted or self.overflow is not Overflow.WAIT:
            self.place[id(item)] = len(self.put)
            self.put.append(item)
        assert admitted or not isinstance(item, Watermark)

    @rule(group=st.integers(0, GROUPS - 1), size=st.integers(0, CAPACITY + 3))
    def put_batch(self, group: int, size: int) -> None:
        self.time += 1
        self._remember(batch(group, range(size), [0.0] * size, self.time))

    @rule(group=st.integers(0, GROUPS - 1), alive=st.booleans())
    def put_watermark(self, group: int, alive: bool) -> None:
        self.time += 1
        self._remember(mark(group, self.time, alive=alive))

    @rule()
    def put_prediction(self) -> None:
        self.time += 1
        self._remember(prediction(self.time))

    @precondition(lambda self: not self.holding)
    @rule()
    def take(self) -> None:
        self.taken.extend(self.held.enter_context(self.queue.take_all()))
        self.holding = True

    @precondition(lambda self: self.holding)
    @rule()
    def finish(self) -> None:
        self.held.close()
        self.holding = False

    @precondition(lambda self: self.holding)
    @rule(error=st.sampled_from([RuntimeError, asyncio.CancelledError]))
    def fail(self, error: type[BaseException]) -> None:
        held, self.held = self.held, ExitStack()
        with pytest.raises(error), held:
            raise error
        self.holding = False

    @invariant()
    def accounts_balance(self) -> None:
        ledgers = self.queue.ledgers()
        received: dict[str, int] = {}
        for item in self.put:
            unit, count = measure(item)
            received[unit] = received.get(unit, 0) + count
        for unit, ledger in ledgers.items():
            assert ledger.balanced, (unit, ledger)
            assert ledger.received == received.get(unit, 0)
            assert min(ledger.waiting, ledger.in_flight, ledger.dropped, ledger.merged, ledger.rejected, ledger.consumed) >= 0

    @invariant()
    def memory_is_bounded(self) -> None:
        ledgers = self.queue.ledgers()
        waiting = {unit: ledger.waiting for unit, ledger in ledgers.items()}
        data = waiting.get("values", 0) + waiting.get("predictions", 0)
        assert data <= CAPACITY or (self.overflow is Overflow.WAIT and len(self.queue) - waiting.get("watermarks", 0) == 1)
        assert len(self.queue) - waiting.get("watermarks", 0) <= MAX_ITEMS
        assert waiting.get("watermarks", 0) <= 2 * GROUPS * (MAX_ITEMS + 1)

    @invariant()
    def order_is_kept(self) -> None:
        places = [self.place[id(item)] for item in self.taken]
        assert places == sorted(set(places))

    @invariant()
    def watermarks_are_never_dropped(self) -> None:
        ledger = self.queue.ledgers().get("watermarks")
        assert ledger is None or ledger.dropped == 0

    def teardown(self) -> None:
        """The newest watermark of each group always arrives, behind every batch that was put before it and not dropped."""
        self.held.close()
        with self.queue.take_all() as items:
            self.taken.extend(items)
        for group in range(GROUPS):
            sent = [item for item in self.put if isinstance(item, Watermark) and item.group == group]
            came = [item for item in self.taken if isinstance(item, Watermark) and item.group == group]
            living = [item for item in sent if item.alive]
            if sent:
                assert came[-1] is sent[-1]
            if living:
                assert living[-1] in came
        self.order_is_kept()
        self.accounts_balance()
        super().teardown()


class DropNewestMachine(QueueMachine):
    overflow = Overflow.DROP_NEWEST


class RefuseMachine(QueueMachine):
    overflow = Overflow.REFUSE


class WaitMachine(QueueMachine):
    overflow = Overflow.WAIT


_SETTINGS = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestDropOldest = QueueMachine.TestCase
TestDropNewest = DropNewestMachine.TestCase
TestRefuse = RefuseMachine.TestCase
TestWait = WaitMachine.TestCase
for case in (TestDropOldest, TestDropNewest, TestRefuse, TestWait):
    case.settings = _SETTINGS


def _kinds(items: list[Flowing]) -> Iterator[str]:
    for item in items:
        yield f"w{item.group}" if isinstance(item, Watermark) else "b" if isinstance(item, Batch) else "p"


def test_drops_the_oldest_batches_and_keeps_their_watermarks_in_front() -> None:
    queue = FlowQueue(4)
    for second in range(4):
        queue.put(batch(0, [0, 1], [0.0, 0.0], second))
        queue.put(mark(0, second))

    with queue.take_all() as items:
        assert list(_kinds(items)) == ["w0", "b", "w0", "b", "w0"]
        assert queue.ledgers()["values"].dropped == 4
        assert queue.ledgers()["watermarks"].merged == 1


def test_a_dead_watermark_does_not_replace_the_living_one_before_it() -> None:
    queue = FlowQueue(4)
    living, dead, later = mark(0, 1), mark(0, 2, alive=False), mark(0, 3, alive=False)
    for item in (living, dead, later):
        queue.put(item)

    with queue.take_all() as items:
        assert items == [living, later]


def test_a_living_watermark_replaces_all_before_it() -> None:
    queue = FlowQueue(4)
    for item in (mark(0, 1), mark(1, 1), mark(0, 2, alive=False), mark(0, 3)):
        queue.put(item)

    with queue.take_all() as items:
        assert items == [mark(1, 1), mark(0, 3)]


def test_refused_and_oversized_items_are_counted_where_they_belong() -> None:
    refusing, dropping = FlowQueue(1, Overflow.REFUSE), FlowQueue(1)
    assert refusing.put(prediction(1))
    assert not refusing.put(prediction(2))
    assert not dropping.put(batch(0, range(5), [0.0] * 5, 1))

    assert refusing.ledgers()["predictions"].rejected == 1
    assert dropping.ledgers()["values"].dropped == 5


async def test_a_consumer_wakes_when_something_comes_and_may_be_cancelled_while_it_waits() -> None:
    queue = FlowQueue(10)
    waiting = asyncio.create_task(queue.wait(), name="consumer")
    await settle()
    waiting.cancel()
    await settle()
    assert waiting.cancelled()

    again = asyncio.create_task(queue.wait(), name="consumer again")
    await settle()
    queue.put(mark(0, 1))
    await asyncio.wait_for(again, 1)


async def test_a_producer_offline_waits_for_room() -> None:
    queue = FlowQueue(1, Overflow.WAIT)
    await queue.put_when_free(prediction(1))
    blocked = asyncio.create_task(queue.put_when_free(prediction(2)), name="producer")
    await settle()
    assert not blocked.done()

    with queue.take_all() as items:
        assert len(items) == 1
    await asyncio.wait_for(blocked, 1)
    assert queue.ledgers()["predictions"].waiting == 1


async def test_a_producer_cancelled_while_it_waits_has_put_nothing() -> None:
    queue = FlowQueue(1, Overflow.WAIT)
    queue.put(prediction(1))
    blocked = asyncio.create_task(queue.put_when_free(prediction(2)), name="producer")
    await settle()
    blocked.cancel()
    await settle()

    assert queue.ledgers()["predictions"].received == 1
    with queue.take_all():
        pass
    assert queue.idle


async def test_join_returns_when_the_last_items_are_settled() -> None:
    queue = FlowQueue(10)
    queue.put(prediction(1))
    joined = asyncio.create_task(queue.join(), name="join")
    with queue.take_all():
        await settle()
        assert not joined.done()
    await asyncio.wait_for(joined, 1)


def test_rejecting_part_of_what_was_taken_keeps_the_account_balanced() -> None:
    queue = FlowQueue(10)
    queue.put(batch(0, range(5), [0.0] * 5, 1))
    with queue.take_all():
        queue.reject("values", 2)
        assert queue.ledgers()["values"].balanced

    ledger = queue.ledgers()["values"]
    assert (ledger.consumed, ledger.rejected) == (3, 2)
    assert ledger.balanced
