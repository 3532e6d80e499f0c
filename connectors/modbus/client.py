"""Modbus TCP client: a transaction id finds its future, a lost connection fails all of them at once, late replies are dropped by id."""

import asyncio
import os
import struct
from typing import cast

from gateway.core.errors import TransientError

_HEADER = struct.Struct(">HHHB")
_MAX_LENGTH = 254
_MASK = 0xFFFF
_SILENT_LIMIT = 2  # time-outs in a row, with not a single frame between, after which the connection itself is taken for dead

EXCEPTIONS = {
    1: "illegal function",
    2: "illegal data address",
    3: "illegal data value",
    4: "server device failure",
    5: "acknowledge, still working",
    6: "server device busy",
    7: "negative acknowledge",
    8: "memory parity error",
    9: "reserved exception code",
    10: "gateway path unavailable",
    11: "gateway target device failed to respond",
}
_REMEDIES = {
    1: "the device does not know this function; check the table of the address",
    2: "check the address and the number of registers against the device's map",
    3: "check the number of registers against the device's map",
    4: "look at the device's own diagnosis",
    5: "poll more slowly",
    6: "poll more slowly",
    10: "check the serial side of the gateway",
    11: "check power and wiring of the device behind the gateway",
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


class NoAnswerError(TransientError):
    """The unit that was asked did not answer in time, or answered something else; other units on the line may be well."""


class _Frames(asyncio.Protocol):
    """Cuts the stream into frames and hands them to their requests."""

    def __init__(self) -> None:
        self.pending: dict[int, asyncio.Future[bytes]] = {}
        self.transport: asyncio.Transport | None = None
        self.late = 0
        self._buffer = bytearray()
        self._silent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is one in all but name.
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _HEADER.size:
            transaction, protocol, length, _ = _HEADER.unpack_from(buffer)
            if protocol or not 3 <= length <= _MAX_LENGTH:
                self.fail("the answer is no Modbus TCP frame")
                return
            if len(buffer) < 6 + length:
                return
            frame = bytes(buffer[6 : 6 + length])
            del buffer[: 6 + length]
            self._silent = 0
            future = self.pending.pop(transaction, None)
            if future is None or future.done():
                self.late += 1
            else:
                future.set_result(frame)

    def expire(self, transaction: int, timeout_s: float) -> None:
        """A request has waited long enough. Its late reply will be known by its id; half a frame, or silence again, ends the connection."""
        future = self.pending.pop(transaction, None)
        if future is not None and not future.done():
            remedy = "check the device; raise timeout_ms if it is slow"
            future.set_exception(NoAnswerError(f"no answer within {timeout_s * 1000:g} ms", remedy=remedy))
        self._silent += 1
        if self._buffer or self._silent >= _SILENT_LIMIT:
            self.fail("the connection went silent")

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
    """One Modbus TCP connection; several requests may be under way at once. Its owner decides how many, and when to connect.

    Time-outs are the event loop's own timers: they bound a wait on the network and stamp nothing.

    Args:
        host: Host name or address.
        port: TCP port.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._frames: _Frames | None = None
        self._transaction = 0
        self._late = 0

    @property
    def connected(self) -> bool:
        """Whether a request can be sent."""
        return self._frames is not None and self._frames.transport is not None

    @property
    def late(self) -> int:
        """Replies nobody waited for (any more)."""
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
            raise TransientError(f"no connection ({_words(error)})", remedy="check power, cable, address and port") from error
        except UnicodeError as error:
            raise TransientError(f"'{self._host}' is no host name", remedy="correct host") from error

    async def request(self, unit: int, pdu: bytes, timeout_s: float) -> bytes:
        """Send one request and return the response PDU.

        Raises:
            ModbusExceptionError: The server answered with an exception.
            NoAnswerError: The unit did not answer in time, or not to what was asked.
            TransientError: No connection, or it was lost meanwhile.
        """
        frames = self._frames
        if frames is None or frames.transport is None:
            raise TransientError("not connected", remedy="check the device and the network")
        transaction = self._transaction = (self._transaction + 1) & _MASK
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        frames.pending[transaction] = future
        frames.transport.write(_HEADER.pack(transaction, 0, len(pdu) + 1, unit) + pdu)
        timer = loop.call_later(timeout_s, frames.expire, transaction, timeout_s)
        try:
            frame = await future
        finally:
            timer.cancel()
            frames.pending.pop(transaction, None)
        return _checked(frames, unit, pdu[0], frame)

    def close(self) -> None:
        """Close at once; safe at any time."""
        if self._frames is not None:
            self._late += self._frames.late
            self._frames.fail("closed")
            self._frames = None


def _words(error: OSError) -> str:
    """The system's own words; asyncio puts its own in their place, and a name with several addresses has several faults."""
    if error.errno is None:
        return "none of its addresses answers"
    return (os.strerror(error.errno) if error.errno > 0 else error.strerror or str(error)).lower()


def _checked(frames: _Frames, unit: int, function: int, frame: bytes) -> bytes:
    """The PDU of an answer to this very request. After any other the stream cannot be trusted, so the connection ends."""
    if frame[0] != unit and unit not in (0, 255):
        text = f"unit {frame[0]} answered for unit {unit}"
    elif frame[1] == function:
        return frame[1:]
    elif frame[1] == function | 0x80:
        raise ModbusExceptionError(frame[2])
    else:
        text = f"function {frame[1]} answered for function {function}"
    frames.fail(text)
    raise NoAnswerError(text, remedy="check that no other master shares the connection")
