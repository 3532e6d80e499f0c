"""The journal: alarms, events and commands, for queries."""

import asyncio
import json
import sqlite3
from collections import deque
from collections.abc import Mapping
from typing import Any

from gateway.core.clock import Clock, sleep_s
from gateway.core.errors import TransientError
from gateway.store.database import Database

_LIMIT = 10_000
_WRITE_S = 1.0


class StoredJournal:
    """Satisfies `Journal`: entries wait in memory (the newest `_LIMIT` of them) and are written once a second.

    Args:
        database: Where they are kept.
        clock: For the second.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._waiting: deque[tuple[str, int, str]] = deque(maxlen=_LIMIT)
        self._turn = asyncio.Lock()

    def record(self, kind: str, wall_ns: int, body: Mapping[str, object]) -> None:
        """Keep one entry; never blocks."""
        self._waiting.append((kind, wall_ns, json.dumps(dict(body), default=str)))

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await sleep_s(self._clock, _WRITE_S)
            await self.flush()

    async def flush(self) -> None:
        """Write what waits; what the disk refuses goes on waiting."""
        async with self._turn:
            await self._flush()

    async def _flush(self) -> None:
        rows = list(self._waiting)
        if not rows:
            return

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT INTO journal (kind, wall_ns, body) VALUES (?, ?, ?)", rows)

        self._waiting.clear()
        try:
            await self._database.run(write)
        except TransientError:
            self._waiting = deque([*rows, *self._waiting], maxlen=_LIMIT)

    async def newest(self, limit: int = 200) -> list[dict[str, Any]]:
        """The newest entries, newest first.

        Raises:
            TransientError: The store cannot be read.
        """
        await self.flush()

        def read(connection: sqlite3.Connection) -> list[tuple[str, int, str]]:
            return connection.execute("SELECT kind, wall_ns, body FROM journal ORDER BY id DESC LIMIT ?", (limit,)).fetchall()

        return [{"kind": kind, "wall_ns": wall_ns, "body": json.loads(body)} for kind, wall_ns, body in await self._database.run(read)]
