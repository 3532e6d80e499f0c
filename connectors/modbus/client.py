"""Modbus TCP client: a transaction id finds its future, a lost connection fails all of them at once, late replies are dropped by id."""

import asyncio
import struct

from gateway.core.clock import NS_PER_S, Clock
from gateway.core.errors import TransientError

_HEADER = struct.Struct(">HHHB")
_MAX_LENGTH = 254
_MASK = 0xFFFF

EXCEPTIONS = {
    1: "illegal function",
    2: "illegal data address",
    3: "illegal data value",
    4: "server device failure",
    5: "acknowledge, still working",
    6: "server device busy",
    7: "negative acknowledge",
    8: "memory parity error",
    10: "gateway path unavailable",
    11: "gateway target device failed to respond",
}


class ModbusExceptionError(TransientError):
    """The server answered with an exception code.

    Args:
        exception_code: As received.
    """

    def __init__(self, exception_code: int) -> None:
        words = EXCEPTIONS.get(exception_code, "unknown exception")
        super().__init__(f"exception {exception_code}: {words}", remedy=_REMEDIES.get(exception_code, "look at the device"))
        self.exception_code = exception_code

    @property
    def refuses_address(self) -> bool:
        """Whether asking again in the same way is pointless until somebody changes the map."""
        return self.exception_code in (1, 2, 3)

    @property
    def is_absent(self) -> bool:
        """Whether a gateway says that the device behind it is not there."""
        return self.exception_code in (10, 11)


_REMEDIES = {
    1: "the device does not know this function; check the table of the address",
    2: "check the address and the number of registers against the device's map",
    3: "check the number of registers against the device's map",
    6: "poll more slowly",
    10: "check the serial side of the gateway",
    11: "check power and wiring of the device behind the gateway",
}


class _Frames(asyncio.Protocol):
    """Cuts the stream into frames and hands them to their requests."""

    def __init__(self) -> None:
        self.pending: dict[int, asyncio.Future[bytes]] = {}
        self.transport: asyncio.Transport | None = None
        self.late = 0
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what create_connection makes
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 8:
            transaction, protocol, length, _ = _HEADER.unpack_from(buffer)
            if protocol or not 3 <= length <= _MAX_LENGTH:
                self.fail("the answer is no Modbus TCP frame")
                return
            if len(buffer) < 6 + length:
                return
            frame = bytes(buffer[6 : 6 + length])
            del buffer[: 6 + length]
            future = self.pending.pop(transaction, None)
            if future is None or future.done():
                self.late += 1
            else:
                future.set_result(frame)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.fail(str(exc) if exc else "the device closed the connection")

    def fail(self, text: str) -> None:
        """End all requests, and the connection with them."""
        pending, self.pending = self.pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(TransientError(text, remedy="check the device and the network"))
        if self.transport is not None:
            self.transport.abort()
            self.transport = None


class TcpClient:
    """One Modbus TCP connection. Not for concurrent callers: a line owns it.

    Args:
        host: Host name or address.
        port: TCP port.
        clock: For time-outs.
    """

    def __init__(self, host: str, port: int, clock: Clock) -> None:
        self._host = host
        self._port = port
        self._clock = clock
        self._frames: _Frames | None = None
        self._transaction = 0
        self._late = 0

    @property
    def connected(self) -> bool:
        """Whether a request can be sent."""
        return self._frames is not None and self._frames.transport is not None

    @property
    def late(self) -> int:
        """Replies that came after their request had been given up."""
        return self._late + (self._frames.late if self._frames else 0)

    async def connect(self, timeout_s: float) -> None:
        """Open the connection.

        Raises:
            TransientError: It cannot be opened now.
        """
        self.close()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, self._frames = await loop.create_connection(_Frames, self._host, self._port)
        except TimeoutError as error:
            raise TransientError(f"no connection within {timeout_s:g} s", remedy="check power, cable and address") from error
        except OSError as error:
            text = error.strerror or str(error)
            raise TransientError(f"no connection ({text.lower()})", remedy="check power, cable, address and port") from error

    async def request(self, unit: int, pdu: bytes, timeout_s: float) -> bytes:
        """Send one request and return the response PDU.

        Raises:
            ModbusExceptionError: The server answered with an exception.
            TransientError: No answer in time, a broken one, or no connection; after a time-out the connection is closed, so that a late
                answer cannot be taken for the next one.
        """
        frames = self._frames
        if frames is None or frames.transport is None:
            raise TransientError("not connected", remedy="check the device and the network")
        self._transaction = (self._transaction + 1) & _MASK
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        frames.pending[self._transaction] = future
        frames.transport.write(_HEADER.pack(self._transaction, 0, len(pdu) + 1, unit) + pdu)
        try:
            async with asyncio.timeout(timeout_s):
                frame = await future
        except TimeoutError as error:
            frames.fail("no answer")
            raise TransientError(
                f"no answer within {timeout_s * 1000:g} ms", remedy="check the device; raise timeout_ms if it is slow"
            ) from error
        except asyncio.CancelledError:
            frames.pending.pop(self._transaction, None)
            raise
        return self._checked(unit, pdu[0], frame)

    def _checked(self, unit: int, function: int, frame: bytes) -> bytes:
        if frame[0] != unit and unit not in (0, 255):
            raise self._broken(f"unit {frame[0]} answered for unit {unit}")
        if frame[1] == function | 0x80:
            raise ModbusExceptionError(frame[2] if len(frame) > 2 else 0)
        if frame[1] != function:
            raise self._broken(f"function {frame[1]} answered for function {function}")
        return frame[1:]

    def _broken(self, text: str) -> TransientError:
        if self._frames is not None:
            self._frames.fail(text)
        return TransientError(text, remedy="check that no other master shares the connection")

    def close(self) -> None:
        """Close at once; safe at any time."""
        if self._frames is not None:
            self._late += self._frames.late
            self._frames.fail("closed")
            self._frames = None


def left_s(clock: Clock, deadline_mono_ns: int) -> float:
    """Seconds left until a deadline, at least 0."""
    return max((deadline_mono_ns - clock.mono_ns()) / NS_PER_S, 0.0)
