"""A real broker: confirmed means confirmed, a lost one is found again, and nobody's session is fought for."""

import asyncio
import json
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import numpy as np
import pytest

from connectors.mqtt.embedded import EmbeddedBroker
from connectors.mqtt.encoding import Encoder
from connectors.mqtt.settings import MqttSettings, TopicSettings
from connectors.mqtt.sink import MqttSink
from gateway.core.batch import Batch
from gateway.core.clock import SystemClock
from gateway.core.prediction import Outcome, OutputSpec, Prediction, Trace
from gateway.core.protocols import Message
from gateway.core.tags import DataType, Tag, TagTable
from tests.e2e.processes import free_port, listens, mosquitto, process, wait_for

pytestmark = [pytest.mark.needs("mosquitto"), pytest.mark.timeout(240)]


def sink_of(port: int, *, first_pause_s: float = 0.5, longest_pause_s: float = 10.0, **more: object) -> MqttSink:
    settings = MqttSettings.model_validate({"name": "broker", "type": "mqtt", "host": "127.0.0.1", "port": port, **more})
    return MqttSink(settings, "EDGE", SystemClock(), first_pause_s=first_pause_s, longest_pause_s=longest_pause_s)


@contextmanager
def subscriber(port: int, folder: Path, topic: str = "#") -> Iterator[Path]:
    out = folder / "heard.txt"
    with process(["mosquitto_sub", "-p", str(port), "-t", topic, "-t", "ready", "-q", "1", "-F", "%t %p"], out):
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
            assert sink._client is not None
            connection = sink._client._client.socket()
            assert isinstance(connection, socket.socket)
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
    assert "check that the broker runs" in sink.conditions()[0].remedy


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


def cut(writers: list[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.transport.abort()
    writers.clear()


async def test_a_link_cut_a_thousand_times_comes_back_every_time(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        async with proxy(port) as (near, writers), sink_of(near, first_pause_s=0.001, longest_pause_s=0.001) as sink:
            for _ in range(1000):
                await asyncio.wait_for(sink.ready(), 20)
                cut(writers)
                while sink._up.is_set():  # noqa: ASYNC110 - the loss is the event
                    await asyncio.sleep(0)
            await asyncio.wait_for(sink.ready(), 20)
            assert sink.status().reconnects == 1000
            assert (await sink.deliver([Message("a", b"x")])).accepted == (0,)


async def test_while_the_link_is_cut_and_cut_nothing_accepted_is_lost_and_nothing_is_called_poison(tmp_path: Path) -> None:
    messages = [Message(f"cut/{i % 7}", f"message {i} ".encode() + b"x" * (i % 50)) for i in range(600)]
    with mosquitto(tmp_path) as port, subscriber(port, tmp_path, "cut/#") as heard:
        async with proxy(port) as (near, writers), sink_of(near, first_pause_s=0.001, longest_pause_s=0.001) as sink:

            async def cut_and_cut() -> None:
                while True:
                    await asyncio.sleep(0.02)
                    cut(writers)

            cutting = asyncio.create_task(cut_and_cut(), name="cutting")
            waiting = messages
            accepted: list[Message] = []
            while waiting:
                await asyncio.wait_for(sink.ready(), 20)
                delivery = await sink.deliver(waiting[:50])
                assert not delivery.rejected
                assert sorted((*delivery.accepted, *delivery.kept)) == list(range(len(waiting[:50])))
                accepted += [waiting[i] for i in delivery.accepted]
                waiting = [waiting[i] for i in delivery.kept] + waiting[50:]
            cutting.cancel()
            await asyncio.gather(cutting, return_exceptions=True)
            assert sink.status().reconnects > 3
            assert sink.status().accepted == len(accepted) == len(messages)
        await asyncio.to_thread(wait_for, lambda: {m.payload for m in messages} <= set(said(heard)), "every message")


def said(heard: Path) -> list[bytes]:
    return [line.partition(b" ")[2] for line in heard.read_bytes().splitlines()]


async def test_who_leaves_says_offline_without_waiting_for_the_last_will(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port, subscriber(port, tmp_path) as heard:
        async with sink_of(port) as sink:
            await asyncio.wait_for(sink.ready(), 10)
        await eventually(heard, "lineside/EDGE/state offline")
        assert "socket error" not in (tmp_path / "mosquitto.log").read_text()


@contextmanager
def broker(folder: Path, *lines: str, port: int = 0) -> Iterator[int]:
    """A real broker with a configuration of its own."""
    port = port or free_port()
    file = folder / "own.conf"
    file.write_text("\n".join((f"listener {port} 127.0.0.1", "allow_anonymous true", "persistence false", *lines)) + "\n")
    executable = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/bin") or "mosquitto"
    with process([executable, "-c", str(file)]):
        wait_for(lambda: listens(port), "mosquitto")
        yield port


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_a_message_the_broker_cannot_stand_is_found_and_blocks_nobody(tmp_path: Path, protocol: str) -> None:
    messages = [Message("t", str(i).encode() * 10) for i in range(30)]
    messages[11] = Message("t", b"x" * 20_000)
    with broker(tmp_path, "max_packet_size 4096") as port, subscriber(port, tmp_path, "t") as heard:
        async with sink_of(port, first_pause_s=0.01, protocol=protocol) as sink:
            waiting = messages
            rejected: list[str] = []
            for _ in range(40):
                await asyncio.wait_for(sink.ready(), 20)
                delivery = await sink.deliver(waiting)
                rejected += [reason for _, reason in delivery.rejected]
                waiting = [waiting[i] for i in delivery.kept]
                if not waiting:
                    break
        assert not waiting
        assert len(rejected) == 1
        assert "20000 bytes" in rejected[0]
        expected = {m.payload for m in messages if len(m.payload) < 4096}
        await asyncio.to_thread(wait_for, lambda: expected <= set(said(heard)), "the others")


async def test_a_broker_that_restarts_is_found_again(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        sink = sink_of(port)
        await sink.__aenter__()
        await asyncio.wait_for(sink.ready(), 10)
    try:
        await asyncio.to_thread(wait_for, lambda: any(c.active for c in sink.conditions()), "the loss")
        with broker(tmp_path, port=port):
            await asyncio.wait_for(sink.ready(), 20)
            assert (await sink.deliver([Message("a", b"x")])).accepted == (0,)
            assert not any(c.active for c in sink.conditions())
    finally:
        await sink.__aexit__(None, None, None)


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_two_clients_of_one_id_are_named_stop_fighting_and_recover(tmp_path: Path, protocol: str) -> None:
    with mosquitto(tmp_path) as port:
        async with sink_of(port, first_pause_s=0.05, client_id="same", protocol=protocol) as one:
            async with sink_of(port, first_pause_s=0.05, client_id="same", protocol=protocol) as two:

                def named() -> bool:
                    return all(any(c.active and "session taken over" in c.text for c in sink.conditions()) for sink in (one, two))

                await asyncio.to_thread(wait_for, named, "the name of the fault", 60)
                assert all("client_id" in c.remedy for sink in (one, two) for c in sink.conditions())
                assert min(one._reconnect.tries, two._reconnect.tries) == 0 or max(one._reconnect.tries, two._reconnect.tries) >= 3
            await asyncio.to_thread(wait_for, lambda: not any(c.active for c in one.conditions()), "peace", 60)


async def test_the_embedded_broker_of_the_demo_takes_and_hands_on(tmp_path: Path) -> None:
    async with EmbeddedBroker() as embedded:
        with subscriber(embedded.port, tmp_path, "t/#") as heard:
            async with sink_of(embedded.port) as sink:
                await asyncio.wait_for(sink.ready(), 10)
                assert (await sink.deliver([Message("t/a", b"x")])).accepted == (0,)
                assert not sink.conditions()
                await eventually(heard, "t/a x")


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
