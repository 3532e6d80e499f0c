"""The journal: every entry once, the newest first, whatever happens at the same time."""

import asyncio
from pathlib import Path

from gateway.store.database import Database
from gateway.store.journal import StoredJournal
from tests.unit.store.shelf import count, fill_disk, running, until
from tests.virtual_clock import VirtualClock


async def test_entries_are_written_within_a_second_and_read_newest_first(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Database(tmp_path / "h.db", clock) as database:
        journal = StoredJournal(database, clock)
        async with running(journal.run):
            journal.record("alarm", 1, {"key": "a", "path": tmp_path})
            journal.record("event", 2, {})
            await until(clock, database, lambda: not journal._waiting)
        assert await journal.newest(1) == [{"kind": "event", "wall_ns": 2, "body": {}}]
        assert (await journal.newest())[1] == {"kind": "alarm", "wall_ns": 1, "body": {"key": "a", "path": str(tmp_path)}}


async def test_a_query_during_a_write_neither_doubles_nor_loses_an_entry(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Database(tmp_path / "h.db", clock) as database:
        journal = StoredJournal(database, clock)
        journal.record("event", 1, {})
        answers = await asyncio.gather(journal.flush(), journal.newest(), journal.newest())
        assert [len(answers[1]), len(answers[2])] == [1, 1]
        assert await count(database, "journal") == 1


async def test_what_a_full_disk_refuses_goes_on_waiting_in_order(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Database(tmp_path / "h.db", clock) as database:
        journal = StoredJournal(database, clock)
        await fill_disk(database, full=True)
        journal.record("event", 1, {"text": "x" * 100_000})
        flushing = asyncio.create_task(journal.flush())
        await asyncio.sleep(0)
        journal.record("event", 2, {})
        await flushing
        assert await count(database, "journal") == 0
        await fill_disk(database, full=False)
        assert [entry["wall_ns"] for entry in await journal.newest()] == [2, 1]


async def test_a_full_memory_drops_the_oldest_even_while_it_is_being_written(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Database(tmp_path / "h.db", clock) as database:
        journal = StoredJournal(database, clock)
        for n in range(10_000):
            journal.record("event", n, {})
        flushing = asyncio.create_task(journal.flush())
        await asyncio.sleep(0)
        for n in range(10_000, 10_010):
            journal.record("event", n, {})
        await flushing
        assert [entry["wall_ns"] for entry in await journal.newest(20_000)] == list(range(10_009, -1, -1))
