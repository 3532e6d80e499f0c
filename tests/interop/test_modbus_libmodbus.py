"""Against libmodbus, the C library most devices and tools are built with."""

import asyncio
import math
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.modbus.client import ModbusExceptionError
from connectors.modbus.connector import ModbusConnector
from connectors.modbus.plan import Block
from connectors.modbus.settings import ModbusTargetSettings, Order, Table
from gateway.core.clock import NS_PER_S, SystemClock
from gateway.core.errors import PermanentError
from gateway.core.prediction import OutputSpec
from gateway.core.quality import Code
from tests.unit.connectors.modbus.plc import Reader, qualities, settings_of, table_of

pytestmark = pytest.mark.needs("libmodbus")

OUTPUTS = [OutputSpec("temperature", "degC")]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of a libmodbus server, compiled here."""
    program = tmp_path_factory.mktemp("libmodbus") / "server"
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "libmodbus"], check=True, capture_output=True, text=True).stdout.split()
    source = Path(__file__).parent / "libmodbus_server.c"
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-o", program, source, *flags], check=True)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield int(server.stdout.readline())
        server.communicate("", timeout=10)


async def test_every_table_type_and_byte_order_is_read_as_libmodbus_laid_it_down(port: int) -> None:
    tags = [
        {"name": f"{table}.{order}", "address": f"{table} {2 * i}", "type": "float32", "order": order}
        for table in ("holding", "input")
        for i, order in enumerate(("ABCD", "CDAB", "BADC", "DCBA"))
    ]
    tags += [
        {"name": "i32", "address": "input 8", "type": "int32"},
        {"name": "u16", "address": "input 10"},
        {"name": "i16", "address": "input 10", "type": "int16"},
        *({"name": f"{table}.{i}", "address": f"{table} {i}", "type": "bool"} for table in ("coil", "discrete") for i in (0, 1, 99)),
    ]
    settings = settings_of(port, [{"name": "g", "period_s": 0.05, "tags": tags}], timeout_ms=2000)
    table = table_of(settings)
    async with ModbusConnector(SystemClock()) as connector, connector.source(settings, table) as source:
        reader = Reader(source.items(), table)
        await reader.cycle()
    assert qualities(reader) == {Code.GOOD}
    floats = {name: 12.5 for name in reader.values if name.endswith(("ABCD", "CDAB", "BADC", "DCBA"))}
    bits = {f"{table}.{i}": float(i % 3 == 0) for table in ("coil", "discrete") for i in (0, 1, 99)}
    assert reader.values == {**floats, **bits, "i32": -2, "u16": 65534, "i16": -2}


@pytest.mark.parametrize("order", ["ABCD", "CDAB", "BADC", "DCBA"])
async def test_a_prediction_block_is_taken_and_read_back_word_for_word(port: int, order: Order) -> None:
    clock = SystemClock()
    settings = settings_of(port, [{"name": "g"}], timeout_ms=2000)
    async with ModbusConnector(clock) as connector:
        target = connector.target(
            "out", ModbusTargetSettings(type="modbus", source="plc", address="holding 500", order=order), settings, OUTPUTS
        )
        words = target.encode(
            {"heartbeat": 1, "quality": 0, "sequence": 70001, "age_ms": 5, "latency_ms": 1, "loop_ms": 2, "value:temperature": math.pi}
        )
        until_ns = clock.mono_ns() + 5 * NS_PER_S
        await target.write(words, until_ns)
        assert await target.read_back(list(words), until_ns) == words
        await target.write(target.encode({"heartbeat": 2}), until_ns)
        assert (await target.read_back(["heartbeat"], until_ns))["heartbeat"] == target.encode({"heartbeat": 2})["heartbeat"]
        data = await connector.line(settings).read(1, Block(Table.HOLDING, 510, 2, ()), 2.0)
        if order == "ABCD":
            assert data == struct.pack(">f", math.pi)


async def test_an_address_libmodbus_does_not_have_is_refused_and_the_line_goes_on(port: int) -> None:
    clock = SystemClock()
    settings = settings_of(port, [{"name": "g"}], timeout_ms=2000)
    async with ModbusConnector(clock) as connector:
        line = connector.line(settings)
        with pytest.raises(ModbusExceptionError, match="exception 2: illegal data address"):
            await line.read(1, Block(Table.HOLDING, 999, 2, ()), 2.0)
        target = connector.target("out", ModbusTargetSettings(type="modbus", source="plc", address="holding 995"), settings, OUTPUTS)
        with pytest.raises(PermanentError, match="illegal data address"):
            await target.write(target.encode({"value:temperature": 1.0}), clock.mono_ns() + 5 * NS_PER_S)
        assert await line.read(1, Block(Table.HOLDING, 10, 1, ()), 2.0) == b"\xff\xfe"


async def test_with_sixteen_requests_in_flight_each_gets_its_own_answer(port: int) -> None:
    settings = settings_of(port, [{"name": "g"}], timeout_ms=2000, max_in_flight=16)
    async with ModbusConnector(SystemClock()) as connector:
        line = connector.line(settings)
        data = await asyncio.gather(*(line.read(1, Block(Table.HOLDING, 0, count, ()), 2.0) for count in range(1, 64)))
        assert [len(part) for part in data] == [2 * count for count in range(1, 64)]
        assert line.max_in_flight == 16
