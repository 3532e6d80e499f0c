"""A Modbus unit as a source: each group polled in its own slots, each block decoded as a whole."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

import numpy as np

from connectors.modbus.client import ModbusExceptionError
from connectors.modbus.line import Line
from connectors.modbus.poll import GroupPoll, Read
from connectors.modbus.settings import ModbusSourceSettings
from gateway.core.batch import Batch, Watermark
from gateway.core.clock import NS_PER_MS, Clock
from gateway.core.condition import Condition, Priority
from gateway.core.errors import TransientError
from gateway.core.quality import Code, Ne107
from gateway.core.snapshot import SourceStatus
from gateway.core.tags import Group, TagTable

_QUEUE_LIMIT = 1024  # items between the polls and the source stage, which takes them at once; a full queue holds the polls up


class ModbusSource:
    """Satisfies `Source`. Made by `ModbusConnector.source`.

    Args:
        settings: As checked.
        table: Its tags and groups are in it already.
        line: Shared by all that goes to the same host and port.
        clock: For slots and stamps.
    """

    def __init__(self, settings: ModbusSourceSettings, table: TagTable, line: Line, clock: Clock) -> None:
        self._settings = settings
        self._line = line
        self._clock = clock
        by_name = {group.name: group for group in table.groups()}
        self._polls = [GroupPoll(by_name[f"{settings.name}/{group.name}"], group, settings, table) for group in settings.groups]
        self._read_of = {int(tag): read for poll in self._polls for read in poll.reads for tag in read.tags}
        self._queue: asyncio.Queue[Batch | Watermark | Exception] = asyncio.Queue(_QUEUE_LIMIT)
        self._tasks: list[asyncio.Task[None]] = []
        self._durations_ms: deque[float] = deque(maxlen=512)
        self._conditions: dict[str, Condition] = {}
        self._lost = False

    @property
    def name(self) -> str:
        """As configured."""
        return self._settings.name

    @property
    def groups(self) -> Sequence[Group]:
        """The groups it feeds."""
        return [poll.group for poll in self._polls]

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._run(poll), name=f"poll {poll.group.name}") for poll in self._polls]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def items(self) -> AsyncIterator[Batch | Watermark]:
        """Batches and watermarks as they come; a fault of ours in a poll is raised here, for the supervisor."""
        while True:
            item = await self._queue.get()
            if isinstance(item, Exception):
                raise item
            yield item

    async def _run(self, poll: GroupPoll) -> None:
        try:
            due_ns = poll.next_slot_ns(self._clock.wall_ns())
            while True:
                await self._clock.sleep_until(self._clock.mono_ns() + due_ns - self._clock.wall_ns())
                await self._cycle(poll)
                wall_ns = self._clock.wall_ns()
                # The two clocks may differ by a hair; a slot is never polled twice. A clock that was set back is followed.
                next_ns = poll.next_slot_ns(due_ns if due_ns - poll.period_ns < wall_ns < due_ns else wall_ns)
                poll.missed += max((next_ns - due_ns) // poll.period_ns - 1, 0)
                await self._mark(poll, next_ns)
                due_ns = next_ns
        except Exception as error:  # noqa: BLE001 - handed to whoever iterates
            await self._queue.put(error)

    async def _mark(self, poll: GroupPoll, next_wall_ns: int) -> None:
        """Say how far the group has come: to its stamp, or to just before the next request."""
        if poll.stamp is None:
            await self._queue.put(Watermark(poll.group.id, next_wall_ns - 1, alive=poll.answered))
        elif poll.stamp_ns is not None:
            await self._queue.put(Watermark(poll.group.id, poll.stamp_ns, alive=poll.answered))

    async def _cycle(self, poll: GroupPoll) -> None:
        """Read all blocks of a group. A block that is refused leaves the others alone; no answer, or no time stamp, ends the cycle."""
        poll.cycle += 1
        poll.answered, poll.refusal, poll.failure = False, None, None
        ended: TransientError | None = None
        started_ns = self._clock.mono_ns()
        for read in poll.reads:
            error = ended
            if error is None:
                try:
                    await self._read(poll, read)
                except ModbusExceptionError as refusal:
                    error = refusal
                    if refusal.is_absent:
                        poll.failure = ended = refusal
                    else:
                        poll.refusal = _located(read, refusal)
                        ended = None if read.stamp is None else refusal
                except TransientError as failure:
                    poll.failure = ended = error = failure
                else:
                    poll.answered = True
                    continue
                poll.errors += 1
            await self._put_bad(poll, read, error)
        if ended is None:
            self._durations_ms.append((self._clock.mono_ns() - started_ns) / NS_PER_MS)
        else:
            poll.answered = False
        await self._note(poll)

    async def _read(self, poll: GroupPoll, read: Read) -> None:
        requested_ns, wall_ns = self._clock.mono_ns(), self._clock.wall_ns()
        data = await self._line.read(self._settings.unit, read.block, self._settings.timeout_ms / 1000)
        received_ns = self._clock.mono_ns()
        read.failure = ""
        values = read.codec.decode(data)
        if read.stamp is not None:
            poll.set_stamp(float(values[read.stamp]), received_ns)
            values = values[: read.stamp]
        if not len(read.tags):
            return
        # Without a stamp of its own a value was taken somewhere between request and response.
        time_ns = wall_ns + (received_ns - requested_ns) // 2 if poll.stamp_ns is None else poll.stamp_ns
        times = np.full(len(values), time_ns, np.int64)
        received_wall_ns = wall_ns + received_ns - requested_ns
        await self._queue.put(
            Batch(poll.group.id, poll.cycle, requested_ns, received_ns, received_wall_ns, read.tags, values, read.quality(values), times),
        )

    async def _put_bad(self, poll: GroupPoll, read: Read, error: TransientError) -> None:
        """All tags of a block lose their quality at once."""
        read.failure = error.text
        if not len(read.tags):
            return
        n, now_ns, wall_ns = len(read.tags), self._clock.mono_ns(), self._clock.wall_ns()
        quality = np.full(n, _quality_of(error), np.uint16)
        times = np.full(n, poll.now_ns(now_ns, wall_ns), np.int64)
        await self._queue.put(Batch(poll.group.id, poll.cycle, now_ns, now_ns, wall_ns, read.tags, np.full(n, np.nan), quality, times))

    async def _note(self, poll: GroupPoll) -> None:
        """Keep the conditions of the source and of this group. When the unit is lost, groups that are not due yet lose their values too."""
        failed = [other for other in self._polls if other.failure is not None]
        self._set("unreachable", failed[0].failure if failed else None, Priority.MEDIUM, Ne107.FAILURE)
        if poll.failure is None:
            self._lost = False
            self._set(f"refused {poll.group.name}", poll.refusal, Priority.LOW, Ne107.OUT_OF_SPECIFICATION)
        elif not self._lost and self._line.lost(self._settings.unit):
            self._lost = True
            for other in self._polls:
                if other.failure is None:
                    other.failure = poll.failure
                    for read in other.reads:
                        await self._put_bad(other, read, poll.failure)

    def _set(self, kind: str, error: TransientError | None, priority: Priority, word: Ne107) -> None:
        """A condition changes only with its state."""
        known = self._conditions.get(kind)
        if (error is None) == (known is None or not known.active):
            return
        text, remedy = (error.text, error.remedy) if error is not None else ("", "")
        self._conditions[kind] = Condition(
            self.name, kind, error is not None, priority, text, remedy, word if error is not None else Ne107.GOOD, self._clock.wall_ns()
        )

    def conditions(self) -> Sequence[Condition]:
        """Unreachable, or refusing a group's blocks; inactive again after a good cycle."""
        return tuple(self._conditions.values())

    def status(self) -> SourceStatus:
        """State of the link and counts of the polls."""
        active = sorted((c for c in self._conditions.values() if c.active), key=lambda c: c.word, reverse=True)
        text = self._line.words(self._settings.unit)
        if active and not self._line.lost(self._settings.unit):
            text = active[0].text
        p50, p99 = np.percentile(self._durations_ms, (50, 99)) if self._durations_ms else (0.0, 0.0)
        return SourceStatus(
            self.name,
            "modbus",
            f"{self._settings.host}:{self._settings.port} unit {self._settings.unit}",
            active[0].word if active else Ne107.GOOD,
            text,
            active[0].remedy if active else "",
            min(group.period_s for group in self._settings.groups),
            sum(poll.cycle for poll in self._polls),
            sum(poll.missed for poll in self._polls),
            sum(poll.errors for poll in self._polls),
            self._line.link.reconnects,
            cycle_p50_ms=float(p50),
            cycle_p99_ms=float(p99),
        )

    def raw_status(self, tag: int) -> str:
        """The last failure of the block that carries a tag, empty if its last read was fine."""
        read = self._read_of.get(tag)
        return read.failure if read is not None else ""


def _located(read: Read, error: TransientError) -> TransientError:
    """The same, with the addresses concerned."""
    block = read.block
    return TransientError(f"{block.table} {block.start}..{block.start + block.count - 1}: {error.text}", remedy=error.remedy)


def _quality_of(error: TransientError) -> int:
    if not isinstance(error, ModbusExceptionError) or error.is_absent:
        return Code.BAD_COMM_LOST
    return Code.BAD_CONFIGURATION if error.refuses_address else Code.BAD_DEVICE
