"""A block of registers that takes predictions."""

import asyncio
import struct

import pytest

from connectors.modbus.connector import ModbusConnector
from connectors.modbus.settings import ModbusTargetSettings, Order
from connectors.modbus.target import ModbusTarget
from gateway.core.clock import NS_PER_MS, NS_PER_S, Clock, SystemClock
from gateway.core.errors import ConfigError, DataError, PermanentError, TransientError
from gateway.core.prediction import OutputSpec
from tests.unit.connectors.modbus.plc import Plc, settings_of, until
from tests.virtual_clock import VirtualClock

OUTPUTS = [OutputSpec("temperature", "degC"), OutputSpec("flow", "l/min")]
GROUP = {"name": "g", "tags": [{"name": "a", "address": "holding 0"}]}
FIELDS = {
    "heartbeat": 3,
    "quality": 66,
    "sequence": 70000,
    "age_ms": 12,
    "latency_ms": 1.5,
    "loop_ms": 2.5,
    "value:temperature": 71.25,
    "value:flow": -3.5,
}


def target(connector: ModbusConnector, plc: Plc, order: Order = "ABCD", outputs: list[OutputSpec] = OUTPUTS) -> ModbusTarget:
    settings = ModbusTargetSettings(type="modbus", source="plc", address="holding 1000", order=order)
    return connector.target("pump-out", settings, settings_of(plc.port, [GROUP]), outputs)


def soon(clock: Clock) -> int:
    return clock.mono_ns() + NS_PER_S


async def test_everything_about_a_result_goes_out_in_one_request() -> None:
    clock = SystemClock()
    async with Plc() as plc, ModbusConnector(clock) as connector:
        out = target(connector, plc)
        await out.write(out.encode(FIELDS), soon(clock))
        assert [asked.span for asked in plc.asked] == [(16, 1000, 14)]
        registers = [plc.units[1].holding[1000 + i] for i in range(14)]
        expected = struct.pack(">HHIIffff", 3, 66, 70000, 12, 1.5, 2.5, 71.25, -3.5)
        assert struct.pack(">14H", *registers) == expected


async def test_the_heartbeat_alone_is_one_register() -> None:
    clock = SystemClock()
    async with Plc() as plc, ModbusConnector(clock) as connector:
        out = target(connector, plc)
        await out.write(out.encode({"heartbeat": 4}), soon(clock))
        assert [asked.function for asked in plc.asked] == [6]
        assert plc.units[1].holding[1000] == 4


async def test_values_left_out_are_left_alone() -> None:
    clock = SystemClock()
    async with Plc() as plc, ModbusConnector(clock) as connector:
        out = target(connector, plc)
        await out.write(out.encode(FIELDS), soon(clock))
        before = {a: w for a, w in plc.units[1].holding.items() if a >= 1010}
        await out.write(out.encode({k: v for k, v in FIELDS.items() if not k.startswith("value")} | {"quality": 140}), soon(clock))
        assert {a: w for a, w in plc.units[1].holding.items() if a >= 1010} == before
        assert plc.units[1].holding[1001] == 140


@pytest.mark.parametrize("order", ["ABCD", "CDAB", "BADC", "DCBA"])
async def test_what_is_read_back_are_the_raw_words_that_were_written(order: Order) -> None:
    clock = SystemClock()
    async with Plc() as plc, ModbusConnector(clock) as connector:
        out = target(connector, plc, order)
        words = out.encode(FIELDS)
        await out.write(words, soon(clock))
        assert await out.read_back(list(FIELDS), soon(clock)) == words
        assert await out.read_back(["value:flow"], soon(clock)) == {"value:flow": words["value:flow"]}


async def test_a_refusing_device_is_a_lasting_error_and_a_busy_one_is_not() -> None:
    clock = SystemClock()
    async with Plc() as plc, ModbusConnector(clock) as connector:
        out = target(connector, plc)
        for code, kind in ((2, PermanentError), (1, PermanentError), (6, TransientError)):
            plc.fault = lambda asked, answer, code=code: answer[:5] + bytes((3, 1, asked.function | 0x80, code))
            with pytest.raises(kind, match=f"exception {code}"):
                await out.write(out.encode({"heartbeat": 4}), soon(clock))
            with pytest.raises(kind, match=f"exception {code}"):
                await out.read_back(["heartbeat"], soon(clock))


async def test_the_caller_waits_no_longer_than_the_value_is_valid() -> None:
    clock = SystemClock()
    async with Plc() as plc, ModbusConnector(clock) as connector:
        out = target(connector, plc)
        await out.write(out.encode({"heartbeat": 1}), soon(clock))
        plc.fault = lambda *_: None
        with pytest.raises(TransientError, match="not known to be written in time"):
            await out.write(out.encode({"heartbeat": 2}), clock.mono_ns() + 10 * NS_PER_MS)


async def test_a_value_that_became_stale_in_the_queue_is_never_sent() -> None:
    clock = VirtualClock()
    async with Plc() as plc, ModbusConnector(clock) as connector:
        out = target(connector, plc)
        plc.fault = lambda *_: None
        first = asyncio.create_task(out.write(out.encode({"heartbeat": 1}), clock.mono_ns() + NS_PER_S))
        await until(lambda: len(plc.asked) == 1)
        second = asyncio.create_task(out.write(out.encode({"heartbeat": 2}), clock.mono_ns() + NS_PER_S // 10))
        await clock.advance(0.2)
        plc.fault = None
        results = await asyncio.gather(first, second, return_exceptions=True)
        assert all(isinstance(result, TransientError) for result in results)
        assert len(plc.asked) == 1


async def test_a_value_that_does_not_fit_is_refused_before_anything_is_sent() -> None:
    async with Plc() as plc, ModbusConnector(SystemClock()) as connector:
        with pytest.raises(DataError):
            target(connector, plc).encode({"quality": 70000})


async def test_more_outputs_than_one_request_holds_are_refused_at_once() -> None:
    async with Plc() as plc, ModbusConnector(SystemClock()) as connector:
        assert target(connector, plc, outputs=[OutputSpec(f"o{i}", "1") for i in range(56)])
        with pytest.raises(ConfigError, match="57 outputs"):
            target(connector, plc, outputs=[OutputSpec(f"o{i}", "1") for i in range(57)])
