"""The file: a damaged one is moved aside, a healthy one never."""

import asyncio
import os
import sqlite3
from functools import partial
from pathlib import Path

import pytest

from gateway.core.errors import PermanentError, TransientError
from gateway.store.database import Database
from tests.unit.store.shelf import count
from tests.virtual_clock import VirtualClock


@pytest.mark.parametrize("damage", ["no database", "torn", "empty page"])
async def test_a_damaged_file_is_moved_aside_and_a_new_one_begun(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "h.db"
    async with Database(path, VirtualClock()) as database:
        await database.run(lambda c: c.executemany("INSERT INTO tags (name) VALUES (?)", [(f"{n:0500}",) for n in range(500)]))
    content = path.read_bytes()
    path.write_bytes(
        {
            "no database": b"these are no pages" * 500,
            "torn": content[: len(content) // 2],
            "empty page": content[:8192] + bytes(8192) + content[16384:],
        }[damage]
    )
    damaged = path.read_bytes()
    async with Database(path, VirtualClock()) as database:
        assert database.quarantined is not None
        assert database.quarantined.read_bytes()[:4096] == damaged[:4096]
        assert await count(database, "tags") == 0
        await database.run(lambda c: c.execute("INSERT INTO tags (name) VALUES ('a')"))


async def test_a_file_that_somebody_else_has_locked_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "h.db"
    async with Database(path, VirtualClock()):
        pass
    connect = sqlite3.connect
    other = connect(path)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(sqlite3, "connect", lambda path, **more: connect(path, timeout=0, **more))
    try:
        with pytest.raises(PermanentError, match="locked"):
            async with Database(path, VirtualClock()):
                pass
    finally:
        other.close()
    assert not any("damaged" in name for name in os.listdir(tmp_path))  # noqa: PTH208 - nothing else is happening here


async def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="unable to open"):
        async with Database(tmp_path / "none" / "h.db", VirtualClock()):
            pass


async def test_a_transaction_that_fails_changes_nothing(tmp_path: Path) -> None:
    def halfway(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO tags (name) VALUES ('a')")
        connection.execute("INSERT INTO nowhere VALUES (1)")

    async with Database(tmp_path / "h.db", VirtualClock()) as database:
        with pytest.raises(TransientError):
            await database.run(halfway)
        assert await count(database, "tags") == 0


def insert(name: str, connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO tags (name) VALUES (?)", (name,))


async def test_what_was_asked_for_is_carried_out_before_its_cancellation_is_told(tmp_path: Path) -> None:
    async with Database(tmp_path / "h.db", VirtualClock()) as database:
        asking = [asyncio.create_task(database.run(partial(insert, name))) for name in ("a", "b")]
        await asyncio.sleep(0)
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
        assert all(task.cancelled() for task in asking)
        assert await count(database, "tags") == 2


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    async with Database(tmp_path / "h.db", VirtualClock()) as database:
        await database._call(database._close)
        with pytest.raises(TransientError, match="closed"):
            await count(database, "tags")
