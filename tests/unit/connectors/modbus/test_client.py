"""The TCP client against a server that misbehaves."""

import asyncio
import contextlib
import gc
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.modbus.client import EXCEPTIONS, ModbusExceptionError, NoAnswerError, TcpClient, _Frames
from gateway.core.errors import TransientError
from tests.unit.connectors.modbus.plc import Asked, CutError, Plc, frame, open_files, until

_READ_ONE = struct.pack(">BHH", 3, 7, 1)
_SHORT_S = 0.03
_LONG_S = 5.0


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Plc, TcpClient]]:
    """A server whose register 7 is 77, and a client that is connected to it."""
    async with Plc() as plc:
        plc.units[1].holding[7] = 77
        client = TcpClient("127.0.0.1", plc.port)
        await client.connect(_LONG_S)
        try:
            yield plc, client
        finally:
            client.close()


async def seventy_seven(client: TcpClient) -> bool:
    return await client.request(1, _READ_ONE, _LONG_S) == b"\x03\x02\x00\x4d"


async def test_an_answer_comes_back_as_it_was_sent() -> None:
    async with connected() as (_, client):
        assert await seventy_seven(client)


async def test_a_reply_after_the_time_out_is_never_taken_for_the_next_answer() -> None:
    async with connected() as (plc, client):
        kept: list[bytes] = []
        plc.fault = lambda _, answer: kept.append(answer)
        with pytest.raises(NoAnswerError, match="no answer within 30 ms"):
            await client.request(1, struct.pack(">BHH", 3, 0, 1), _SHORT_S)
        plc.fault = lambda _, answer: kept[0] + answer
        assert await seventy_seven(client)
        assert client.late == 1
        assert plc.connections == 1


async def test_a_foreign_transaction_id_is_dropped_and_the_right_answer_still_taken() -> None:
    async with connected() as (plc, client):
        plc.fault = lambda asked, answer: frame(asked.transaction ^ 0x5555, 1, b"\x03\x02\xff\xff") + answer
        assert await seventy_seven(client)
        assert client.late == 1


async def test_a_lost_connection_fails_what_is_pending_at_once() -> None:
    async with connected() as (plc, client):
        plc.fault = lambda *_: None
        request = asyncio.create_task(client.request(1, _READ_ONE, _LONG_S))
        await until(lambda: len(plc.asked) == 1)
        plc.cut()
        with pytest.raises(TransientError):
            await asyncio.wait_for(request, 1.0)
        assert not client.connected


async def test_an_answer_in_single_bytes_is_put_together() -> None:
    async with connected() as (plc, client):
        plc.fault = lambda *_: None
        request = asyncio.create_task(client.request(1, _READ_ONE, _LONG_S))
        await until(lambda: len(plc.asked) == 1)
        for byte in frame(plc.asked[0].transaction, 1, b"\x03\x02\x00\x4d"):
            plc.send(bytes((byte,)))
            await asyncio.sleep(0)
        assert await request == b"\x03\x02\x00\x4d"


async def test_half_a_frame_ends_the_connection_when_its_time_is_over() -> None:
    async with connected() as (plc, client):
        plc.fault = lambda _, answer: answer[:-1]
        with pytest.raises(NoAnswerError):
            await client.request(1, _READ_ONE, _SHORT_S)
        assert not client.connected


async def test_a_connection_that_stays_silent_twice_is_given_up() -> None:
    async with connected() as (plc, client):
        plc.fault = lambda *_: None
        for alive in (True, False):
            with pytest.raises(NoAnswerError):
                await client.request(1, _READ_ONE, _SHORT_S)
            assert client.connected is alive


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "no Modbus TCP frame"),
        (b"\x00\x01\x00\x00\xff\xff\x01\x03", "no Modbus TCP frame"),
        (b"\x00\x01\x00\x00\x00\x02\x01\x03", "no Modbus TCP frame"),
        (frame(1, 9, b"\x03\x02\x00\x4d"), "unit 9 answered for unit 1"),
        (frame(1, 1, b"\x04\x02\x00\x4d"), "function 4 answered for function 3"),
    ],
)
async def test_an_answer_that_cannot_be_right_is_refused_and_ends_the_connection(answer: bytes, said: str) -> None:
    async with connected() as (plc, client):
        plc.fault = lambda *_: answer
        with pytest.raises(TransientError, match=said):
            await client.request(1, _READ_ONE, _LONG_S)
        assert not client.connected
        plc.fault = None
        await client.connect(_LONG_S)
        assert await seventy_seven(client)


@pytest.mark.parametrize("code", range(1, 13))
async def test_every_exception_code_has_words_and_a_remedy_and_keeps_the_connection(code: int) -> None:
    async with connected() as (plc, client):
        plc.fault = lambda asked, _: frame(asked.transaction, asked.unit, bytes((asked.function | 0x80, code)))
        with pytest.raises(ModbusExceptionError) as caught:
            await client.request(1, _READ_ONE, _LONG_S)
        assert caught.value.text == f"exception {code}: {EXCEPTIONS.get(code, 'unknown exception')}"
        assert caught.value.remedy
        plc.fault = None
        assert await seventy_seven(client)


async def test_answers_out_of_order_find_their_requests() -> None:
    async with connected() as (plc, client):
        plc.units[1].put("holding", 0, list(range(100, 108)))
        held: list[bytes] = []

        def last_first(_: Asked, answer: bytes) -> bytes | None:
            held.append(answer)
            return b"".join(reversed(held)) if len(held) == 8 else None

        plc.fault = last_first
        answers = await asyncio.gather(*(client.request(1, struct.pack(">BHH", 3, i, 1), _LONG_S) for i in range(8)))
        assert [int.from_bytes(answer[2:]) for answer in answers] == list(range(100, 108))


async def test_a_peer_that_is_not_there_is_an_error_with_a_remedy() -> None:
    async with Plc() as plc:
        port = plc.port
    with pytest.raises(TransientError, match="connection refused") as caught:
        await TcpClient("127.0.0.1", port).connect(_LONG_S)
    assert "port" in caught.value.remedy


async def test_a_host_name_that_cannot_be_one_is_an_error_with_a_remedy() -> None:
    with pytest.raises(TransientError):
        await TcpClient("a" * 70 + ".example", 502).connect(_LONG_S)


async def test_a_request_can_be_cancelled_at_any_point_and_the_next_one_is_right() -> None:
    async with connected() as (_, client):
        for turns in range(12):
            task = asyncio.create_task(client.request(1, struct.pack(">BHH", 3, 0, 2), _LONG_S))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert await seventy_seven(client)
        assert client._frames is not None
        assert not client._frames.pending


async def test_connecting_can_be_cancelled_at_any_point() -> None:
    async with Plc() as plc:
        for turns in range(12):
            client = TcpClient("127.0.0.1", plc.port)
            task = asyncio.create_task(client.connect(_LONG_S))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            client.close()
        await until(lambda: plc.open == 0)


async def test_a_hundred_restarts_of_the_server_leave_nothing_behind() -> None:
    async with Plc() as plc:
        plc.units[1].holding[7] = 77
        client = TcpClient("127.0.0.1", plc.port)
        counts = []
        for restart in range(1, 101):
            await client.connect(_LONG_S)
            assert await seventy_seven(client)
            await plc.stop()
            await until(lambda: not client.connected)
            with pytest.raises(TransientError):
                await client.connect(_LONG_S)
            await plc.start()
            if restart in (10, 100):
                gc.collect()
                frames = sum(isinstance(thing, _Frames) for thing in gc.get_objects())
                counts.append((open_files(), len(asyncio.all_tasks()), frames))
        assert counts[0] == counts[1]
        client.close()


async def test_a_connection_cut_in_an_answer_is_an_error_like_any_other() -> None:
    async with connected() as (plc, client):

        def cut(_: Asked, answer: bytes) -> bytes:
            plc.send(answer[:5])
            raise CutError

        plc.fault = cut
        with pytest.raises(TransientError):
            await client.request(1, _READ_ONE, _LONG_S)


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


@given(st.lists(st.binary(max_size=300), max_size=10))
def test_no_bytes_whatever_raise_inside_the_protocol(chunks: list[bytes]) -> None:
    frames = _Frames()
    frames.connection_made(_Transport())
    for chunk in chunks:
        if frames.transport is None:
            break
        frames.data_received(chunk)
    assert len(frames._buffer) <= sum(map(len, chunks))


@given(st.lists(st.binary(min_size=2, max_size=253), min_size=1, max_size=10), st.data())
def test_frames_are_found_however_the_stream_is_cut(pdus: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(frame(i, 1, pdu) for i, pdu in enumerate(pdus))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    frames = _Frames()
    frames.connection_made(_Transport())
    loop = asyncio.new_event_loop()
    try:
        futures = [loop.create_future() for _ in pdus]
        frames.pending = dict(enumerate(futures))
        for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            frames.data_received(stream[start:stop])
        assert [future.result()[1:] for future in futures] == pdus
        assert not frames._buffer
    finally:
        loop.close()
