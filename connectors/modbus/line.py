"""One owner per physical line: all units, reads and writes behind it take turns; a write takes the next slot."""

import asyncio
import struct
from collections import deque
from dataclasses import dataclass, field

import structlog

from connectors.modbus.client import ModbusExceptionError, NoAnswerError, TcpClient
from connectors.modbus.plan import Block
from connectors.reconnect import Link, Reconnect
from gateway.core.clock import Clock, sleep_s
from gateway.core.errors import TransientError

log = structlog.get_logger(__name__)

_READ = struct.Struct(">BHH")
_WAITING_LIMIT = 64  # requests that wait per unit, and writes that wait; one more is refused
_NEVER_NS = 1 << 62


@dataclass(slots=True, eq=False)
class _Job:
    unit: int
    pdu: bytes
    timeout_s: float
    valid_until_ns: int
    repeatable: bool
    done: asyncio.Future[bytes]


@dataclass(slots=True)
class LineCounters:
    """What the line has done."""

    requests: int = 0
    errors: int = 0
    exceptions: dict[int, int] = field(default_factory=dict)


class Line:
    """Serialises everything that goes over one connection.

    Requests of each unit wait in its own bounded queue and units are served in turn; one that finds the queue full is refused. A unit that
    does not answer twice in a row is left alone for a growing pause, during which its requests fail at once and the others go on.

    Args:
        name: `host:port`, for the log.
        client: The connection; owned from now on.
        clock: For pauses and validity.
        pause_s: Rest between two requests; with one, only one request is under way.
        connect_timeout_s: Time a connection may take.
        max_in_flight: Requests under way at once. The first lost reply brings it back to 1.
    """

    def __init__(
        self,
        name: str,
        client: TcpClient,
        clock: Clock,
        *,
        pause_s: float = 0.0,
        connect_timeout_s: float = 2.0,
        max_in_flight: int = 1,
    ) -> None:
        self.name = name
        self.link = Reconnect(name, clock, cap_s=5.0)
        self.counters = LineCounters()
        self.pause_s = pause_s
        self._workers = 1 if pause_s else max_in_flight
        self._client = client
        self._clock = clock
        self._connect_timeout_s = connect_timeout_s
        self._units: dict[int, Reconnect] = {}
        self._writes: deque[_Job] = deque()
        self._reads: dict[int, deque[_Job]] = {}
        self._turn: deque[int] = deque()
        self._arrived = asyncio.Event()
        self._connecting = asyncio.Lock()
        self._closed = False
        self._busy = False
        self._serving = 0
        self._owner: asyncio.Task[None] | None = None

    @property
    def late(self) -> int:
        """Replies that came too late and were dropped."""
        return self._client.late

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn."""
        return len(self._writes) + sum(map(len, self._reads.values()))

    @property
    def max_in_flight(self) -> int:
        """Requests that may be under way at once, now."""
        return self._workers

    def calm(self, pause_s: float, max_in_flight: int) -> None:
        """Go no faster than this from now on."""
        self.pause_s = max(self.pause_s, pause_s)
        self._workers = min(self._workers, 1 if self.pause_s else max_in_flight)
        self._arrived.set()

    def lost(self, unit: int) -> bool:
        """Whether there is no use in asking the unit: the connection is down, or the unit is being left alone."""
        return self.link.link is Link.DOWN or not self._may_ask(unit)

    def words(self, unit: int) -> str:
        """State of the line, or of the unit if that is worse, in the operator's words."""
        link = self._unit(unit)
        return link.words() if self.link.link is not Link.DOWN and link.link is Link.DOWN else self.link.words()

    async def read(self, unit: int, block: Block, timeout_s: float, valid_until_ns: int = _NEVER_NS) -> bytes:
        """Data bytes of one read request.

        Raises:
            ModbusExceptionError: The server refuses.
            TransientError: No usable answer now.
        """
        request = _READ.pack(block.function, block.start, block.count)
        if self._free and valid_until_ns == _NEVER_NS:
            pdu = await self._ask_now(unit, request, timeout_s)
        else:
            pdu = await self._enqueue(unit, request, timeout_s, valid_until_ns, write=False)
        if len(pdu) != block.data_bytes + 2 or pdu[1] != block.data_bytes:
            raise TransientError(f"{len(pdu) - 2} data bytes came, {block.data_bytes} were asked for", remedy="check the device's map")
        return pdu[2:]

    async def write(self, unit: int, start: int, data: bytes, timeout_s: float, valid_until_ns: int = _NEVER_NS) -> None:
        """Write holding registers in one request (function 16, or 6 for a single one).

        Raises:
            ModbusExceptionError: The server refuses.
            TransientError: Not written, or not known to be. It is never sent after `valid_until_ns` (monotonic), and never sent twice.
        """
        count = len(data) // 2
        if count == 1:
            request = struct.pack(">BH", 6, start) + data
            expected = request
        else:
            request = struct.pack(">BHHB", 16, start, count, len(data)) + data
            expected = request[:5]
        pdu = await self._enqueue(unit, request, timeout_s, valid_until_ns, write=True)
        if pdu != expected:
            raise TransientError("the device echoed another write", remedy="check that no other master shares the connection")

    @property
    def _free(self) -> bool:
        """Whether nobody waits and nothing is under way on a line that serves one request at a time and without rests."""
        return not (self._busy or self._turn or self._writes or self._closed or self.pause_s) and self._workers == 1

    async def _ask_now(self, unit: int, pdu: bytes, timeout_s: float) -> bytes:
        """A read that need not queue, so it need not change tasks either (a third of its cost). Its caller owns the line meanwhile."""
        self._busy = True
        try:
            return await self._ask(unit, pdu, timeout_s)
        finally:
            self._busy = False
            if self._turn or self._writes:
                self._arrived.set()

    async def _enqueue(self, unit: int, pdu: bytes, timeout_s: float, valid_until_ns: int, *, write: bool) -> bytes:
        if self._closed:
            raise _closed()
        job = _Job(unit, pdu, timeout_s, valid_until_ns, not write, asyncio.get_running_loop().create_future())
        queue = self._writes if write else self._reads.setdefault(unit, deque())
        if len(queue) >= _WAITING_LIMIT:
            raise TransientError(f"{len(queue)} requests wait on {self.name} unit {unit}", remedy="poll more slowly or raise max_gap")
        if not write and not queue:
            self._turn.append(unit)
        queue.append(job)
        self._arrived.set()
        return await job.done

    def _next(self) -> _Job | None:
        if self._writes:
            return self._writes.popleft()
        if not self._turn:
            return None
        unit = self._turn.popleft()
        queue = self._reads[unit]
        job = queue.popleft()
        if queue:
            self._turn.append(unit)
        return job

    def start(self) -> None:
        """Begin to serve."""
        self._owner = asyncio.create_task(self._run(), name=f"line {self.name}")

    async def stop(self) -> None:
        """Serve no more; whoever still waits is told. Safe at any time."""
        self._closed = True
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.cancel()
            await asyncio.gather(owner, return_exceptions=True)
        self._client.close()
        while (job := self._next()) is not None:
            _settle(job, _closed())

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as workers:
            for number in range(self._workers):
                workers.create_task(self._work(number), name=f"line {self.name} {number}")

    async def _work(self, number: int) -> None:
        while number < self._workers:
            # Workers of one line may be busy side by side; a read that did not queue has it for itself.
            job = None if self._busy and self._serving == 0 else self._next()
            if job is None:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            if not job.done.done():
                await self._serve(job)
                if self.pause_s:
                    await sleep_s(self._clock, self.pause_s)

    async def _serve(self, job: _Job) -> None:
        self._serving += 1
        self._busy = True
        try:
            answer = await self._ask(job.unit, job.pdu, job.timeout_s, job.valid_until_ns, repeatable=job.repeatable)
        except asyncio.CancelledError:
            _settle(job, _closed())
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours goes to whoever asked, and the line lives on for the others
            _settle(job, error)
        else:
            if not job.done.done():
                job.done.set_result(answer)
        finally:
            self._serving -= 1
            self._busy = self._serving > 0

    async def _ask(self, number: int, pdu: bytes, timeout_s: float, valid_until_ns: int = _NEVER_NS, *, repeatable: bool = True) -> bytes:
        """One request; a read that found the connection closed meanwhile is sent once more on a new one."""
        unit = self._unit(number)
        if unit.link is Link.DOWN and not unit.due:
            raise TransientError(unit.reason, remedy=unit.remedy)
        for last in (False, True):
            fresh = not self._client.connected
            if fresh:
                await self._connect()
            if valid_until_ns != _NEVER_NS and self._clock.mono_ns() >= valid_until_ns:
                raise TransientError("too late to send", remedy="look at the load of the line")
            self.counters.requests += 1
            try:
                answer = await self._client.request(number, pdu, timeout_s)
            except (ModbusExceptionError, NoAnswerError) as error:
                self._judge(unit, error)
                raise
            except TransientError as error:
                self.counters.errors += 1
                # A connection that had been good may have been closed for idleness; one that never answered is a fault.
                if fresh:
                    self.link.down(error.text, error.remedy)
                else:
                    self.link.closed()
                if fresh or last or not repeatable:
                    raise
            else:
                if self.link.link is not Link.UP:
                    self.link.up()
                if unit.link is not Link.UP:
                    unit.up()
                return answer
        raise AssertionError  # the second round returns or raises

    def _judge(self, unit: Reconnect, error: ModbusExceptionError | NoAnswerError) -> None:
        """What a failed request says about its unit; a lost reply also ends pipelining, which the device may not bear."""
        if isinstance(error, ModbusExceptionError):
            codes = self.counters.exceptions
            codes[error.exception_code] = codes.get(error.exception_code, 0) + 1
            self.link.up()
            if not error.is_absent:
                unit.up()
                return
        else:
            self.counters.errors += 1
        unit.down(error.text, error.remedy)
        if self._workers > 1:
            self._workers = 1
            self._arrived.set()
            log.warning("line.one_at_a_time", line=self.name, reason=error.text)

    def _unit(self, unit: int) -> Reconnect:
        link = self._units.get(unit)
        if link is None:
            link = self._units[unit] = Reconnect(f"{self.name} unit {unit}", self._clock, free_tries=1)
        return link

    def _may_ask(self, unit: int) -> bool:
        link = self._unit(unit)
        return link.link is not Link.DOWN or link.due

    def _still_open(self) -> None:
        if self._closed:
            self._client.close()
            raise _closed()

    async def _connect(self) -> None:
        async with self._connecting:
            self._still_open()
            if self._client.connected:
                return
            self.link.closed()
            if not self.link.due:
                raise TransientError(self.link.reason or Link.DOWN.value, remedy=self.link.remedy)
            try:
                await self._client.connect(self._connect_timeout_s)
            except TransientError as error:
                self.counters.errors += 1
                self.link.down(error.text, error.remedy)
                raise
            self._still_open()


def _closed() -> TransientError:
    return TransientError("the line is closed", remedy="the gateway is stopping")


def _settle(job: _Job, error: Exception) -> None:
    if not job.done.done():
        job.done.set_exception(error)
