"""The API over real sockets: what it answers, what it refuses, and what it never touches."""

import asyncio
import getpass
import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.api.server import ApiServer, Queries
from gateway.core.command import Command, CommandKind, CommandResult, Verdict
from gateway.core.errors import ConfigError, TransientError
from gateway.core.snapshot import GatewaySnapshot
from tests.tui.snapshots import source_lost


@dataclass
class House:
    """What the API asks, with answers a test can change."""

    reasons: list[str] = field(default_factory=list)
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    verdict: Verdict = Verdict.ACCEPTED
    fault: Exception | None = None
    tape_closed: asyncio.Event = field(default_factory=asyncio.Event)

    def queries(self) -> Queries:
        return Queries(
            self.snapshot, lambda: self.reasons, self.rows, self.rows, self.rows, self.command, lambda: b"lineside_up 1\n", self.tape
        )

    def snapshot(self, tags: list[str]) -> GatewaySnapshot:
        self.asked.append(("snapshot", tags))
        if self.fault is not None:
            raise self.fault
        return source_lost()

    async def rows(self, *arguments: Any) -> Any:  # noqa: ANN401 - rows of several queries
        self.asked.append(arguments)
        return {"rows": [[1, None]]}

    async def command(self, command: Command) -> CommandResult:
        self.commands.append(command)
        return CommandResult(command.id, self.verdict, "done")

    async def tape(self, model: str) -> AsyncIterator[bytes]:
        try:
            while True:
                yield model.encode()
                await asyncio.sleep(0.01)  # frames come when they come; this is the sender's pace, no wait of the test
        finally:
            self.tape_closed.set()


@asynccontextmanager
async def served(folder: Path, house: House, *, metrics_port: int = 0) -> AsyncIterator[aiohttp.ClientSession]:
    path = folder / "api.sock"
    async with (
        ApiServer(path, house.queries(), metrics_port=metrics_port),
        aiohttp.ClientSession("http://lineside", connector=aiohttp.UnixConnector(str(path))) as session,
    ):
        yield session


async def get(session: aiohttp.ClientSession, path: str) -> tuple[int, Any]:
    async with session.get(path) as response:
        return response.status, json.loads(await response.read())


async def post(session: aiohttp.ClientSession, body: object) -> tuple[int, Any]:
    async with session.post("/v1/command", data=json.dumps(body)) as response:
        return response.status, json.loads(await response.read())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_the_snapshot_arrives_as_the_same_object_that_was_sent(tmp_path: Path) -> None:
    house = House()
    async with served(tmp_path, house) as session, session.get("/v1/snapshot?tag=a&tag=b") as response:
        arrived = msgspec.json.decode(await response.read(), type=GatewaySnapshot)

    assert arrived == source_lost()
    assert house.asked == [("snapshot", ["a", "b"])]


async def test_health_is_200_only_when_nothing_ails(tmp_path: Path) -> None:
    house = House()
    async with served(tmp_path, house) as session:
        well = await get(session, "/v1/health")
        house.reasons.append("plc-a: failure")
        ill = await get(session, "/v1/health")

    assert well == (200, {"well": True, "reasons": []})
    assert ill == (503, {"well": False, "reasons": ["plc-a: failure"]})


async def test_the_tcp_port_gives_health_and_metrics_and_takes_no_commands(tmp_path: Path) -> None:
    house, port = House(), free_port()
    async with served(tmp_path, house, metrics_port=port), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        async with session.get("/metrics") as response:
            assert await response.read() == b"lineside_up 1\n"
        assert (await get(session, "/v1/health"))[0] == 200
        assert (await get(session, "/v1/snapshot"))[0] == 404
        assert (await post(session, {"kind": "disarm"}))[0] == 404

    assert not house.commands


@pytest.mark.parametrize(("asked", "given"), [("", 1000), ("&limit=5", 5), ("&limit=99999999", 100_000), ("&limit=-1", 1), ("&limit=0", 1)])
async def test_a_query_never_returns_without_limit(tmp_path: Path, asked: str, given: int) -> None:
    house = House()
    async with served(tmp_path, house) as session:
        assert (await get(session, f"/v1/history?tag=pump1.flow&since_ns=5{asked}"))[0] == 200

    assert house.asked == [("pump1.flow", 5, 2**63 - 1, given)]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/v1/history", "'tag' is missing"),
        ("/v1/history?tag=a&since_ns=soon", "'since_ns' is no whole number"),
        ("/v1/predictions?model=m", "'asset' is missing"),
        ("/v1/tape", "'model' is missing"),
    ],
)
async def test_a_query_that_makes_no_sense_is_answered_with_what_is_wrong(tmp_path: Path, path: str, says: str) -> None:
    async with served(tmp_path, House()) as session:
        assert await get(session, path) == (400, {"error": says})


async def test_a_command_carries_the_user_the_kernel_knows_and_not_the_one_it_claims(tmp_path: Path) -> None:
    house = House()
    body = {"id": "7", "kind": "hold", "target": "pump1-out", "actor": "the boss", "expected": "ARMED", "expires_wall_ns": 5}
    async with served(tmp_path, house) as session:
        status, answer = await post(session, body)

    assert (status, answer["verdict"]) == (200, "accepted")
    assert house.commands == [Command("7", f"{getpass.getuser()} (the boss)", CommandKind.HOLD, "pump1-out", {}, "ARMED", 5)]


@pytest.mark.parametrize(
    "body", [{}, {"kind": "explode"}, [], "arm", {"kind": "arm", "arguments": 3}, {"kind": "arm", "expires_wall_ns": "x"}]
)
async def test_what_is_no_command_reaches_nobody(tmp_path: Path, body: object) -> None:
    house = House()
    async with served(tmp_path, house) as session:
        status, answer = await post(session, body)

    assert status == 400
    assert "arm, disarm" in answer["remedy"]
    assert not house.commands


async def test_a_refused_command_is_no_success(tmp_path: Path) -> None:
    house = House(verdict=Verdict.REFUSED)
    async with served(tmp_path, house) as session:
        status, answer = await post(session, {"kind": "arm"})

    assert (status, answer["verdict"], answer["reason"]) == (409, "refused", "done")


@pytest.mark.parametrize(
    ("fault", "status", "answer"),
    [
        (TransientError("the gateway is reloading", remedy="try again"), 409, {"error": "the gateway is reloading", "remedy": "try again"}),
        (ZeroDivisionError("secret detail"), 500, {"error": "internal error, see the gateway's log"}),
    ],
)
async def test_a_fault_is_a_sentence_and_never_a_traceback(tmp_path: Path, fault: Exception, status: int, answer: dict[str, str]) -> None:
    house = House(fault=fault)
    async with served(tmp_path, house) as session:
        assert await get(session, "/v1/snapshot") == (status, answer)
        house.fault = None
        assert (await get(session, "/v1/snapshot"))[0] == 200


async def test_a_tape_ends_when_its_listener_leaves(tmp_path: Path) -> None:
    house = House()
    async with served(tmp_path, house) as session:
        async with session.get("/v1/tape?model=bearing") as response:
            assert await response.content.readexactly(14) == b"bearingbearing"
        async with asyncio.timeout(10):
            await house.tape_closed.wait()


async def test_the_socket_is_for_its_owner_and_group_and_goes_with_the_gateway(tmp_path: Path) -> None:
    async with served(tmp_path, House()):
        assert stat.S_IMODE((tmp_path / "api.sock").stat().st_mode) == 0o660

    assert not (tmp_path / "api.sock").exists()


async def test_a_socket_that_nobody_serves_any_more_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "api.sock"))
    async with served(tmp_path, House()) as session:
        assert (await get(session, "/v1/health"))[0] == 200


async def test_a_second_gateway_is_told_who_holds_the_socket_and_leaves_it_alone(tmp_path: Path) -> None:
    async with served(tmp_path, House()) as session:
        with pytest.raises(ConfigError, match=f"process {os.getpid()}"):
            await ApiServer(tmp_path / "api.sock", House().queries()).__aenter__()
        assert (await get(session, "/v1/health"))[0] == 200


async def test_a_file_at_the_sockets_path_is_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "api.sock").write_text("the only copy of the configuration")
    with pytest.raises(ConfigError, match="is no socket"):
        await ApiServer(tmp_path / "api.sock", House().queries()).__aenter__()

    assert (tmp_path / "api.sock").read_text() == "the only copy of the configuration"


async def test_a_path_the_system_would_cut_off_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="too long"):
        await ApiServer(tmp_path / ("x" * 120), House().queries()).__aenter__()


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot serve on"):
        await ApiServer(tmp_path / "file" / "api.sock", House().queries()).__aenter__()


async def test_a_port_in_use_leaves_nothing_behind(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
            await ApiServer(tmp_path / "api.sock", House().queries(), metrics_port=port).__aenter__()

    assert not (tmp_path / "api.sock").exists()


async def test_a_client_that_stays_does_not_keep_the_gateway_from_ending(tmp_path: Path) -> None:
    house = House()
    server = await ApiServer(tmp_path / "api.sock", house.queries()).__aenter__()
    connector = aiohttp.UnixConnector(str(tmp_path / "api.sock"))
    async with aiohttp.ClientSession("http://lineside", connector=connector) as session, session.get("/v1/tape?model=m") as response:
        assert await response.content.readexactly(1) == b"m"
        async with asyncio.timeout(10):
            await server.__aexit__(None, None, None)

    assert house.tape_closed.is_set()
