"""Store and forward: nothing is lost, doubled or overtaken, and the account is always balanced."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import gateway.store.outbox as outbox_module
from gateway.core.errors import TransientError
from gateway.core.protocols import Message
from gateway.store.database import Database
from gateway.store.outbox import Outbox
from tests.unit.store.shelf import Subscriber, count, fill_disk, running, until
from tests.virtual_clock import VirtualClock


def messages(numbers: Iterable[int], size: int = 4) -> list[Message]:
    return [Message("t", f"{n:0{size}}".encode()) for n in numbers]


def numbers(payloads: Iterable[bytes]) -> list[int]:
    return [int(payload) for payload in payloads]


def balanced(outbox: Outbox) -> bool:
    return outbox.stage().ledgers["messages"].balanced


async def test_what_is_confirmed_at_once_never_touches_the_disk(tmp_path: Path) -> None:
    clock, sink = VirtualClock(), Subscriber()
    async with Database(tmp_path / "h.db", clock) as database:
        before = await database.run(lambda c: c.total_changes)
        outbox = Outbox(database, sink, clock, 1e6)
        sink.up.set()
        async with running(outbox.run):
            for n in range(30):
                outbox.put(messages([n]))
                await clock.advance(0.1)
            await until(clock, database, lambda: len(sink.got) == 30)
        assert numbers(sink.got) == list(range(30))
        assert await database.run(lambda c: c.total_changes) == before
        assert outbox.status().waiting == 0
        assert balanced(outbox)


async def test_what_is_not_confirmed_is_on_the_disk_soon_and_goes_out_in_order_after_a_restart(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Database(tmp_path / "h.db", clock) as database:
        outbox = Outbox(database, Subscriber(), clock, 1e6)
        async with running(outbox.run):
            outbox.put(messages(range(5)))
            await clock.advance(0.6)
            assert await count(database, "outbox") == 5
            outbox.put(messages(range(5, 500)))
            await until(clock, database, lambda: not outbox._fresh)
        assert await count(database, "outbox") == 500
        assert balanced(outbox)
    sink = Subscriber()
    async with Database(tmp_path / "h.db", clock) as database:
        outbox = Outbox(database, sink, clock, 1e6)
        await outbox.load()
        assert (outbox.status().waiting, outbox.status().waiting_bytes) == (500, 2000)
        outbox.put(messages(range(500, 510)))
        sink.up.set()
        async with running(outbox.run):
            await until(clock, database, lambda: len(sink.got) == 510)
        assert numbers(sink.got) == list(range(510))
        await until(clock, database, lambda: outbox.status().waiting == 0)
        assert await count(database, "outbox") == 0
        assert balanced(outbox)


async def test_messages_of_another_subscriber_stay_where_they_are(tmp_path: Path) -> None:
    clock, sink = VirtualClock(), Subscriber("two")
    async with Database(tmp_path / "h.db", clock) as database:
        for name in ("one", "two"):
            kept = Outbox(database, Subscriber(name), clock, 1e6)
            kept.put(messages(range(3)))
            await kept.spill()
        outbox = Outbox(database, sink, clock, 1e6)
        await outbox.load()
        sink.up.set()
        async with running(outbox.run):
            await until(clock, database, lambda: outbox.status().waiting == 0)
        assert (len(sink.got), await count(database, "outbox")) == (3, 3)


@pytest.mark.parametrize("from_disk", [False, True])
async def test_a_poison_message_is_rejected_and_the_others_pass(tmp_path: Path, from_disk: bool) -> None:
    clock, sink = VirtualClock(), Subscriber(poison=frozenset((b"0001",)))
    async with Database(tmp_path / "h.db", clock) as database:
        outbox = Outbox(database, sink, clock, 1e6)
        outbox.put(messages(range(4)))
        if from_disk:
            await outbox.spill()
        sink.up.set()
        async with running(outbox.run):
            await until(clock, database, lambda: outbox.status().waiting == 0)
        assert numbers(sink.got) == [0, 2, 3]
        assert (outbox.status().rejected, outbox.status().accepted) == (1, 3)
        assert outbox.stage().text == "poison"
        assert balanced(outbox)


async def test_what_is_taken_in_part_goes_on_where_it_stopped(tmp_path: Path) -> None:
    clock, sink = VirtualClock(), Subscriber(first=3)
    async with Database(tmp_path / "h.db", clock) as database:
        outbox = Outbox(database, sink, clock, 1e6)
        outbox.put(messages(range(10)))
        sink.up.set()
        async with running(outbox.run):
            await until(clock, database, lambda: outbox.status().waiting == 0)
        assert numbers(sink.got) == list(range(10))
        assert balanced(outbox)


async def test_beyond_its_bytes_the_oldest_go_and_are_counted(tmp_path: Path) -> None:
    clock, sink = VirtualClock(), Subscriber()
    async with Database(tmp_path / "h.db", clock) as database:
        outbox = Outbox(database, sink, clock, 1000)
        for n in range(0, 25, 5):
            outbox.put(messages(range(n, n + 5), size=100))
            await outbox.spill()
        status = outbox.status()
        assert (status.dropped, status.waiting, status.waiting_bytes, status.fill) == (15, 10, 1000, 1.0)
        (condition,) = outbox.conditions()
        assert condition.active
        assert "15 messages lost" in condition.text
        assert balanced(outbox)
        sink.up.set()
        async with running(outbox.run):
            await until(clock, database, lambda: outbox.status().waiting == 0)
        assert numbers(sink.got) == list(range(15, 25))
        assert not outbox.conditions()[0].active


async def test_a_full_memory_drops_the_oldest_that_are_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "_MEMORY_LIMIT", 5)
    clock, sink = VirtualClock(), Subscriber()
    async with Database(tmp_path / "h.db", clock) as database:
        outbox = Outbox(database, sink, clock, 1e6)
        outbox.put(messages(range(5)))
        spilling = asyncio.create_task(outbox.spill())
        await asyncio.sleep(0)
        outbox.put(messages(range(5, 12)))
        assert balanced(outbox)
        await spilling
        assert balanced(outbox)
        sink.up.set()
        async with running(outbox.run):
            await until(clock, database, lambda: outbox.status().waiting == 0)
        assert numbers(sink.got) == [0, 1, 2, 3, 4, 7, 8, 9, 10, 11]
        assert outbox.status().dropped == 2


async def test_a_full_disk_keeps_all_in_memory_and_delivery_goes_on(tmp_path: Path) -> None:
    clock, sink = VirtualClock(), Subscriber()
    async with Database(tmp_path / "h.db", clock) as database:
        outbox = Outbox(database, sink, clock, 1e9)
        await fill_disk(database, full=True)
        outbox.put(messages(range(100), size=4000))
        with pytest.raises(TransientError, match="full"):
            await outbox.spill()
        assert balanced(outbox)
        assert outbox.status().waiting == 100
        sink.up.set()
        async with running(outbox.run):
            await until(clock, database, lambda: outbox.status().waiting == 0)
        assert numbers(sink.got) == list(range(100))
        assert balanced(outbox)


async def test_what_is_under_way_when_the_gateway_stops_is_kept(tmp_path: Path) -> None:
    clock, sink = VirtualClock(), Subscriber(stuck=asyncio.Event())
    async with Database(tmp_path / "h.db", clock) as database:
        outbox = Outbox(database, sink, clock, 1e6)
        outbox.put(messages(range(5)))
        sink.up.set()
        async with running(outbox.run):
            await clock.advance(0)
            assert outbox.stage().ledgers["messages"].in_flight == 5
            assert balanced(outbox)
        await outbox.spill()
        assert balanced(outbox)
        assert await count(database, "outbox") == 5


async def test_a_spill_that_is_cancelled_is_not_written_twice(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Database(tmp_path / "h.db", clock) as database:
        outbox = Outbox(database, Subscriber(), clock, 1e6)
        outbox.put(messages(range(5)))
        spilling = asyncio.create_task(outbox.spill())
        await asyncio.sleep(0)
        spilling.cancel()
        await asyncio.wait((spilling,))
        await outbox.spill()
        assert await count(database, "outbox") == 5
        assert balanced(outbox)


class Forwarding(RuleBasedStateMachine):
    """Links that come and go, a disk that fills up, restarts: no message is lost, doubled or overtaken."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = VirtualClock()
        self.sink = Subscriber()
        self.put = 0
        self.database = Database(Path(":memory:"), self.clock)
        self.loop.run_until_complete(self.database.__aenter__())
        self.outbox = Outbox(self.database, self.sink, self.clock, 1e9)

    @rule(n=st.integers(1, 300))
    def arrive(self, n: int) -> None:
        """New messages."""
        self.outbox.put(messages(range(self.put, self.put + n), size=6))
        self.put += n

    @rule(taking=st.booleans(), first=st.integers(1, 250))
    def change(self, taking: bool, first: int) -> None:
        """The peer changes its mind."""
        self.sink.taking, self.sink.first = taking, first

    @rule()
    def spill(self) -> None:
        """A quarter of a second is over."""
        self.loop.run_until_complete(self.outbox.spill())

    @rule()
    def deliver(self) -> None:
        """One portion."""
        stored = self.outbox._stored
        self.loop.run_until_complete(self.outbox._deliver_stored() if stored else self.outbox._deliver_fresh())

    @rule()
    def restart(self) -> None:
        """A clean stop, and a new outbox on the same file."""
        self.spill()
        accepted = self.outbox.status().accepted
        self.outbox = Outbox(self.database, self.sink, self.clock, 1e9)
        self.loop.run_until_complete(self.outbox.load())
        assert self.outbox.status().waiting == self.put - len(self.sink.got)
        assert accepted <= len(self.sink.got)

    @invariant()
    def in_order_and_balanced(self) -> None:
        """The account."""
        assert numbers(self.sink.got) == list(range(len(self.sink.got)))
        assert self.outbox.status().waiting == self.put - len(self.sink.got)
        assert balanced(self.outbox)

    def teardown(self) -> None:
        """Close what was opened."""
        self.loop.run_until_complete(self.database.__aexit__(None, None, None))
        self.loop.close()


Forwarding.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestForwarding = Forwarding.TestCase
