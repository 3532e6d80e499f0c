"""With pymodbus as oracle: its conversion for the codec, its server for the client."""

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymodbus.client import AsyncModbusTcpClient
from pymodbus.client.mixin import ModbusClientMixin
from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

from connectors.modbus.client import ModbusExceptionError, TcpClient
from connectors.modbus.codec import Codec, Field
from connectors.modbus.connector import ModbusConnector
from connectors.modbus.plan import Block
from connectors.modbus.settings import ModbusTargetSettings, Order, Table, WireType
from connectors.simulator.server import ModbusServer, Tables
from gateway.core.clock import NS_PER_S, SystemClock
from gateway.core.prediction import OutputSpec
from tests.unit.connectors.modbus.plc import Plc, settings_of, until

_TYPES = ModbusClientMixin.DATATYPE
_KINDS = {
    WireType.INT16: _TYPES.INT16,
    WireType.UINT16: _TYPES.UINT16,
    WireType.INT32: _TYPES.INT32,
    WireType.UINT32: _TYPES.UINT32,
    WireType.FLOAT32: _TYPES.FLOAT32,
}
_WORD_ORDERS: tuple[tuple[Order, str], ...] = (("ABCD", "big"), ("CDAB", "little"))


@given(st.sampled_from(sorted(_KINDS)), st.sampled_from(_WORD_ORDERS), st.binary(min_size=4, max_size=4))
def test_registers_mean_to_us_what_they_mean_to_pymodbus(kind: WireType, order: tuple[Order, str], data: bytes) -> None:
    ours, theirs = order
    registers = list(struct.unpack(f">{kind.words}H", data[: kind.words * 2]))
    expected = ModbusClientMixin.convert_from_registers(registers, _KINDS[kind], word_order=theirs)  # type: ignore[arg-type]
    codec = Codec([Field(0, kind, ours)])
    value = codec.decode(data)
    assert isinstance(expected, int | float)
    np.testing.assert_array_equal(value, [expected])
    if np.isfinite(value[0]):
        back = ModbusClientMixin.convert_to_registers(expected, _KINDS[kind], word_order=theirs)  # type: ignore[arg-type]
        assert codec.encode([expected]) == struct.pack(f">{kind.words}H", *back)


@asynccontextmanager
async def pymodbus_server(holding: Sequence[int], port: int = 0) -> AsyncIterator[int]:
    """Their server, unit 1, holding registers from 0 on; other addresses are refused. Gives its port."""
    device = SimDevice(1, simdata=SimData(0, values=list(holding), datatype=DataType.REGISTERS))
    server = ModbusTcpServer(device, address=("127.0.0.1", port))
    await server.listen()
    assert isinstance(server.transport, asyncio.Server)
    try:
        yield server.transport.sockets[0].getsockname()[1]
    finally:
        await server.shutdown()  # type: ignore[no-untyped-call]


async def test_pymodbus_s_server_is_read_and_written() -> None:
    registers = list(range(1000, 1125))
    async with pymodbus_server(registers) as port, ModbusConnector(SystemClock()) as connector:
        settings = settings_of(port, [{"name": "g"}], timeout_ms=2000)
        line = connector.line(settings)
        data = await line.read(1, Block(Table.HOLDING, 0, 125, ()), 2.0)
        assert list(struct.unpack(">125H", data)) == registers
        with pytest.raises(ModbusExceptionError, match="exception 2"):
            await line.read(1, Block(Table.HOLDING, 120, 10, ()), 2.0)
        target = connector.target(
            "out", ModbusTargetSettings(type="modbus", source="plc", address="holding 10"), settings, [OutputSpec("flow", "l/min")]
        )
        words = target.encode({"heartbeat": 1, "quality": 2, "sequence": 3, "age_ms": 4, "latency_ms": 5, "loop_ms": 6, "value:flow": 7.5})
        until_ns = SystemClock().mono_ns() + 5 * NS_PER_S
        await target.write(words, until_ns)
        assert await target.read_back(list(words), until_ns) == words


async def test_a_server_that_comes_back_is_read_again_on_the_same_line() -> None:
    async with pymodbus_server([1, 2]) as port:
        client = TcpClient("127.0.0.1", port)
        await client.connect(2.0)
        request = struct.pack(">BHH", 3, 0, 2)
        assert await client.request(1, request, 2.0) == b"\x03\x04\x00\x01\x00\x02"
    await until(lambda: not client.connected)
    async with pymodbus_server([3, 4], port):
        await client.connect(2.0)
        assert await client.request(1, request, 2.0) == b"\x03\x04\x00\x03\x00\x04"
    client.close()


async def test_our_two_servers_answer_our_client_as_they_answer_pymodbus_s() -> None:
    tables = Tables()
    tables.holding[:4] = (1, 2, 3, 0xFFFF)
    tables.coil[2] = True
    async with Plc() as plc, ModbusServer({1: tables}) as simulator:
        plc.units[1].put("holding", 0, [1, 2, 3, 0xFFFF])
        plc.units[1].put("coil", 0, [0, 0, 1])
        for port in (plc.port, simulator.port):
            theirs = AsyncModbusTcpClient("127.0.0.1", port=port)
            await theirs.connect()
            assert (await theirs.read_holding_registers(0, count=4)).registers == [1, 2, 3, 0xFFFF]
            assert (await theirs.read_coils(0, count=3)).bits[:3] == [False, False, True]
            theirs.close()
