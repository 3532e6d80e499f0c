"""A real broker: confirmed means confirmed, a lost one is found again, and nobody's session is fought for."""

import asyncio
import json
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connectors.mqtt.encoding import Encoder
from connectors.mqtt.settings import MqttSettings, TopicSettings
from connectors.mqtt.sink import MqttSink
from gateway.core.batch import Batch
from gateway.core.clock import SystemClock
from gateway.core.prediction import Outcome, OutputSpec, Prediction, Trace
from gateway.core.protocols import Message
from gateway.core.tags import DataType, Tag, TagTable
from tests.e2e.processes import free_port, listens, mosquitto, process, wait_for

pytestmark = [pytest.mark.needs("mosquitto"), pytest.mark.timeout(120)]


def sink_of(port: int, **more: object) -> MqttSink:
    settings = MqttSettings.model_validate({"name": "broker", "type": "mqtt", "host": "127.0.0.1", "port": port, **more})
    return MqttSink(settings, "EDGE", SystemClock())


@contextmanager
def subscriber(port: int, folder: Path, topic: str = "#") -> Iterator[Path]:
    out = folder / "heard.txt"
    with process(["mosquitto_sub", "-p", str(port), "-t", topic, "-q", "1", "-F", "%t %p"], out):
        ready = ["mosquitto_pub", "-p", str(port), "-t", "ready", "-m", "yes", "-r"]
        subprocess.run(ready, check=True)
        wait_for(lambda: "ready yes" in out.read_text(), "the subscriber")
        yield out


async def eventually(path: Path, text: str) -> None:
    await asyncio.to_thread(wait_for, lambda: text in path.read_text(), text)


async def test_what_is_accepted_has_arrived_and_the_last_will_is_left(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port, subscriber(port, tmp_path) as heard:
        async with sink_of(port) as sink:
            await asyncio.wait_for(sink.ready(), 10)
            delivery = await sink.deliver([Message(f"t/{i}", str(i).encode()) for i in range(50)])
            assert delivery.accepted == tuple(range(50))
            await eventually(heard, "t/49 49")
            connection: Any = sink._client._client.socket() if sink._client else None
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            await eventually(heard, "lineside/EDGE/state online")
            connection.shutdown(socket.SHUT_RDWR)
            await eventually(heard, "lineside/EDGE/state offline")


async def test_a_message_that_can_never_be_sent_is_rejected_and_blocks_nobody(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        async with sink_of(port, max_message_kb=1) as sink:
            await asyncio.wait_for(sink.ready(), 10)
            delivery = await sink.deliver([Message("a", b"x"), Message("b", b"x" * 2000), Message("c/#", b"x"), Message("d", b"x")])

    assert delivery.accepted == (0, 3)
    assert [i for i, _ in delivery.rejected] == [1, 2]


async def test_without_a_broker_all_is_kept_and_the_condition_says_why() -> None:
    async with sink_of(free_port()) as sink:
        delivery = await sink.deliver([Message("a", b"x")])
        await asyncio.to_thread(wait_for, lambda: bool(sink.conditions()), "the condition")

    assert delivery.kept == (0,)
    assert sink.conditions()[0].active
    assert "check the broker" in sink.conditions()[0].remedy


@asynccontextmanager
async def proxy(target: int) -> AsyncIterator[tuple[int, list[asyncio.StreamWriter]]]:
    """A TCP proxy whose connections can be cut."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.transport.abort()
            return
        writers.extend((writer, far_writer))

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65536):
                    sink.write(data)
                    await sink.drain()
            except OSError:
                pass
            finally:
                sink.transport.abort()

        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], writers
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0.05)


async def test_a_link_that_is_cut_comes_back_every_time(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        async with proxy(port) as (near, writers), sink_of(near) as sink:
            sink._reconnect._first_s = sink._reconnect._cap_s = 0.01
            for cut in range(25):
                await asyncio.wait_for(sink.ready(), 20)
                for writer in writers:
                    writer.transport.abort()
                writers.clear()
                again = cut + 1
                await asyncio.to_thread(wait_for, lambda again=again: sink.status().reconnects >= again, "the reconnect")  # type: ignore[misc]
            await asyncio.wait_for(sink.ready(), 20)
            assert (await sink.deliver([Message("a", b"x")])).accepted == (0,)


async def test_a_broker_that_restarts_is_found_again(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        sink = sink_of(port)
        await sink.__aenter__()
        await asyncio.wait_for(sink.ready(), 10)
    try:
        await asyncio.to_thread(wait_for, lambda: any(c.active for c in sink.conditions()), "the loss")
        configuration = tmp_path / "again.conf"
        configuration.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
        with process(["/usr/sbin/mosquitto", "-c", str(configuration)]):
            await asyncio.to_thread(wait_for, lambda: listens(port), "mosquitto")
            await asyncio.wait_for(sink.ready(), 20)
            assert (await sink.deliver([Message("a", b"x")])).accepted == (0,)
            assert not any(c.active for c in sink.conditions())
    finally:
        await sink.__aexit__(None, None, None)


async def test_two_clients_of_one_id_are_named_as_such(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        async with sink_of(port, client_id="same") as one, sink_of(port, client_id="same") as two:

            def named() -> bool:
                return any("session taken over" in c.text for sink in (one, two) for c in sink.conditions())

            await asyncio.to_thread(wait_for, named, "the name of the fault", 60)


def test_messages_carry_what_a_subscriber_needs() -> None:
    table = TagTable()
    group = table.add_group("plc/fast", "plc", 1.0)
    table.add(Tag("x", "degC", DataType.FLOAT32, group.id))
    encoder = Encoder("EDGE", TopicSettings(), table, {"m": (OutputSpec("x_5s", "degC", 5.0),)})
    batch = Batch(
        0, 1, 0, 0, 5, np.zeros(1, np.int32), np.array([np.nan]), np.array([134], np.uint16), np.array([1_700_000_000_123_000_000])
    )
    said = encoder.batch(batch)
    trace = Trace(1, 2_000_001, 3_000_001, 4_000_001, 5_000_001)
    prediction = Prediction("m", "pump", 7, 10**9, "gateway", np.array([np.nan]), 0, Outcome.INFERRED, "d", "cpu-float", trace, 5)
    encoder.closed(prediction, Trace(1, 2, 3, 4, 5, 6_000_001, 7_000_001))
    body = json.loads(encoder.prediction(prediction, 0).payload)

    assert said.topic == "lineside/EDGE/plc/fast"
    assert json.loads(said.payload)["values"] == [None]
    assert json.loads(said.payload)["time_ms"] == [1_700_000_000_123]
    assert body["outputs"] == [{"name": "x_5s", "value": None, "unit": "degC", "horizon_s": 5.0}]
    assert body["trace_ms"]["inference"] == 1.0
    assert body["previous"]["trace_ms"]["read back"] == 1.0
    assert body["source_time"] == "1970-01-01T00:00:01.000Z"
