"""What the tests of the store share: a table of tags, items to keep, a subscriber that does as told."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import numpy as np

from gateway.core.batch import Batch, Watermark
from gateway.core.clock import NS_PER_S
from gateway.core.condition import Condition
from gateway.core.prediction import Outcome, Prediction, Trace
from gateway.core.protocols import Delivery, Message
from gateway.core.quality import Code, Ne107
from gateway.core.snapshot import SinkStatus
from gateway.core.tags import DataType, Tag, TagTable
from gateway.store.database import Database
from tests.virtual_clock import VirtualClock

DEADLINE_S = 10.0
MADE_NS = 1_700_000_000 * NS_PER_S  # when a `VirtualClock` begins


def table_of(*, dead_band: float = 0.0) -> TagTable:
    """Tags `a`, `b` of group `s/fast`, and `c` of group `s/slow`."""
    table = TagTable()
    fast, slow = table.add_group("s/fast", "s", 0.1), table.add_group("s/slow", "s", 10.0)
    for name, group in (("a", fast), ("b", fast), ("c", slow)):
        table.add(Tag(name, "1", DataType.FLOAT64, group.id, dead_band=dead_band))
    return table


def batch(tags: Sequence[int], values: Sequence[float], at_ns: int, *, group: int = 0, quality: int = Code.GOOD) -> Batch:
    """Values of one instant."""
    n = len(tags)
    columns = (np.array(tags, np.int32), np.array(values, np.float64), np.full(n, quality, np.uint16), np.full(n, at_ns, np.int64))
    return Batch(group, 0, 0, 0, at_ns, *columns)


def prediction(sequence: int) -> Prediction:
    """A prediction with an output that no decimal number holds."""
    trace = Trace(1, 2, 3, 4, 5)
    return Prediction(
        "m", "pump", sequence, sequence, "gateway", np.array([0.1, np.nan]), Code.GOOD, Outcome.INFERRED, "d", "cpu", trace, MADE_NS
    )


def bits(item: Batch | Watermark) -> tuple[object, ...]:
    """All that history keeps of an item, NaN payloads included."""
    if isinstance(item, Watermark):
        return (item.group, item.up_to_ns, item.alive)
    columns = (item.tag, item.value, item.quality, item.source_time_ns, item.wide_pos, item.wide, item.text_pos)
    return (item.group, item.cycle, item.received_wall_ns, *((column.dtype, column.tobytes()) for column in columns), item.text)


async def fill_disk(database: Database, *, full: bool) -> None:
    """Let the file grow no more, or let it grow again."""
    pages = 1 if full else 1_000_000

    def limit(connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA max_page_count={pages}")

    await database.run(limit)


async def count(database: Database, table: str) -> int:
    """Rows of a table."""

    def ask(connection: sqlite3.Connection) -> int:
        return int(connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])  # noqa: S608 - names of the tests' own

    return await database.run(ask)


async def until(clock: VirtualClock, database: Database, condition: Callable[[], bool]) -> None:
    """Let time pass, and the store's thread do its work, until something is so."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await clock.advance(0.05)
            await count(database, "tags")


@dataclass
class Subscriber:
    """Satisfies `Sink`: takes messages while `taking`, refuses payloads in `poison`, takes the first `first` of each delivery only."""

    name: str = "broker"
    taking: bool = True
    poison: frozenset[bytes] = frozenset()
    first: int = 1_000_000
    got: list[bytes] = field(default_factory=list)
    up: asyncio.Event = field(default_factory=asyncio.Event)
    stuck: asyncio.Event | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    async def ready(self) -> None:
        """Return once there is a connection."""
        await self.up.wait()

    async def deliver(self, messages: Sequence[Message]) -> Delivery:
        """Take what is to be taken."""
        if self.stuck is not None:
            await self.stuck.wait()
        rejected = tuple((i, "poison") for i, message in enumerate(messages) if message.payload in self.poison)
        good = [i for i, message in enumerate(messages) if message.payload not in self.poison]
        taken = good[: self.first] if self.taking else []
        self.got.extend(messages[i].payload for i in taken)
        return Delivery(tuple(taken), rejected, tuple(good[len(taken) :]))

    def conditions(self) -> Sequence[Condition]:
        """None."""
        return ()

    def status(self) -> SinkStatus:
        """Always well."""
        return SinkStatus(self.name, "fake", "here", Ne107.GOOD, "connected")


@asynccontextmanager
async def running(work: Callable[[], Coroutine[object, object, None]]) -> AsyncIterator[None]:
    """Runs a part of the store meanwhile."""
    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.result()
