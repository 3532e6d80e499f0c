"""Store and forward: what a subscriber confirms at once never touches the disk, what it does not confirm waits there."""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from gateway.core.clock import NS_PER_S, Clock, sleep_s
from gateway.core.condition import Condition, Priority
from gateway.core.errors import TransientError
from gateway.core.protocols import Message, Sink
from gateway.core.quality import Ne107
from gateway.core.snapshot import Ledger, SinkStatus, StageStatus
from gateway.store.database import Database

log = structlog.get_logger(__name__)

_PORTION = 200
_SPILL_AFTER_S = 0.25
_MEMORY_LIMIT = 20_000
_RETRY_S = 0.2


@dataclass(slots=True)
class _Counts:
    received: int = 0
    accepted: int = 0
    rejected: int = 0
    dropped: int = 0
    in_flight: int = 0


class Outbox:
    """Messages for one sink, in order. Full, it drops the oldest and counts them.

    Args:
        database: Where messages wait that are not confirmed within a quarter of a second.
        sink: Whom they are for.
        clock: For ages.
        max_bytes: Of payloads kept.
    """

    def __init__(self, database: Database, sink: Sink, clock: Clock, max_bytes: float) -> None:
        self._database = database
        self._sink = sink
        self._clock = clock
        self._max_bytes = max_bytes
        self._fresh: deque[tuple[int, Message]] = deque()
        self._arrived = asyncio.Event()
        self._turn = asyncio.Lock()
        self._counts = _Counts()
        self._stored = self._stored_bytes = 0
        self._oldest_wall_ns = 0
        self._last_rejection = ""

    async def load(self) -> None:
        """Count what an earlier run has left.

        Raises:
            TransientError: The store cannot be read.
        """

        def read(connection: sqlite3.Connection) -> tuple[int, int, int]:
            query = "SELECT COUNT(*), COALESCE(SUM(LENGTH(payload)), 0), COALESCE(MIN(stored_wall_ns), 0) FROM outbox WHERE sink = ?"
            row: tuple[int, int, int] = connection.execute(query, (self._sink.name,)).fetchone()
            return row

        self._stored, self._stored_bytes, self._oldest_wall_ns = await self._database.run(read)
        self._counts.received += self._stored

    def put(self, messages: Sequence[Message]) -> None:
        """Take messages; never waits."""
        now_ns = self._clock.mono_ns()
        self._counts.received += len(messages)
        self._fresh.extend((now_ns, message) for message in messages)
        while len(self._fresh) > _MEMORY_LIMIT:
            self._fresh.popleft()
            self._counts.dropped += 1
        self._arrived.set()

    async def run(self) -> None:
        """Deliver and spill until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._deliver_for_ever(), name=f"outbox {self._sink.name}")
            tasks.create_task(self._spill_for_ever(), name=f"spill {self._sink.name}")

    async def _deliver_for_ever(self) -> None:
        while True:
            if not self._stored and not self._fresh:
                self._arrived.clear()
                await self._arrived.wait()
            await self._sink.ready()
            async with self._turn:
                try:
                    done = await (self._deliver_stored() if self._stored else self._deliver_fresh())
                except TransientError as error:
                    log.warning("outbox.store", sink=self._sink.name, text=str(error))
                    done = False
            if not done:
                await sleep_s(self._clock, _RETRY_S)

    async def _deliver_fresh(self) -> bool:
        portion = [self._fresh.popleft() for _ in range(min(_PORTION, len(self._fresh)))]
        if not portion:
            return True
        self._counts.in_flight = len(portion)
        kept: list[tuple[int, Message]] = portion
        try:
            delivery = await self._sink.deliver([message for _, message in portion])
            self._note(len(delivery.accepted), delivery.rejected)
            kept = [portion[i] for i in delivery.kept]
        finally:
            self._counts.in_flight = 0
            self._fresh.extendleft(reversed(kept))
        return not kept

    async def _deliver_stored(self) -> bool:
        def read(connection: sqlite3.Connection) -> list[tuple[int, str, bytes, int, int]]:
            query = "SELECT id, topic, payload, retain, stored_wall_ns FROM outbox WHERE sink = ? ORDER BY id LIMIT ?"
            return connection.execute(query, (self._sink.name, _PORTION)).fetchall()

        rows = await self._database.run(read)
        if not rows:
            self._stored = self._stored_bytes = 0
            return True
        self._oldest_wall_ns = rows[0][4]
        delivery = await self._sink.deliver([Message(topic, payload, bool(retain)) for _, topic, payload, retain, _ in rows])
        gone = [*delivery.accepted, *(i for i, _ in delivery.rejected)]

        def delete(connection: sqlite3.Connection) -> None:
            connection.executemany("DELETE FROM outbox WHERE id = ?", [(rows[i][0],) for i in gone])

        await self._database.run(delete)
        self._stored -= len(gone)
        self._stored_bytes -= sum(len(rows[i][2]) for i in gone)
        self._note(len(delivery.accepted), delivery.rejected)
        return not delivery.kept

    def _note(self, accepted: int, rejected: Sequence[tuple[int, str]]) -> None:
        self._counts.accepted += accepted
        self._counts.rejected += len(rejected)
        if rejected and rejected[-1][1] != self._last_rejection:
            self._last_rejection = rejected[-1][1]
            log.warning("outbox.rejected", sink=self._sink.name, text=self._last_rejection)

    async def _spill_for_ever(self) -> None:
        while True:
            await sleep_s(self._clock, _SPILL_AFTER_S)
            oldest_ns = self._fresh[0][0] if self._fresh else self._clock.mono_ns()
            if self._clock.mono_ns() - oldest_ns > _SPILL_AFTER_S * NS_PER_S:
                try:
                    async with self._turn:
                        await self.spill()
                except TransientError as error:
                    log.warning("outbox.store", sink=self._sink.name, text=str(error))
                    await sleep_s(self._clock, _RETRY_S * 10)

    async def spill(self) -> None:
        """Bring all that waits in memory to the disk, dropping the oldest beyond the limit.

        Raises:
            TransientError: The disk refuses; all stays in memory.
        """
        portion = list(self._fresh)
        if not portion:
            return
        # Out of reach of `put`, which drops from the front when memory is full.
        self._fresh.clear()
        self._counts.in_flight = len(portion)
        try:
            await self._store(portion)
        finally:
            self._counts.in_flight = 0

    async def _store(self, portion: Sequence[tuple[int, Message]]) -> None:
        done: list[tuple[int, int]] = []
        now_ns = self._clock.wall_ns()
        size = sum(len(message.payload) for _, message in portion)
        excess = self._stored_bytes + size - self._max_bytes

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "INSERT INTO outbox (sink, topic, payload, retain, stored_wall_ns) VALUES (?, ?, ?, ?, ?)",
                [(self._sink.name, m.topic, m.payload, m.retain, now_ns) for _, m in portion],
            )
            dropped = freed = 0
            if excess > 0:
                for row, length in connection.execute(
                    "SELECT id, LENGTH(payload) FROM outbox WHERE sink = ? ORDER BY id", (self._sink.name,)
                ).fetchall():
                    if freed >= excess:
                        break
                    connection.execute("DELETE FROM outbox WHERE id = ?", (row,))
                    dropped, freed = dropped + 1, freed + length
            done.append((dropped, freed))

        try:
            await self._database.run(write)
        except TransientError:
            self._fresh.extendleft(reversed(portion))
            raise
        except asyncio.CancelledError:
            if done:
                self._note_stored(portion, now_ns, *done[0])
            else:
                self._fresh.extendleft(reversed(portion))
            raise
        self._note_stored(portion, now_ns, *done[0])

    def _note_stored(self, portion: Sequence[tuple[int, Message]], now_ns: int, dropped: int, freed: int) -> None:
        size = sum(len(message.payload) for _, message in portion)
        if not self._stored:
            self._oldest_wall_ns = now_ns
        self._stored += len(portion) - dropped
        self._stored_bytes += size - freed
        self._counts.dropped += dropped

    def conditions(self) -> list[Condition]:
        """Whether it has begun to lose the oldest."""
        full = self._stored_bytes > 0.9 * self._max_bytes
        text = f"outbox of {self._sink.name} is {self._stored_bytes / self._max_bytes:.0%} full, {self._counts.dropped} messages lost"
        remedy = "bring the subscriber back or raise outbox_mb"
        now_ns = self._clock.wall_ns()
        return [Condition(self._sink.name, "outbox full", full, Priority.LOW, text, remedy, Ne107.OUT_OF_SPECIFICATION, now_ns)]

    def status(self) -> SinkStatus:
        """The sink's state with the outbox's counts."""
        waiting = self._stored + len(self._fresh) + self._counts.in_flight
        oldest_s = max(self._clock.wall_ns() - self._oldest_wall_ns, 0) / NS_PER_S if self._stored else 0.0
        return replace(
            self._sink.status(),
            accepted=self._counts.accepted,
            rejected=self._counts.rejected,
            dropped=self._counts.dropped,
            waiting=waiting,
            waiting_bytes=self._stored_bytes,
            fill=self._stored_bytes / self._max_bytes,
            oldest_age_s=oldest_s,
        )

    def stage(self) -> StageStatus:
        """Its account in messages."""
        counts = self._counts
        ledger = Ledger(
            received=counts.received,
            consumed=counts.accepted,
            rejected=counts.rejected,
            dropped=counts.dropped,
            waiting=self._stored + len(self._fresh),
            in_flight=counts.in_flight,
            produced=counts.accepted,
        )
        return StageStatus(f"outbox {self._sink.name}", self._sink.status().word, self._last_rejection, {"messages": ledger})
