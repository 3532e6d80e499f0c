"""The link to a real API server: what it brings, and what it says when it brings nothing."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.core.errors import TransientError
from tests.tui.scripted import ScriptedHouse, serving
from tests.tui.snapshots import source_lost
from tui.link import Link


async def test_a_snapshot_comes_over_the_socket_unchanged(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedHouse(source_lost())) as path:
        assert await Link(path).snapshot() == source_lost()


async def test_nobody_at_the_socket_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="nobody serves") as caught:
        await Link(tmp_path / "api.sock").snapshot()

    assert "lineside run" in caught.value.remedy


async def test_a_gateway_that_is_ill_is_told_from_one_that_is_away(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedHouse(fault=ZeroDivisionError())) as path:
        with pytest.raises(TransientError, match="answers 500"):
            await Link(path).snapshot()


async def test_an_answer_of_another_version_is_called_that(tmp_path: Path) -> None:
    broken = replace(source_lost(), uptime_s=float("nan"))  # JSON has no such number: it arrives as null
    async with serving(tmp_path, ScriptedHouse(broken)) as path:
        with pytest.raises(TransientError, match=r"cannot read.*uptime_s") as caught:
            await Link(path).snapshot()

    assert "own version" in caught.value.remedy


async def test_a_command_arrives_with_all_it_carries_and_its_answer_is_a_line(tmp_path: Path) -> None:
    house = ScriptedHouse()
    async with serving(tmp_path, house) as path:
        answer = await Link(path).send("hold", "pump1-out", expected="ARMED", expires_wall_ns=7, reason="noise")
        refused = await Link(path).send("hold", "no")
        nonsense = await Link(path).send("explode", "")

    assert answer == "accepted: hold pump1-out"
    assert refused == "refused: hold no"
    assert nonsense.startswith("refused: no command")
    sent = house.commands[0]
    assert (sent.kind, sent.target, sent.expected, sent.expires_wall_ns) == ("hold", "pump1-out", "ARMED", 7)
    assert sent.arguments == {"reason": "noise"}


async def test_a_command_that_was_not_sent_is_told_from_one_whose_end_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="was not sent"):
        await Link(tmp_path / "api.sock").send("arm", "pump1-out")
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf.sock"))
        deaf.listen()  # the kernel accepts, nobody ever answers
        with pytest.raises(TransientError, match="may or may not have acted"):
            await Link(tmp_path / "deaf.sock").send("arm", "pump1-out")
        with pytest.raises(TransientError, match="does not answer"):
            await Link(tmp_path / "deaf.sock").snapshot()
