"""Commands: on the disk before they act, each with one end, and a way out even without an audit."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.control.audit import Audit, read
from gateway.control.commands import CommandRouter
from gateway.core.command import Command, CommandKind, CommandResult, Verdict
from gateway.core.errors import PermanentError, TransientError
from tests.unit.control.machine import Memory
from tests.virtual_clock import VirtualClock


@dataclass
class Handler:
    """Notes what it is asked; `then` is called before it answers."""

    asked: list[Command] = field(default_factory=list)
    gate: asyncio.Event | None = None
    then: Callable[[], None] = lambda: None

    async def handle(self, command: Command) -> CommandResult:
        self.asked.append(command)
        if self.gate is not None:
            await self.gate.wait()
        self.then()
        return CommandResult(command.id, Verdict.VERIFIED, "done")


@dataclass
class Desk:
    """A router with its file and one handler for everything but a reload."""

    path: Path
    clock: VirtualClock = field(default_factory=VirtualClock)
    handler: Handler = field(default_factory=Handler)
    journal: Memory = field(default_factory=Memory)

    def __post_init__(self) -> None:
        self.audit = Audit(self.path, self.clock)
        self.router = CommandRouter(self.clock, self.audit, self.journal)
        self.router.register([kind for kind in CommandKind if kind is not CommandKind.RELOAD], self.handler)

    def trail(self) -> list[tuple[str, str, str]]:
        """Kind of record, id, verdict."""
        return [(record["kind"], record["body"]["id"], record["body"].get("verdict", "")) for record in read(self.path)]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path / "audit.jsonl")
    yield desk
    desk.audit.close()


def arm(number: int = 1, *, expires_wall_ns: int = 0) -> Command:
    return Command(str(number), "eve", CommandKind.ARM, "pump", {"why": "test"}, expires_wall_ns=expires_wall_ns)


async def test_a_command_is_on_the_disk_before_it_acts_and_its_end_after_it(desk: Desk) -> None:
    seen: list[tuple[bool, list[tuple[str, str, str]]]] = []
    desk.handler.then = lambda: seen.append((desk.audit._dirty, desk.trail()))
    result = await desk.router.handle(arm())
    assert result == CommandResult("1", Verdict.VERIFIED, "done")
    assert seen == [(False, [("command", "1", "")])]
    assert desk.trail() == [("command", "1", ""), ("command end", "1", "verified")]
    assert [kind for kind, _ in desk.journal.entries] == ["command", "command end"]


async def test_an_expired_command_is_refused_and_that_is_audited(desk: Desk) -> None:
    now_ns = desk.clock.wall_ns()
    assert (await desk.router.handle(arm(1, expires_wall_ns=now_ns))).verdict is Verdict.VERIFIED
    result = await desk.router.handle(arm(2, expires_wall_ns=now_ns - 1))
    assert result.verdict is Verdict.REFUSED
    assert "expired" in result.reason
    assert [command.id for command in desk.handler.asked] == ["1"]
    assert desk.trail()[-1] == ("command end", "2", "refused")


async def test_an_unknown_command_is_refused_and_that_is_audited(desk: Desk) -> None:
    result = await desk.router.handle(Command("7", "eve", CommandKind.RELOAD))
    assert (result.verdict, result.reason) == (Verdict.REFUSED, "'reload' is not known here")
    assert desk.trail() == [("command end", "7", "refused")]


async def test_too_many_at_a_time_are_refused_and_none_is_dropped(desk: Desk) -> None:
    desk.handler.gate = asyncio.Event()
    tasks = [asyncio.create_task(desk.router.handle(arm(n))) for n in range(20)]
    async with asyncio.timeout(10):
        await asyncio.wait(tasks[16:])
    desk.handler.gate.set()
    verdicts = [result.verdict for result in await asyncio.gather(*tasks)]
    assert verdicts == [Verdict.VERIFIED] * 16 + [Verdict.REFUSED] * 4
    assert sum(kind == "command end" for kind, _, _ in desk.trail()) == 20
    assert (await desk.router.handle(arm(99))).verdict is Verdict.VERIFIED


@pytest.mark.parametrize("fault", [TransientError("busy", remedy="wait"), PermanentError("gone"), RuntimeError("a bug")])
async def test_a_handler_that_fails_is_a_refusal_with_an_end(desk: Desk, fault: Exception) -> None:
    def fail() -> None:
        raise fault

    desk.handler.then = fail
    result = await desk.router.handle(arm())
    assert result.verdict is Verdict.REFUSED
    assert str(fault) in result.reason
    assert len(desk.handler.asked) == 1
    assert desk.trail()[-1] == ("command end", "1", "refused")


@pytest.mark.parametrize("kind", list(CommandKind))
async def test_without_an_audit_only_the_ways_out_are_open(desk: Desk, kind: CommandKind) -> None:
    desk.audit.broken = "audit file: disk full"
    result = await desk.router.handle(Command("1", "eve", kind, "pump"))
    acted = kind in (CommandKind.DISARM, CommandKind.ACKNOWLEDGE)
    assert bool(desk.handler.asked) == acted
    assert result.verdict is (Verdict.VERIFIED if acted else Verdict.REFUSED)


def test_two_handlers_for_one_kind_are_a_mistake(desk: Desk) -> None:
    with pytest.raises(ValueError, match="arm has a handler already"):
        desk.router.register([CommandKind.ARM], desk.handler)
