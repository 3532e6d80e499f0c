"""A Modbus unit as a source: each group polled in its own slots, each block decoded as a whole."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from connectors.modbus.client import ModbusExceptionError
from connectors.modbus.codec import BitCodec, Codec, Field
from connectors.modbus.line import Line
from connectors.modbus.plan import Block, Place, place_of, plan
from connectors.modbus.settings import ModbusGroupSettings, ModbusSourceSettings, Table, WireType, parse_address
from gateway.core.batch import Batch, Watermark
from gateway.core.clock import NS_PER_MS, NS_PER_S, Clock
from gateway.core.condition import Condition, Priority
from gateway.core.errors import TransientError
from gateway.core.quality import Code, Ne107
from gateway.core.snapshot import SourceStatus
from gateway.core.tags import Group, TagTable

_QUEUE_LIMIT = 1024  # items between the polls and the source stage, which takes them at once; a full queue holds the polls up
_STAMP = -1  # member of a block that is the group's time stamp and no tag


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """One block with its codec and the columns it fills."""

    block: Block
    codec: Codec | BitCodec
    tags: npt.NDArray[np.int32]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    stamp: int | None

    def quality(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint16]:
        """NaN and infinities are bad, what lies outside a tag's range is uncertain."""
        with np.errstate(invalid="ignore"):
            outside = (values < self.low) | (values > self.high)
        quality = np.where(outside, Code.UNCERTAIN_OUT_OF_RANGE, Code.GOOD)
        return np.where(np.isfinite(values), quality, Code.BAD_NOT_A_NUMBER).astype(np.uint16)


class _GroupPoll:
    """One group's plan and schedule."""

    def __init__(self, group: Group, settings: ModbusGroupSettings, source: ModbusSourceSettings, table: TagTable) -> None:
        self.group = group
        self.stamp = settings.clock
        self.period_ns = round(settings.period_s * NS_PER_S)
        self.cycle = 0
        self.missed = 0
        self.errors = 0
        self.answered = False
        self.refusal: ModbusExceptionError | None = None
        self.stamp_ns: int | None = None
        self.stamp_mono_ns = 0
        places = [place_of(tag) for tag in settings.tags]
        numbers = table.numbers(tag.name for tag in settings.tags)
        if self.stamp is not None:
            stamp_table, address = parse_address(self.stamp.address)
            places.append(Place(stamp_table, address, WireType.UINT32, self.stamp.order))
            numbers.append(_STAMP)
        blocks = plan(places, source.max_gap, source.max_registers)
        # The stamp comes first, so that no value of the cycle can be older than it.
        blocks.sort(key=lambda block: not any(numbers[i] == _STAMP for i in block.members))
        self.reads = [_compile(block, places, numbers, source, table) for block in blocks]

    def next_slot_ns(self, wall_ns: int) -> int:
        """The next mid-period instant, strictly after `wall_ns`, in UTC."""
        half = self.period_ns // 2
        return ((wall_ns - half) // self.period_ns + 1) * self.period_ns + half


def _compile(block: Block, places: Sequence[Place], numbers: Sequence[int], source: ModbusSourceSettings, table: TagTable) -> _Read:
    members = [i for i in block.members if numbers[i] != _STAMP]
    stamp = next((i for i in block.members if numbers[i] == _STAMP), None)
    columns = members if stamp is None else [*members, stamp]
    if block.table in (Table.COIL, Table.DISCRETE):
        codec: Codec | BitCodec = BitCodec([places[i].address - block.start for i in columns])
    else:
        fields = [
            Field(p.address - block.start, _register_type(p.type), p.order or source.order, p.scale, p.offset)
            for p in (places[i] for i in columns)
        ]
        codec = Codec(fields)
    tags = [table[numbers[i]] for i in members]
    return _Read(
        block,
        codec,
        np.array([numbers[i] for i in members], np.int32),
        np.array([tag.low for tag in tags]),
        np.array([tag.high for tag in tags]),
        None if stamp is None else len(columns) - 1,
    )


def _register_type(kind: WireType) -> WireType:
    """A bool in a register is true when the register is not zero, so it is read as a number."""
    return WireType.UINT16 if kind is WireType.BOOL else kind


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
        self._polls = [_GroupPoll(by_name[f"{settings.name}/{group.name}"], group, settings, table) for group in settings.groups]
        self._queue: asyncio.Queue[Batch | Watermark | Exception] = asyncio.Queue(_QUEUE_LIMIT)
        self._tasks: list[asyncio.Task[None]] = []
        self._durations_ms: deque[float] = deque(maxlen=512)
        self._raw: dict[int, str] = {}
        self._conditions: dict[str, Condition] = {}

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
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def items(self) -> AsyncIterator[Batch | Watermark]:
        """Batches and watermarks as they come; a fault of ours in a poll is raised here, for the supervisor."""
        while True:
            item = await self._queue.get()
            if isinstance(item, Exception):
                raise item
            yield item

    async def _run(self, poll: _GroupPoll) -> None:
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

    async def _mark(self, poll: _GroupPoll, next_wall_ns: int) -> None:
        """Say how far the group has come: to its stamp, or to just before the next request."""
        if poll.stamp is None:
            await self._queue.put(Watermark(poll.group.id, next_wall_ns - 1, alive=poll.answered))
        elif poll.stamp_ns is not None:
            await self._queue.put(Watermark(poll.group.id, poll.stamp_ns, alive=poll.answered))

    async def _cycle(self, poll: _GroupPoll) -> None:
        """Read all blocks of a group. A block that is refused leaves the others alone; no answer at all ends the cycle."""
        poll.cycle += 1
        poll.answered = False
        poll.refusal = None
        started_ns = self._clock.mono_ns()
        error: TransientError | None = None
        for read in poll.reads:
            if error is None:
                requested_ns, wall_ns = self._clock.mono_ns(), self._clock.wall_ns()
                try:
                    data = await self._line.read(self._settings.unit, read.block, self._settings.timeout_ms / 1000)
                except ModbusExceptionError as refusal:
                    poll.errors += 1
                    poll.refusal = refusal
                    await self._put_bad(poll, read, refusal)
                    continue
                except TransientError as failure:
                    error = failure
                else:
                    await self._put(poll, read, data, requested_ns, wall_ns)
                    poll.answered = True
                    continue
            await self._put_bad(poll, read, error)
        if error is not None:
            poll.errors += 1
            poll.answered = False
        else:
            self._durations_ms.append((self._clock.mono_ns() - started_ns) / NS_PER_MS)
        self._note(poll, error)

    async def _put(self, poll: _GroupPoll, read: _Read, data: bytes, requested_ns: int, wall_ns: int) -> None:
        received_ns = self._clock.mono_ns()
        values = read.codec.decode(data)
        if poll.stamp is not None and read.stamp is not None:
            unit_ns = NS_PER_S if poll.stamp.unit == "s" else NS_PER_MS
            poll.stamp_ns, poll.stamp_mono_ns = int(values[read.stamp]) * unit_ns, received_ns
            values = values[: read.stamp]
        if not len(read.tags):
            return
        midpoint_ns = wall_ns + (received_ns - requested_ns) // 2
        time_ns = midpoint_ns if poll.stamp is None else poll.stamp_ns or 0
        if self._raw:
            for tag in read.tags.tolist():
                self._raw.pop(tag, None)
        times = np.full(len(values), time_ns, np.int64)
        received_wall_ns = wall_ns + received_ns - requested_ns
        await self._queue.put(
            Batch(poll.group.id, poll.cycle, requested_ns, received_ns, received_wall_ns, read.tags, values, read.quality(values), times),
        )

    async def _put_bad(self, poll: _GroupPoll, read: _Read, error: TransientError) -> None:
        """All tags of a block lose their quality at once."""
        if not len(read.tags):
            return
        now_ns, wall_ns = self._clock.mono_ns(), self._clock.wall_ns()
        time_ns = wall_ns
        if poll.stamp is not None:
            # In the source's own time, as far as we can tell: its last stamp and what has passed since.
            time_ns = (poll.stamp_ns or 0) + now_ns - poll.stamp_mono_ns
        n = len(read.tags)
        quality = np.full(n, _quality_of(error), np.uint16)
        self._raw.update(dict.fromkeys(read.tags.tolist(), error.text))
        times = np.full(n, time_ns, np.int64)
        await self._queue.put(Batch(poll.group.id, poll.cycle, now_ns, now_ns, wall_ns, read.tags, np.full(n, np.nan), quality, times))

    def _note(self, poll: _GroupPoll, error: TransientError | None) -> None:
        """Keep the conditions of the source and of this group; a condition changes only with its state."""
        self._set("unreachable", error, Priority.MEDIUM)
        if error is None:
            self._set(f"refused {poll.group.name}", poll.refusal, Priority.LOW)

    def _set(self, kind: str, error: TransientError | None, priority: Priority) -> None:
        known = self._conditions.get(kind)
        if (error is None) == (known is None or not known.active):
            return
        word = Ne107.GOOD if error is None else Ne107.FAILURE
        text, remedy = (error.text, error.remedy) if error is not None else ("", "")
        self._conditions[kind] = Condition(self.name, kind, error is not None, priority, text, remedy, word, self._clock.wall_ns())

    def conditions(self) -> Sequence[Condition]:
        """Unreachable, or refusing a group's blocks; inactive again after a good cycle."""
        return tuple(self._conditions.values())

    def status(self) -> SourceStatus:
        """State of the link and counts of the polls."""
        active = [condition for condition in self._conditions.values() if condition.active]
        text = self._line.reconnect.words() if not active or active[0].kind == "unreachable" else active[0].text
        p50, p99 = np.percentile(self._durations_ms, (50, 99)) if self._durations_ms else (0.0, 0.0)
        return SourceStatus(
            self.name,
            "modbus",
            f"{self._settings.host}:{self._settings.port} unit {self._settings.unit}",
            Ne107.FAILURE if active else Ne107.GOOD,
            text,
            active[0].remedy if active else "",
            min(group.period_s for group in self._settings.groups),
            sum(poll.cycle for poll in self._polls),
            sum(poll.missed for poll in self._polls),
            sum(poll.errors for poll in self._polls),
            self._line.reconnect.reconnects,
            cycle_p50_ms=float(p50),
            cycle_p99_ms=float(p99),
        )

    def raw_status(self, tag: int) -> str:
        """The last failure of the block that carries a tag, empty if its last read was fine."""
        return self._raw.get(tag, "")


def _quality_of(error: TransientError) -> int:
    if not isinstance(error, ModbusExceptionError) or error.is_absent:
        return Code.BAD_COMM_LOST
    return Code.BAD_CONFIGURATION if error.refuses_address else Code.BAD_DEVICE
