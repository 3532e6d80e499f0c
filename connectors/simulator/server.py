"""A small Modbus TCP server over four tables in memory."""

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, cast

import numpy as np
import numpy.typing as npt

from gateway.core.errors import ConfigError

Registers = npt.NDArray[np.uint16]

_HEADER = struct.Struct(">HHHB")
_SPAN = struct.Struct(">HH")


@dataclass(slots=True)
class Tables:
    """The data of one unit. 65,536 of each."""

    holding: Registers = field(default_factory=lambda: np.zeros(65536, np.uint16))
    input: Registers = field(default_factory=lambda: np.zeros(65536, np.uint16))
    coil: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(65536, np.bool_))
    discrete: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(65536, np.bool_))

    def put_float32(self, address: int, values: npt.NDArray[np.float32]) -> None:
        """Lay float32 values into input registers from an address on, ABCD."""
        words = np.ascontiguousarray(values, ">f4").view(">u2").astype(np.uint16)
        self.input[address : address + len(words)] = words

    def put_uint32(self, address: int, value: int) -> None:
        """Lay a uint32 into two input registers, ABCD."""
        self.input[address], self.input[address + 1] = value >> 16 & 0xFFFF, value & 0xFFFF


class ModbusServer:
    """Serves units over TCP. Functions 1-6, 15 and 16.

    Args:
        units: Tables by unit id.
        host: Address to listen on.
        port: TCP port; 0 takes a free one, and so does a port in use.
        before: Called before each request with the unit; its result, if not 0, is the exception code to answer with, -1: do not answer.
    """

    def __init__(
        self, units: dict[int, Tables], *, host: str = "127.0.0.1", port: int = 0, before: Callable[[int, int], int] | None = None
    ) -> None:
        self.units = units
        self.host = host
        self.port = port
        self.requests = 0
        self._before = before
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Transport] = set()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Connection(self), self.host, self.port)
        except OSError as error:
            if not self.port:
                raise ConfigError(f"cannot listen on {self.host}: {error.strerror}", remedy="choose another --host") from error
            self._server = await loop.create_server(lambda: _Connection(self), self.host, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._server is not None:
            self._server.close()
        for client in list(self._clients):
            client.abort()
        await asyncio.sleep(0)

    def answer(self, unit: int, pdu: bytes) -> bytes | None:
        """The response to a request, None for silence."""
        self.requests += 1
        verdict = self._before(unit, pdu[0]) if self._before else 0
        if verdict < 0:
            return None
        tables = self.units.get(unit)
        if tables is None:
            return bytes((pdu[0] | 0x80, 11))
        if verdict:
            return bytes((pdu[0] | 0x80, verdict))
        try:
            return _FUNCTIONS[pdu[0]](tables, pdu)
        except KeyError:
            return bytes((pdu[0] | 0x80, 1))
        except _RefusedError as refusal:
            return bytes((pdu[0] | 0x80, refusal.code))
        except (struct.error, IndexError, ValueError):
            return bytes((pdu[0] | 0x80, 3))


class _RefusedError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _Connection(asyncio.Protocol):
    def __init__(self, server: ModbusServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is one in all but name.
        self._transport = cast("asyncio.Transport", transport)
        self._server._clients.add(self._transport)  # noqa: SLF001 - one class in two parts

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        if self._transport is not None:
            self._server._clients.discard(self._transport)  # noqa: SLF001 - one class in two parts

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 8:
            transaction, protocol, length, unit = _HEADER.unpack_from(buffer)
            if protocol or not 2 <= length <= 260:
                if self._transport is not None:
                    self._transport.abort()
                return
            if len(buffer) < 6 + length:
                return
            pdu = bytes(buffer[7 : 6 + length])
            del buffer[: 6 + length]
            answer = self._server.answer(unit, pdu)
            if answer is not None and self._transport is not None:
                self._transport.write(_HEADER.pack(transaction, 0, len(answer) + 1, unit) + answer)


def _span(pdu: bytes, limit: int) -> tuple[int, int]:
    start, count = _SPAN.unpack_from(pdu, 1)
    if not 1 <= count <= limit:
        raise _RefusedError(3)
    if start + count > 65536:
        raise _RefusedError(2)
    return start, count


def _read_bits(column: npt.NDArray[np.bool_], pdu: bytes) -> bytes:
    start, count = _span(pdu, 2000)
    data = np.packbits(column[start : start + count], bitorder="little").tobytes()
    return bytes((pdu[0], len(data))) + data


def _read_registers(column: Registers, pdu: bytes) -> bytes:
    start, count = _span(pdu, 125)
    return bytes((pdu[0], count * 2)) + column[start : start + count].astype(">u2").tobytes()


def _write_coil(tables: Tables, pdu: bytes) -> bytes:
    address, value = _SPAN.unpack_from(pdu, 1)
    tables.coil[address] = value == 0xFF00
    return pdu[:5]


def _write_register(tables: Tables, pdu: bytes) -> bytes:
    address, value = _SPAN.unpack_from(pdu, 1)
    tables.holding[address] = value
    return pdu[:5]


def _write_coils(tables: Tables, pdu: bytes) -> bytes:
    start, count = _span(pdu, 1968)
    bits = np.unpackbits(np.frombuffer(pdu[6:], np.uint8), bitorder="little")[:count]
    tables.coil[start : start + count] = bits.astype(np.bool_)
    return pdu[:5]


def _write_registers(tables: Tables, pdu: bytes) -> bytes:
    start, count = _span(pdu, 123)
    tables.holding[start : start + count] = np.frombuffer(pdu[6 : 6 + 2 * count], ">u2")
    return pdu[:5]


_FUNCTIONS: dict[int, Callable[[Tables, bytes], bytes]] = {
    1: lambda tables, pdu: _read_bits(tables.coil, pdu),
    2: lambda tables, pdu: _read_bits(tables.discrete, pdu),
    3: lambda tables, pdu: _read_registers(tables.holding, pdu),
    4: lambda tables, pdu: _read_registers(tables.input, pdu),
    5: _write_coil,
    6: _write_register,
    15: _write_coils,
    16: _write_registers,
}
