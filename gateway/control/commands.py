"""Commands: authorised, audited before they act, and routed to the one handler of their kind."""

import asyncio
from collections.abc import Iterable

import structlog

from gateway.control.audit import Audit
from gateway.core.clock import Clock
from gateway.core.command import Command, CommandKind, CommandResult, Verdict
from gateway.core.errors import LinesideError, PermanentError
from gateway.core.protocols import CommandHandler, Journal

log = structlog.get_logger(__name__)

_IN_FLIGHT_LIMIT = 16
# Leaving a dangerous state must be possible even when the audit file is lost.
_ALWAYS = frozenset({CommandKind.DISARM, CommandKind.ACKNOWLEDGE})


class CommandRouter:
    """Registers one handler per kind.

    Args:
        clock: For expiry.
        audit: Takes every command and its end; synced before the act.
        journal: Keeps them for queries.
    """

    def __init__(self, clock: Clock, audit: Audit, journal: Journal) -> None:
        self._clock = clock
        self._audit = audit
        self._journal = journal
        self._handlers: dict[CommandKind, CommandHandler] = {}
        self._in_flight = 0

    def register(self, kinds: Iterable[CommandKind], handler: CommandHandler) -> None:
        """Let a handler carry out the commands of some kinds.

        Raises:
            ValueError: A kind has a handler already.
        """
        for kind in kinds:
            if kind in self._handlers:
                raise ValueError(f"{kind} has a handler already")
            self._handlers[kind] = handler

    async def handle(self, command: Command) -> CommandResult:
        """Carry out a command, or say why not. Too many at a time are refused, never dropped."""
        if command.expires_wall_ns and self._clock.wall_ns() > command.expires_wall_ns:
            return await self._refuse(command, "expired before it could be carried out")
        handler = self._handlers.get(command.kind)
        if handler is None:
            return await self._refuse(command, f"'{command.kind}' is not known here")
        if self._in_flight >= _IN_FLIGHT_LIMIT:
            return await self._refuse(command, "too many commands at a time")
        self._in_flight += 1
        try:
            await self._record("command", command)
            result = await self._carry_out(handler, command)
        except PermanentError as error:
            # Only the audit raises here.
            if command.kind not in _ALWAYS:
                return CommandResult(command.id, Verdict.REFUSED, str(error))
            result = await self._carry_out(handler, command)
        finally:
            self._in_flight -= 1
        await self._record_end(command, result)
        return result

    async def _carry_out(self, handler: CommandHandler, command: Command) -> CommandResult:
        """The handler's answer; its errors are refusals."""
        try:
            return await handler.handle(command)
        except LinesideError as error:
            return CommandResult(command.id, Verdict.REFUSED, str(error))
        except Exception as error:  # a fault in one handler must not leave a command without its end
            log.exception("command.fault", kind=command.kind.value, target=command.target)
            return CommandResult(command.id, Verdict.REFUSED, f"internal error ({type(error).__name__}: {error})")

    async def _refuse(self, command: Command, reason: str) -> CommandResult:
        result = CommandResult(command.id, Verdict.REFUSED, reason)
        await self._record_end(command, result)
        return result

    async def _record(self, kind: str, command: Command, **more: object) -> None:
        body = {
            "id": command.id,
            "actor": command.actor,
            "kind": command.kind.value,
            "target": command.target,
            "arguments": command.arguments,
            **more,
        }
        self._journal.record(kind, self._clock.wall_ns(), body)
        self._audit.append(kind, body)
        await asyncio.to_thread(self._audit.sync)

    async def _record_end(self, command: Command, result: CommandResult) -> None:
        log.info("command", kind=command.kind.value, actor=command.actor, target=command.target, verdict=result.verdict.value)
        try:
            await self._record("command end", command, verdict=result.verdict.value, reason=result.reason)
        except PermanentError:
            log.error("command.not_audited", kind=command.kind.value, target=command.target)  # noqa: TRY400 - said once as broken
