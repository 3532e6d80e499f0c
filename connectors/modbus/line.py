"""One owner per physical line: all units, reads and writes behind it take turns; a write takes the next slot."""

import asyncio
import struct
from collections import deque
from dataclasses import dataclass, field

from connectors.modbus.client import ModbusExceptionError, TcpClient
from connectors.modbus.plan import Block
from connectors.reconnect import Link, Reconnect
from gateway.core.clock import Clock, sleep_s
from gateway.core.errors import TransientError

_READ = struct.Struct(">BHH")
_WAITING_LIMIT = 256


@dataclass(slots=True, eq=False)
class _Job:
    unit: int
    pdu: bytes
    timeout_s: float
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

    Requests of each unit wait in its own queue and units are served in turn. A request beyond `_WAITING_LIMIT` is refused.

    Args:
        name: `host:port`, for the log.
        client: The connection; owned from now on.
        clock: For pauses.
        pause_s: Rest between two requests.
        connect_timeout_s: Time a connection may take.
    """

    def __init__(self, name: str, client: TcpClient, clock: Clock, *, pause_s: float = 0.0, connect_timeout_s: float = 2.0) -> None:
        self.name = name
        self.reconnect = Reconnect(name, clock)
        self.counters = LineCounters()
        self._client = client
        self._clock = clock
        self._pause_s = pause_s
        self._connect_timeout_s = connect_timeout_s
        self._writes: deque[_Job] = deque()
        self._reads: dict[int, deque[_Job]] = {}
        self._turn: deque[int] = deque()
        self._waiting = 0
        self._arrived = asyncio.Event()

    @property
    def late(self) -> int:
        """Replies that came too late and were dropped."""
        return self._client.late

    async def read(self, unit: int, block: Block, timeout_s: float) -> bytes:
        """Data bytes of one read request.

        Raises:
            ModbusExceptionError: The server refuses.
            TransientError: No usable answer now.
        """
        pdu = await self._enqueue(unit, _READ.pack(block.function, block.start, block.count), timeout_s, write=False)
        if len(pdu) != block.data_bytes + 2 or pdu[1] != block.data_bytes:
            raise TransientError(f"{len(pdu) - 2} data bytes came, {block.data_bytes} were asked for", remedy="check the device's map")
        return pdu[2:]

    async def write(self, unit: int, start: int, data: bytes, timeout_s: float) -> None:
        """Write holding registers in one request (function 16, or 6 for a single one).

        Raises:
            ModbusExceptionError: The server refuses.
            TransientError: Not written, or not known to be.
        """
        count = len(data) // 2
        if count == 1:
            request = struct.pack(">BH", 6, start) + data
            expected = request
        else:
            request = struct.pack(">BHHB", 16, start, count, len(data)) + data
            expected = request[:5]
        pdu = await self._enqueue(unit, request, timeout_s, write=True)
        if pdu != expected:
            raise TransientError("the device echoed another write", remedy="check that no other master shares the connection")

    async def _enqueue(self, unit: int, pdu: bytes, timeout_s: float, *, write: bool) -> bytes:
        if self._waiting >= _WAITING_LIMIT:
            raise TransientError(f"{self._waiting} requests wait on {self.name}", remedy="poll more slowly or raise max_gap")
        job = _Job(unit, pdu, timeout_s, not write, asyncio.get_running_loop().create_future())
        if write:
            self._writes.append(job)
        else:
            queue = self._reads.setdefault(unit, deque())
            if unit not in self._turn:
                self._turn.append(unit)
            queue.append(job)
        self._waiting += 1
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

    async def run(self) -> None:
        """Serve until cancelled; whoever still waits then is told."""
        try:
            while True:
                job = self._next()
                if job is None:
                    self._arrived.clear()
                    await self._arrived.wait()
                    continue
                self._waiting -= 1
                if not job.done.done():
                    await self._serve(job)
                if self._pause_s:
                    await sleep_s(self._clock, self._pause_s)
        finally:
            self._client.close()
            while (job := self._next()) is not None:
                self._waiting -= 1
                if not job.done.done():
                    job.done.set_exception(TransientError("the line is closed", remedy="the gateway is stopping"))

    async def _serve(self, job: _Job) -> None:
        try:
            answer = await self._ask(job)
        except ModbusExceptionError as error:
            codes = self.counters.exceptions
            codes[error.exception_code] = codes.get(error.exception_code, 0) + 1
            self._settle(job, error)
        except TransientError as error:
            self.counters.errors += 1
            self._settle(job, error)
        except asyncio.CancelledError:
            self._settle(job, TransientError("the line is closed", remedy="the gateway is stopping"))
            raise
        else:
            if not job.done.done():
                job.done.set_result(answer)

    @staticmethod
    def _settle(job: _Job, error: Exception) -> None:
        if not job.done.done():
            job.done.set_exception(error)

    async def _ask(self, job: _Job) -> bytes:
        """One request; a read that found the connection closed meanwhile is sent once more on a new one."""
        for last in (False, True):
            fresh = not self._client.connected
            if fresh:
                await self._connect()
            self.counters.requests += 1
            try:
                answer = await self._client.request(job.unit, job.pdu, job.timeout_s)
            except ModbusExceptionError:
                self.reconnect.up()
                raise
            except TransientError as error:
                if fresh or last or not job.repeatable or "no answer" in error.text:
                    self.reconnect.down(error.text, error.remedy)
                    raise
                self.reconnect.closed()
            else:
                self.reconnect.up()
                return answer
        raise AssertionError  # the second round returns or raises

    async def _connect(self) -> None:
        self.reconnect.closed()
        if not self.reconnect.due:
            raise TransientError(self.reconnect.reason or Link.DOWN.value, remedy=self.reconnect.remedy)
        try:
            await self._client.connect(self._connect_timeout_s)
        except TransientError as error:
            self.reconnect.down(error.text, error.remedy)
            raise
