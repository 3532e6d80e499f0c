"""A block of holding registers that takes predictions; the map is in README.md beside this file."""

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from connectors.modbus.client import ModbusExceptionError
from connectors.modbus.codec import Codec, Field
from connectors.modbus.line import Line
from connectors.modbus.plan import Block
from connectors.modbus.settings import ModbusSourceSettings, ModbusTargetSettings, Table, WireType, parse_address
from gateway.core.clock import NS_PER_S, Clock
from gateway.core.errors import ConfigError, PermanentError, TransientError
from gateway.core.prediction import OutputSpec
from gateway.core.protocols import Words

HEADER = (
    ("heartbeat", 0, WireType.UINT16),
    ("quality", 1, WireType.UINT16),
    ("sequence", 2, WireType.UINT32),
    ("age_ms", 4, WireType.UINT32),
    ("latency_ms", 6, WireType.FLOAT32),
    ("loop_ms", 8, WireType.FLOAT32),
)
HEADER_WORDS = 10
_WRITE_LIMIT = 123  # registers of one function 16 request


def block_words(outputs: int) -> int:
    """Registers a block with that many outputs takes."""
    return HEADER_WORDS + 2 * outputs


class ModbusTarget:
    """Satisfies `Target`. Made by `ModbusConnector.target`.

    Args:
        name: As configured.
        settings: As checked.
        source: Whose line and unit it is written through.
        outputs: Values behind the header, in this order.
        line: Shared with the source.
        clock: For deadlines.

    Raises:
        ConfigError: More outputs than one write request holds.
    """

    def __init__(
        self,
        name: str,
        settings: ModbusTargetSettings,
        source: ModbusSourceSettings,
        outputs: Sequence[OutputSpec],
        line: Line,
        clock: Clock,
    ) -> None:
        self._name = name
        self._start = parse_address(settings.address)[1]
        self._unit = source.unit
        self._timeout_s = source.timeout_ms / 1000
        self._line = line
        self._clock = clock
        if block_words(len(outputs)) > _WRITE_LIMIT:
            most = (_WRITE_LIMIT - HEADER_WORDS) // 2
            raise ConfigError(f"{len(outputs)} outputs do not fit one write", remedy=f"at most {most} per target", component=name)
        values = [(f"value:{spec.name}", HEADER_WORDS + 2 * i, WireType.FLOAT32) for i, spec in enumerate(outputs)]
        self._places = {field: (offset, kind.words) for field, offset, kind in (*HEADER, *values)}
        self._codecs = {field: Codec([Field(0, kind, settings.order)]) for field, _, kind in (*HEADER, *values)}

    @property
    def name(self) -> str:
        """As configured."""
        return self._name

    @property
    def fields(self) -> frozenset[str]:
        """All fields of the block."""
        return frozenset(self._places)

    def encode(self, values: Mapping[str, float]) -> Words:
        """Raw registers of each field.

        Raises:
            DataError: A value does not fit its field.
        """
        words: dict[str, tuple[int, ...]] = {}
        for field, value in values.items():
            data = self._codecs[field].encode([value])
            words[field] = struct.unpack(f">{len(data) // 2}H", data)
        return words

    async def write(self, words: Words, valid_until_mono_ns: int) -> None:
        """Write the fields; neighbours go in one request.

        Raises:
            TransientError: Not written in time, or not known to be.
            PermanentError: The device refuses the address or the function.
        """
        async with self._within(valid_until_mono_ns, "not known to be written in time"):
            for start, data in self._runs(words):
                await self._line.write(self._unit, start, data, self._timeout_s, valid_until_mono_ns)

    async def read_back(self, fields: Sequence[str], valid_until_mono_ns: int) -> Words:
        """What stands in the block now.

        Raises:
            TransientError: No answer in time.
            PermanentError: The device refuses to be read.
        """
        first = min(self._places[field][0] for field in fields)
        last = max(sum(self._places[field]) for field in fields)
        block = Block(Table.HOLDING, self._start + first, last - first, ())
        async with self._within(valid_until_mono_ns, "not read back in time"):
            data = await self._line.read(self._unit, block, self._timeout_s, valid_until_mono_ns)
        registers = struct.unpack(f">{len(data) // 2}H", data)
        places = {field: self._places[field] for field in fields}
        return {field: registers[place - first : place - first + size] for field, (place, size) in places.items()}

    @asynccontextmanager
    async def _within(self, valid_until_ns: int, text: str) -> AsyncIterator[None]:
        """The caller waits no longer than that; what the line has sent by then it sees through on its own."""
        try:
            async with asyncio.timeout((valid_until_ns - self._clock.mono_ns()) / NS_PER_S):
                yield
        except TimeoutError as error:
            raise TransientError(text, remedy="look at the load of the line") from error
        except ModbusExceptionError as error:
            raise _lasting(error) from error

    def _runs(self, words: Words) -> list[tuple[int, bytes]]:
        """Start address and register bytes of each run of neighbouring fields."""
        runs: list[tuple[int, bytes]] = []
        for field in sorted(words, key=lambda field: self._places[field]):
            offset = self._places[field][0]
            data = struct.pack(f">{len(words[field])}H", *words[field])
            if runs and runs[-1][0] + len(runs[-1][1]) // 2 == self._start + offset:
                runs[-1] = (runs[-1][0], runs[-1][1] + data)
            else:
                runs.append((self._start + offset, data))
        return runs


def _lasting(error: ModbusExceptionError) -> TransientError | PermanentError:
    """A refused address stays refused until somebody changes something."""
    return PermanentError(error.text, remedy=error.remedy) if error.refuses_address else error
