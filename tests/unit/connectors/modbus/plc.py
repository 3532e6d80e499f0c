"""A small Modbus TCP server with faults on demand, and what the tests of the connector share."""

import asyncio
import struct
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from connectors.modbus.client import TcpClient
from connectors.modbus.line import Line
from connectors.modbus.settings import ModbusSourceSettings, WireType
from gateway.core.batch import Batch, Watermark
from gateway.core.clock import Clock
from gateway.core.tags import DataType, Tag, TagTable

DEADLINE_S = 10.0
_TABLES = {1: "coil", 2: "discrete", 3: "holding", 4: "input"}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    transaction: int
    unit: int
    pdu: bytes

    @property
    def function(self) -> int:
        return self.pdu[0]

    @property
    def span(self) -> tuple[int, int, int]:
        """Function, first address, count."""
        start, count = struct.unpack_from(">HH", self.pdu, 1)
        return self.function, start, count


Fault = Callable[[Asked, bytes], bytes | None]


class CutError(Exception):
    """Raised by a fault: the connection is to be closed instead of an answer."""


@dataclass(slots=True, eq=False)
class Unit:
    """Contents of one unit: whatever was not set is 0; an address in `refused` is answered with that exception code."""

    coil: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    discrete: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    holding: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    input: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    refused: dict[tuple[str, int], int] = field(default_factory=dict)

    def put(self, table: str, start: int, words: list[int]) -> None:
        getattr(self, table).update(enumerate(words, start))


class Plc:
    """The server; `fault` sees every answer before it leaves and may change it, swallow it (None) or cut the connection."""

    def __init__(self, *units: int) -> None:
        self.units: dict[int, Unit] = {unit: Unit() for unit in units or (1,)}
        self.fault: Fault | None = None
        self.asked: list[Asked] = []
        self.connections = 0
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()
        await until(lambda: not self._writers)

    def cut(self) -> None:
        """Close all connections."""
        for writer in self._writers:
            writer.transport.abort()

    def send(self, data: bytes) -> None:
        """Send bytes nobody asked for to everybody."""
        for writer in self._writers:
            writer.write(data)

    @property
    def open(self) -> int:
        return len(self._writers)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        try:
            while True:
                transaction, _, length, unit = struct.unpack(">HHHB", await reader.readexactly(7))
                asked = Asked(transaction, unit, await reader.readexactly(length - 1))
                self.asked.append(asked)
                answer: bytes | None = frame(transaction, unit, self._answer(asked))
                if self.fault is not None:
                    answer = self.fault(asked, answer or b"")
                if answer is not None:
                    writer.write(answer)
        except (CutError, asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    def _answer(self, asked: Asked) -> bytes:
        unit = self.units.get(asked.unit)
        if unit is None:
            return bytes((asked.function | 0x80, 11))
        function, start, count = asked.span
        if function == 6:
            unit.holding[start] = count
            return asked.pdu
        if function == 16:
            unit.put("holding", start, list(struct.unpack(f">{count}H", asked.pdu[6:])))
            return asked.pdu[:5]
        name = _TABLES[function]
        code = next((unit.refused[name, a] for a in range(start, start + count) if (name, a) in unit.refused), 0)
        if code:
            return bytes((function | 0x80, code))
        table: dict[int, int] = getattr(unit, name)
        values = [table[address] for address in range(start, start + count)]
        if function in (1, 2):
            data = np.packbits(np.array(values, np.uint8), bitorder="little").tobytes()
        else:
            data = struct.pack(f">{count}H", *values)
        return bytes((function, len(data))) + data


def frame(transaction: int, unit: int, pdu: bytes) -> bytes:
    """A response as it goes over the wire."""
    return struct.pack(">HHHB", transaction, 0, len(pdu) + 1, unit) + pdu


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something a real peer does."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - a socket is the event
            await asyncio.sleep(0.001)


def open_files() -> int:
    """Descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def settings_of(port: int, groups: list[dict[str, Any]], **more: Any) -> ModbusSourceSettings:  # noqa: ANN401 - YAML
    """A source on this machine."""
    raw = {"name": "plc", "type": "modbus", "host": "127.0.0.1", "port": port, "timeout_ms": 50, "groups": groups, **more}
    return ModbusSourceSettings.model_validate(raw)


def table_of(*sources: ModbusSourceSettings) -> TagTable:
    """Their groups and tags, numbered."""
    table = TagTable()
    for source in sources:
        for group in source.groups:
            domain = "gateway" if group.clock is None else group.clock.name
            number = table.add_group(f"{source.name}/{group.name}", source.name, group.period_s, domain=domain).id
            for tag in group.tags:
                low = float("-inf") if tag.low is None else tag.low
                high = float("inf") if tag.high is None else tag.high
                kind = DataType.BOOL if tag.type is WireType.BOOL else DataType.FLOAT32
                table.add(Tag(tag.name, tag.unit, kind, number, low, high))
    return table


@asynccontextmanager
async def line_to(plc: Plc, clock: Clock, *, pause_s: float = 0.0, max_in_flight: int = 1) -> AsyncIterator[Line]:
    """A running line."""
    line = Line(f"127.0.0.1:{plc.port}", TcpClient("127.0.0.1", plc.port), clock, pause_s=pause_s, max_in_flight=max_in_flight)
    line.start()
    try:
        yield line
    finally:
        await line.stop()


class Reader:
    """Takes items of a source as they come, keeping the latest value and quality of each tag."""

    def __init__(self, items: AsyncIterator[Batch | Watermark], table: TagTable) -> None:
        self._items = items
        self._table = table
        self.values: dict[str, float] = {}
        self.quality: dict[str, int] = {}
        self.batches: list[Batch] = []
        self.marks: list[Watermark] = []

    async def cycle(self, cycles: int = 1) -> None:
        """Take everything up to and with the next watermark."""
        seen = len(self.marks)
        while len(self.marks) < seen + cycles:
            item = await asyncio.wait_for(anext(self._items), DEADLINE_S)
            if isinstance(item, Watermark):
                self.marks.append(item)
                continue
            self.batches.append(item)
            names = [self._table[int(number)].name for number in item.tag]
            self.values.update(zip(names, item.value.tolist(), strict=True))
            self.quality.update(zip(names, item.quality.tolist(), strict=True))


def qualities(reader: Reader, *names: str) -> set[int]:
    """Qualities of the named tags, of all if none is named."""
    return {reader.quality[name] for name in names or reader.quality}
