"""Runs the parts of the house, restarts them, and says what is wrong; no part takes another down."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import structlog

from gateway.core.clock import NS_PER_S, Clock, sleep_s
from gateway.core.condition import Condition, Priority
from gateway.core.errors import ConfigError, LinesideError, PermanentError
from gateway.core.quality import Ne107

log = structlog.get_logger(__name__)

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_WELL_AFTER_S = 60.0


@dataclass(slots=True)
class _Part:
    task: asyncio.Task[None]
    restarts: int = 0


class Supervisor:
    """Owns named tasks. An error becomes a condition; all but permanent ones are followed by a restart after a growing pause.

    Args:
        clock: For the pauses.
        on_condition: Told of every failure and recovery.
    """

    def __init__(self, clock: Clock, on_condition: Callable[[Condition], None]) -> None:
        self._clock = clock
        self._on_condition = on_condition
        self._parts: dict[str, _Part] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop(*self._parts)

    def start(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a part until it returns, is stopped, or fails for good.

        Raises:
            ValueError: A part of that name is running.
        """
        if name in self._parts and not self._parts[name].task.done():
            raise ValueError(f"part {name} is already running")
        self._parts[name] = _Part(asyncio.create_task(self._keep_running(name, run), name=name))

    async def stop(self, *names: str) -> None:
        """Cancel parts and wait until they have ended."""
        parts = [self._parts.pop(name) for name in names if name in self._parts]
        for part in parts:
            part.task.cancel()
        await asyncio.gather(*(part.task for part in parts), return_exceptions=True)

    def restarts(self, name: str) -> int:
        """How often a part was started again."""
        return self._parts[name].restarts if name in self._parts else 0

    async def _keep_running(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            started_ns = self._clock.mono_ns()
            well = asyncio.create_task(self._say_well(name), name=f"{name} watch")
            try:
                await run()
            except (PermanentError, ConfigError) as error:
                self._say(name, error, f"{error.text}; stopped")
                return
            except LinesideError as error:
                self._say(name, error, error.text)
            except Exception as error:  # a fault of ours must not end the others
                log.exception("part.failed", part=name)
                self._say(name, error, f"internal error ({type(error).__name__}: {error})")
            else:
                return
            finally:
                well.cancel()
            if self._clock.mono_ns() - started_ns > _WELL_AFTER_S * NS_PER_S:
                pause_s = _FIRST_PAUSE_S
            await sleep_s(self._clock, pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            self._parts[name].restarts += 1

    async def _say_well(self, name: str) -> None:
        """A part that failed before is called well once it has run for a while."""
        await sleep_s(self._clock, _WELL_AFTER_S / 10)
        if self._parts[name].restarts:
            self._on_condition(Condition(name, "failed", active=False, since_wall_ns=self._clock.wall_ns()))

    def _say(self, name: str, error: Exception, text: str) -> None:
        remedy = error.remedy if isinstance(error, LinesideError) and error.remedy else "see the log; report it if it stays"
        log.warning("part.restart", part=name, text=text)
        self._on_condition(
            Condition(name, "failed", True, Priority.MEDIUM, text, remedy, Ne107.FAILURE, self._clock.wall_ns()),
        )
