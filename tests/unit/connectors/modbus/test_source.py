"""A unit as a source: slots, watermarks, quality, and what a dead or refusing device costs."""

import asyncio
import math
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from connectors.modbus.connector import ModbusConnector
from connectors.modbus.source import ModbusSource
from gateway.core.clock import NS_PER_S, SystemClock
from gateway.core.quality import Code, Ne107
from tests.unit.connectors.modbus.plc import Asked, Plc, Reader, frame, qualities, settings_of, table_of, until
from tests.virtual_clock import VirtualClock, settle

FAST = {"name": "fast", "period_s": 1.0, "tags": [{"name": "a", "address": "holding 0"}, {"name": "b", "address": "holding 1"}]}
SLOW = {"name": "slow", "period_s": 60.0, "tags": [{"name": "c", "address": "holding 100"}]}
STAMPED = {**FAST, "clock": {"name": "plant", "address": "input 0"}}


@asynccontextmanager
async def polled(
    plc: Plc, clock: VirtualClock, groups: list[dict[str, Any]], **more: float | str
) -> AsyncIterator[tuple[ModbusSource, Reader]]:
    """A source that runs, and its reader."""
    settings = settings_of(plc.port, groups, **more)
    table = table_of(settings)
    async with ModbusConnector(clock) as connector, connector.source(settings, table) as source:
        yield source, Reader(source.items(), table)


async def test_a_poll_happens_in_the_middle_of_its_period_and_its_watermark_reaches_to_the_next() -> None:
    clock = VirtualClock()
    async with Plc() as plc, polled(plc, clock, [FAST]) as (_, reader):
        plc.units[1].put("holding", 0, [7, 8])
        await clock.advance(0.49)
        assert plc.asked == []
        await clock.advance(0.01)
        await reader.cycle()
        assert reader.values == {"a": 7, "b": 8}
        assert qualities(reader) == {Code.GOOD}
        start_ns = 1_700_000_000 * NS_PER_S
        assert set(reader.batches[0].source_time_ns.tolist()) == {start_ns + NS_PER_S // 2}
        assert reader.marks[0].up_to_ns == start_ns + 3 * NS_PER_S // 2 - 1
        assert reader.marks[0].alive
        await clock.advance(1.0)
        await reader.cycle()
        assert all(reader.batches[1].source_time_ns > reader.marks[0].up_to_ns)


async def test_groups_of_one_source_are_polled_at_their_own_periods() -> None:
    clock = VirtualClock()
    async with Plc() as plc, polled(plc, clock, [FAST, {**SLOW, "period_s": 5.0}]) as (_, reader):
        for _ in range(10):
            await clock.advance(0.5)
            await clock.advance(0.5)
            await settle()
            await until(lambda: len(plc.asked) > 0)
            await asyncio.sleep(0.005)
        await reader.cycle(12)
        assert sum(asked.span[1] == 0 for asked in plc.asked) == 10
        assert sum(asked.span[1] == 100 for asked in plc.asked) == 2


async def test_cycles_missed_behind_a_slow_answer_are_skipped_and_counted() -> None:
    clock = VirtualClock()
    async with Plc() as plc, polled(plc, clock, [FAST], timeout_ms=5000) as (source, reader):
        plc.fault = lambda *_: None
        await clock.advance(0.5)
        await until(lambda: len(plc.asked) == 1)
        await clock.advance(3.2)
        plc.fault = None
        plc.send(frame(plc.asked[0].transaction, 1, b"\x03\x04\x00\x01\x00\x02"))
        await reader.cycle()
        assert source.status().missed == 3
        assert reader.marks[0].up_to_ns == 1_700_000_000 * NS_PER_S + 9 * NS_PER_S // 2 - 1
        await clock.advance(1.0)
        await reader.cycle()
        assert len(plc.asked) == 2


async def test_a_device_that_does_not_answer_loses_every_tag_at_once_and_its_watermarks_go_on_not_alive() -> None:
    clock = VirtualClock()
    groups = [FAST, {**SLOW, "period_s": 1.0}]
    async with Plc() as plc, polled(plc, clock, groups) as (source, reader):
        await clock.advance(0.5)
        await reader.cycle(2)
        assert qualities(reader) == {Code.GOOD}
        await plc.stop()
        await clock.advance(1.0)
        await reader.cycle(2)
        assert qualities(reader) == {Code.BAD_COMM_LOST}
        assert all(math.isnan(value) for value in reader.values.values())
        assert not reader.marks[-1].alive
        assert reader.marks[-1].up_to_ns > reader.marks[0].up_to_ns
        condition = source.conditions()[0]
        assert (condition.kind, condition.active) == ("unreachable", True)
        assert condition.remedy
        status = source.status()
        assert status.word is Ne107.FAILURE
        assert "try 1" in status.text
        assert "refused" in source.raw_status(0)


async def test_a_slow_group_does_not_keep_good_values_of_a_lost_device_until_its_turn() -> None:
    clock = VirtualClock()
    async with Plc() as plc, polled(plc, clock, [FAST, {**SLOW, "period_s": 4.0}]) as (_, reader):
        for _ in range(3):
            await clock.advance(1.0)
            await reader.cycle()
        await reader.cycle()
        assert reader.quality["c"] == Code.GOOD
        await plc.stop()
        await clock.advance(1.0)
        await reader.cycle()
        assert reader.quality["a"] == Code.BAD_COMM_LOST
        assert reader.quality["c"] == Code.BAD_COMM_LOST


async def test_a_device_that_comes_back_is_good_again_and_the_condition_ends() -> None:
    clock = VirtualClock()
    async with Plc() as plc, polled(plc, clock, [FAST]) as (source, reader):
        await plc.stop()
        for _ in range(3):
            await clock.advance(1.0)
            await reader.cycle()
        await plc.start()
        plc.units[1].put("holding", 0, [5, 6])
        for _ in range(8):
            await clock.advance(1.0)
            await reader.cycle()
        assert reader.values == {"a": 5, "b": 6}
        assert qualities(reader) == {Code.GOOD}
        assert not source.conditions()[0].active
        assert source.status().word is Ne107.GOOD
        assert source.raw_status(0) == ""


async def test_of_two_devices_on_one_line_a_dead_one_costs_the_other_nothing() -> None:
    clock = VirtualClock()
    async with Plc(1, 2) as plc:
        plc.fault = lambda asked, answer: answer if asked.unit == 2 else None
        dead = settings_of(plc.port, [FAST], name="dead", unit=1, timeout_ms=20)
        other = [{**FAST, "tags": [{"name": "x", "address": "holding 0"}]}]
        living = settings_of(plc.port, other, name="living", unit=2)
        table = table_of(dead, living)
        async with ModbusConnector(clock) as connector, connector.source(dead, table) as d, connector.source(living, table) as v:
            dead_reader, living_reader = Reader(d.items(), table), Reader(v.items(), table)
            for cycle in range(30):
                plc.units[2].holding[0] = cycle
                await clock.advance(1.0)
                await dead_reader.cycle()
                await living_reader.cycle()
                assert qualities(dead_reader) == {Code.BAD_COMM_LOST}
                assert living_reader.quality == {"x": Code.GOOD}
                assert living_reader.values == {"x": cycle}
            assert plc.connections == 1
            assert sum(asked.unit == 1 for asked in plc.asked) < 10
            assert v.status().word is Ne107.GOOD
            assert d.status().word is Ne107.FAILURE
            assert "no answer within 20 ms" in d.status().text


async def test_a_refused_block_costs_its_own_tags_only() -> None:
    clock = VirtualClock()
    groups = [{**FAST, "tags": [*FAST["tags"], {"name": "c", "address": "holding 100"}]}]  # type: ignore[misc]
    async with Plc() as plc, polled(plc, clock, groups) as (source, reader):
        plc.units[1].refused["holding", 1] = 2
        await clock.advance(0.5)
        await reader.cycle()
        assert qualities(reader, "a", "b") == {Code.BAD_CONFIGURATION}
        assert reader.quality["c"] == Code.GOOD
        assert reader.marks[0].alive
        condition = next(c for c in source.conditions() if c.active)
        assert condition.kind == "refused plc/fast"
        assert condition.text == "holding 0..1: exception 2: illegal data address"
        assert condition.remedy
        assert source.raw_status(0) == "exception 2: illegal data address"
        assert source.raw_status(2) == ""
        assert source.status().text == condition.text
        plc.units[1].refused.clear()
        await clock.advance(1.0)
        await reader.cycle()
        assert qualities(reader) == {Code.GOOD}
        assert not any(c.active for c in source.conditions())


async def test_not_a_number_is_bad_and_what_is_out_of_range_uncertain_each_for_its_own_tag() -> None:
    clock = VirtualClock()
    tags = [
        {"name": name, "address": f"input {2 * i}", "type": "float32", "low": 0, "high": 10} for i, name in enumerate(("a", "b", "c", "d"))
    ]
    async with Plc() as plc, polled(plc, clock, [{**FAST, "tags": tags}]) as (_, reader):
        plc.units[1].put("input", 0, list(struct.unpack(">8H", struct.pack(">4f", math.nan, 5, 11, math.inf))))
        await clock.advance(0.5)
        await reader.cycle()
        assert reader.quality == {
            "a": Code.BAD_NOT_A_NUMBER,
            "b": Code.GOOD,
            "c": Code.UNCERTAIN_OUT_OF_RANGE,
            "d": Code.BAD_NOT_A_NUMBER,
        }


async def test_a_time_stamp_register_dates_the_cycle_and_is_its_watermark() -> None:
    clock = VirtualClock()
    async with Plc() as plc, polled(plc, clock, [STAMPED]) as (_, reader):
        plc.units[1].put("input", 0, [24415, 36864])
        stamp_ns = (24415 * 65536 + 36864) * NS_PER_S
        await clock.advance(0.5)
        await reader.cycle()
        assert set(reader.batches[0].source_time_ns.tolist()) == {stamp_ns}
        assert (reader.marks[0].up_to_ns, reader.marks[0].alive) == (stamp_ns, True)
        assert [asked.function for asked in plc.asked] == [4, 3]


async def test_without_its_time_stamp_no_value_of_the_cycle_is_good_and_the_watermark_stands_not_alive() -> None:
    clock = VirtualClock()
    async with Plc() as plc, polled(plc, clock, [STAMPED]) as (source, reader):
        plc.units[1].put("input", 0, [24415, 36864])
        await clock.advance(0.5)
        await reader.cycle()
        plc.units[1].refused["input", 0] = 4
        await clock.advance(1.0)
        await reader.cycle()
        assert qualities(reader) == {Code.BAD_DEVICE}
        assert (reader.marks[1].up_to_ns, reader.marks[1].alive) == (reader.marks[0].up_to_ns, False)
        assert all(reader.batches[-1].source_time_ns == reader.marks[0].up_to_ns + NS_PER_S)
        assert [c.kind for c in source.conditions() if c.active] == ["refused plc/fast"]


async def test_values_right_after_a_reconnect_are_those_that_were_asked_for() -> None:
    clock = VirtualClock()
    async with Plc() as plc, polled(plc, clock, [FAST]) as (_, reader):
        plc.units[1].put("holding", 0, [7, 8])

        def with_leftovers(asked: Asked, answer: bytes) -> bytes:
            old = frame((asked.transaction - 1) & 0xFFFF, 1, b"\x03\x04\xff\xff\xff\xff")
            return old + answer

        plc.fault = with_leftovers
        for _ in range(3):
            await clock.advance(1.0)
            await reader.cycle()
            assert reader.values == {"a": 7, "b": 8}
            plc.cut()
            await until(lambda: plc.open == 0)


async def test_a_wall_clock_that_is_set_neither_stops_nor_doubles_the_polls() -> None:
    clock = VirtualClock()
    async with Plc() as plc, polled(plc, clock, [FAST]) as (_, reader):
        await clock.advance(0.5)
        await reader.cycle()
        clock.step_wall(-3600)
        await clock.advance(1.0)
        await reader.cycle()
        await clock.advance(1.0)
        await reader.cycle()
        clock.step_wall(7200)
        await clock.advance(1.0)
        await reader.cycle()
        assert len(plc.asked) == 4
        stamps = [int(batch.source_time_ns[0]) for batch in reader.batches]
        assert np.all(np.diff(stamps[2:]) > 0)


async def test_a_source_may_be_left_at_any_point_and_entered_again() -> None:
    clock = SystemClock()
    async with Plc() as plc:
        settings = settings_of(plc.port, [{**FAST, "period_s": 0.01}])
        table = table_of(settings)
        async with ModbusConnector(clock) as connector:
            source = connector.source(settings, table)
            for turns in range(12):
                async with source:
                    for _ in range(turns):
                        await asyncio.sleep(0.002)
            async with source:
                reader = Reader(source.items(), table)
                await reader.cycle(3)
        assert qualities(reader) == {Code.GOOD}
        await until(lambda: plc.open == 0)
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith(("poll", "line"))]


async def test_entering_a_source_whose_device_is_absent_never_fails() -> None:
    clock = VirtualClock()
    async with Plc() as plc:
        pass
    async with polled(plc, clock, [FAST]) as (source, reader):
        assert source.status().text == "not yet connected"
        await clock.advance(0.5)
        await reader.cycle()
        assert qualities(reader) == {Code.BAD_COMM_LOST}


async def test_lines_that_no_source_uses_any_more_are_closed() -> None:
    async with Plc() as plc, ModbusConnector(SystemClock()) as connector:
        settings = settings_of(plc.port, [FAST])
        line = connector.line(settings)
        assert connector.line(settings) is line
        await connector.keep([("127.0.0.1", plc.port)])
        assert connector.line(settings) is line
        await connector.keep(())
        assert connector.line(settings) is not line
