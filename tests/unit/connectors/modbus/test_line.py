"""One line, many units: turns, pauses, and one that is dead."""

import asyncio
import contextlib
import gc
import struct

import pytest

from connectors.modbus.client import ModbusExceptionError, TcpClient
from connectors.modbus.line import Line
from connectors.modbus.plan import Block
from connectors.modbus.settings import Table
from connectors.reconnect import Link
from gateway.core.clock import NS_PER_S, SystemClock
from gateway.core.errors import TransientError
from tests.unit.connectors.modbus.plc import Asked, CutError, Plc, line_to, open_files, until
from tests.virtual_clock import VirtualClock

_ONE = Block(Table.HOLDING, 0, 1, ())
_SHORT_S = 0.03
_LONG_S = 5.0


def block(start: int, count: int = 1) -> Block:
    return Block(Table.HOLDING, start, count, ())


async def test_a_line_opens_with_its_first_request_and_reads_every_table() -> None:
    async with Plc() as plc, line_to(plc, VirtualClock()) as line:
        plc.units[1].put("holding", 0, [258, 772])
        plc.units[1].put("coil", 0, [1, 0, 1])
        assert plc.connections == 0
        assert await line.read(1, block(0, 2), _LONG_S) == bytes((1, 2, 3, 4))
        assert await line.read(1, Block(Table.COIL, 0, 3, ()), _LONG_S) == b"\x05"
        assert plc.connections == 1


async def test_a_write_takes_the_next_slot_before_the_reads_that_wait() -> None:
    async with Plc() as plc, line_to(plc, VirtualClock()) as line:
        reads = [asyncio.create_task(line.read(1, block(i), _LONG_S)) for i in range(5)]
        await asyncio.sleep(0)
        write = asyncio.create_task(line.write(1, 9, b"\x00\x05", _LONG_S))
        await asyncio.gather(*reads, write)
        assert [asked.function for asked in plc.asked].index(6) <= 1


async def test_units_are_served_in_turn_however_many_requests_one_of_them_has() -> None:
    async with Plc(1, 2) as plc, line_to(plc, VirtualClock()) as line:
        many = [asyncio.create_task(line.read(1, block(i), _LONG_S)) for i in range(6)]
        await asyncio.sleep(0)
        few = [asyncio.create_task(line.read(2, block(i), _LONG_S)) for i in range(2)]
        await asyncio.gather(*many, *few)
        assert [asked.unit for asked in plc.asked][:5].count(2) == 2


async def test_a_full_queue_refuses_and_leaves_other_units_alone() -> None:
    async with Plc(1, 2) as plc, line_to(plc, VirtualClock()) as line:
        plc.fault = lambda *_: None
        waiting = [asyncio.create_task(line.read(1, _ONE, 0.2)) for _ in range(66)]
        await until(lambda: any(task.done() for task in waiting))
        refused = [task for task in waiting if task.done()]
        with pytest.raises(TransientError, match="64 requests wait"):
            await refused[0]
        plc.fault = None
        assert await line.read(2, _ONE, _LONG_S)
        await asyncio.gather(*waiting, return_exceptions=True)
        assert line.waiting == 0


async def test_an_idle_close_is_met_by_reopening_at_once_without_a_word() -> None:
    async with Plc() as plc, line_to(plc, VirtualClock()) as line:
        await line.read(1, _ONE, _LONG_S)
        plc.cut()
        await until(lambda: plc.open == 0)
        assert await line.read(1, _ONE, _LONG_S) == b"\x00\x00"
        assert line.link.link is Link.UP
        assert line.link.reconnects == 1


async def test_a_read_cut_on_a_good_connection_is_sent_again_with_a_new_id_and_a_write_is_not() -> None:
    async with Plc() as plc, line_to(plc, VirtualClock()) as line:
        await line.read(1, _ONE, _LONG_S)

        def once(*_: object) -> bytes:
            plc.fault = None
            raise CutError

        plc.fault = once
        assert await line.read(1, block(7), _LONG_S) == b"\x00\x00"
        assert len({asked.transaction for asked in plc.asked}) == len(plc.asked) == 3
        plc.fault = once
        with pytest.raises(TransientError):
            await line.write(1, 9, b"\x00\x05", _LONG_S)
        assert sum(asked.function == 6 for asked in plc.asked) == 1
        assert await line.read(1, block(7), _LONG_S) == b"\x00\x00"


async def test_a_peer_that_is_gone_is_tried_with_growing_pauses_and_found_again() -> None:
    clock = VirtualClock()
    async with Plc() as plc, line_to(plc, clock) as line:
        await line.read(1, _ONE, _LONG_S)
        await plc.stop()
        for _ in range(50):
            with pytest.raises(TransientError):
                await line.read(1, _ONE, _LONG_S)
            await clock.advance(0.1)
        assert line.lost(1)
        assert 3 <= line.link.tries <= 6
        assert "try" in line.words(1)
        await plc.start()
        await clock.advance(6.0)
        assert await line.read(1, _ONE, _LONG_S)
        assert not line.lost(1)
        assert line.words(1) == "connected"


async def test_a_dead_unit_is_left_alone_after_two_time_outs_while_the_other_goes_on() -> None:
    clock = VirtualClock()
    async with Plc(1, 2) as plc, line_to(plc, clock) as line:
        plc.fault = lambda asked, answer: answer if asked.unit == 2 else None
        for _ in range(40):
            with pytest.raises(TransientError, match="no answer"):
                await line.read(1, _ONE, _SHORT_S)
            assert await line.read(2, _ONE, _LONG_S)
            await clock.advance(0.25)
        assert sum(asked.unit == 1 for asked in plc.asked) <= 8
        assert sum(asked.unit == 2 for asked in plc.asked) == 40
        assert plc.connections == 1
        assert line.lost(1)
        assert not line.lost(2)
        assert "no answer" in line.words(1)
        plc.fault = None
        await clock.advance(20)
        assert await line.read(1, _ONE, _LONG_S)
        assert not line.lost(1)


async def test_a_unit_behind_a_gateway_that_reports_it_absent_is_left_alone_too() -> None:
    clock = VirtualClock()
    async with Plc(1) as plc, line_to(plc, clock) as line:
        for _ in range(2):
            with pytest.raises(ModbusExceptionError, match="failed to respond"):
                await line.read(9, _ONE, _LONG_S)
        with pytest.raises(TransientError, match="failed to respond"):
            await line.read(9, _ONE, _LONG_S)
        assert len(plc.asked) == 2
        assert line.counters.exceptions == {11: 2}


async def test_an_answer_of_the_wrong_length_is_refused() -> None:
    async with Plc() as plc, line_to(plc, VirtualClock()) as line:
        plc.fault = lambda asked, _: struct.pack(">HHHB", asked.transaction, 0, 5, 1) + b"\x03\x02\x00\x01"
        with pytest.raises(TransientError, match="2 data bytes came, 8 were asked for"):
            await line.read(1, block(0, 4), _LONG_S)


async def test_a_write_is_never_sent_after_its_validity() -> None:
    clock = VirtualClock()
    async with Plc() as plc, line_to(plc, clock) as line:
        with pytest.raises(TransientError, match="too late"):
            await line.write(1, 0, b"\x00\x01", _LONG_S, clock.mono_ns())
        assert plc.asked == []
        await line.write(1, 0, b"\x00\x01", _LONG_S, clock.mono_ns() + NS_PER_S)
        assert plc.units[1].holding[0] == 1


async def test_the_line_rests_between_two_requests_when_asked_to() -> None:
    clock = VirtualClock()
    async with Plc() as plc, line_to(plc, clock, pause_s=0.15) as line:
        reads = [asyncio.create_task(line.read(1, block(i), _LONG_S)) for i in range(3)]
        for count in (1, 2, 3):
            await until(lambda count=count: reads[count - 1].done())  # type: ignore[misc]
            assert len(plc.asked) == count
            await clock.advance(0.15)


async def test_by_default_a_second_request_waits_for_the_first_answer() -> None:
    async with Plc() as plc, line_to(plc, VirtualClock()) as line:
        plc.fault = lambda *_: None
        reads = [asyncio.create_task(line.read(1, block(i), 0.05)) for i in range(2)]
        await until(lambda: len(plc.asked) == 1)
        await asyncio.sleep(0.01)
        assert len(plc.asked) == 1
        await asyncio.gather(*reads, return_exceptions=True)


async def test_more_in_flight_is_given_up_with_the_first_lost_reply() -> None:
    async with Plc() as plc, line_to(plc, VirtualClock(), max_in_flight=4) as line:
        held: list[bytes] = []

        def together(_: Asked, answer: bytes) -> bytes | None:
            held.append(answer)
            return b"".join(held) if len(held) == 4 else None

        plc.fault = together
        await asyncio.gather(*(line.read(1, block(i), _LONG_S) for i in range(4)))
        assert line.max_in_flight == 4
        plc.fault = lambda *_: None
        with pytest.raises(TransientError):
            await line.read(1, _ONE, _SHORT_S)
        plc.fault = None
        assert line.max_in_flight == 1
        assert await asyncio.gather(*(line.read(1, block(i), _LONG_S) for i in range(4)))


async def test_whoever_waits_is_told_when_the_line_closes_and_nobody_can_wait_afterwards() -> None:
    async with Plc() as plc:
        plc.fault = lambda *_: None
        async with line_to(plc, VirtualClock()) as line:
            reads = [asyncio.create_task(line.read(1, block(i), _LONG_S)) for i in range(3)]
            await until(lambda: len(plc.asked) == 1)
        results = await asyncio.gather(*reads, return_exceptions=True)
        assert all(isinstance(result, TransientError) for result in results)
        with pytest.raises(TransientError, match="closed"):
            await line.read(1, _ONE, _LONG_S)


async def test_a_caller_may_be_cancelled_at_any_point_and_the_line_serves_the_next() -> None:
    async with Plc() as plc, line_to(plc, VirtualClock()) as line:
        plc.units[1].put("holding", 0, [10, 11])
        for turns in range(15):
            task = asyncio.create_task(line.read(1, block(0), _LONG_S))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert await line.read(1, block(1), _LONG_S) == b"\x00\x0b"
        assert line.waiting == 0


async def test_the_owner_may_be_cancelled_at_any_point_and_leaves_no_connection() -> None:
    async with Plc() as plc:
        for turns in range(15):
            async with line_to(plc, VirtualClock()) as line:
                read = asyncio.create_task(line.read(1, _ONE, _LONG_S))
                for _ in range(turns):
                    await asyncio.sleep(0)
            with contextlib.suppress(TransientError):
                await read
        await until(lambda: plc.open == 0)


async def test_a_fault_of_ours_reaches_the_caller_and_the_line_lives_on() -> None:
    class Broken(TcpClient):
        async def request(self, unit: int, pdu: bytes, timeout_s: float) -> bytes:
            if unit == 7:
                raise ZeroDivisionError
            return await super().request(unit, pdu, timeout_s)

    async with Plc() as plc:
        line = Line("x", Broken("127.0.0.1", plc.port), SystemClock())
        line.start()
        with pytest.raises(ZeroDivisionError):
            await line.read(7, _ONE, _LONG_S)
        assert await line.read(1, _ONE, _LONG_S)
        await line.stop()


async def test_a_hundred_restarts_of_the_server_cost_a_reconnect_each_and_leave_nothing_behind() -> None:
    clock = VirtualClock()
    async with Plc() as plc, line_to(plc, clock) as line:
        counts = []
        for restart in range(1, 101):
            assert await line.read(1, _ONE, _LONG_S)
            await plc.stop()
            with pytest.raises(TransientError):
                await line.read(1, _ONE, _LONG_S)
            await plc.start()
            await clock.advance(6.0)
            if restart in (10, 100):
                gc.collect()
                counts.append((open_files(), len(asyncio.all_tasks()), len(clock._sleepers), line.waiting))
        assert counts[0] == counts[1]
        assert await line.read(1, _ONE, _LONG_S)
        assert line.link.reconnects == 100
