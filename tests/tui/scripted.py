"""A link and an API that answer what a test says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.api.server import ApiServer, Queries
from gateway.core.command import Command, CommandResult, Verdict
from gateway.core.errors import TransientError
from gateway.core.snapshot import GatewaySnapshot
from tests.tui.snapshots import well


@dataclass
class ScriptedLink:
    """Answers with a snapshot, or not at all; remembers commands."""

    present: GatewaySnapshot | None
    commands: list[tuple[str, str, str]] = field(default_factory=list)
    expiries: list[int] = field(default_factory=list)
    answer: str = "accepted: done"
    silent: asyncio.Event | None = None

    async def snapshot(self) -> GatewaySnapshot:
        if self.silent is not None:
            await self.silent.wait()
        if self.present is None:
            raise TransientError("nobody serves it", remedy="is the gateway running?")
        return self.present

    async def send(self, kind: str, target: str, *, expected: str = "", expires_wall_ns: int = 0, **_arguments: str) -> str:
        self.commands.append((kind, target, expected))
        self.expiries.append(expires_wall_ns)
        if self.answer == "lost":
            raise TransientError(f"no answer to {kind}; it may or may not have acted", remedy="look at the state")
        return self.answer


@dataclass
class ScriptedHouse:
    """What a real API server serves."""

    present: GatewaySnapshot = field(default_factory=well)
    commands: list[Command] = field(default_factory=list)
    fault: Exception | None = None

    def snapshot(self, _tags: list[str]) -> GatewaySnapshot:
        if self.fault is not None:
            raise self.fault
        return self.present

    async def command(self, command: Command) -> CommandResult:
        self.commands.append(command)
        return CommandResult(
            command.id, Verdict.REFUSED if command.target == "no" else Verdict.ACCEPTED, f"{command.kind} {command.target}"
        )

    async def rows(self, *_arguments: Any) -> Any:  # noqa: ANN401 - rows of several queries
        return []

    async def tape(self, _model: str) -> AsyncIterator[bytes]:
        yield b""


@asynccontextmanager
async def serving(folder: Path, house: ScriptedHouse) -> AsyncIterator[Path]:
    """A socket on which a real API server answers."""
    queries = Queries(house.snapshot, list, house.rows, house.rows, house.rows, house.command, bytes, house.tape)
    async with ApiServer(folder / "api.sock", queries):
        yield folder / "api.sock"
