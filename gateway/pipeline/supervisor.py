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
_BUDGET = 5
_BUDGET_S = 600.0


@dataclass(slots=True)
class _Part:
    task: asyncio.Task[None]
    restarts: int = 0
    failing: bool = False
    given_up: str = ""


class Supervisor:
    """Owns named tasks. An error becomes a condition; all but permanent ones are followed by a restart after a growing pause.

    What nobody expected is restarted five times within ten minutes and then given up.

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

    def failed(self, name: str) -> str:
        """Why a part was given up for good, empty if it was not."""
        return self._parts[name].given_up if name in self._parts else ""

    async def _keep_running(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        pause_s = _FIRST_PAUSE_S
        faults_ns: list[int] = []
        while True:
            started_ns = self._clock.mono_ns()
            error = await self._run_once(name, run)
            if name not in self._parts:
                return  # stopped, and what it said while it was going is of no use
            if error is None:
                self._say_well(name)
                return
            now_ns = self._clock.mono_ns()
            if isinstance(error, PermanentError | ConfigError):
                self._give_up(name, error, f"{error.text}; stopped")
                return
            text = error.text if isinstance(error, LinesideError) else f"internal error ({type(error).__name__}: {error})"
            if not isinstance(error, LinesideError):
                # A fault of ours must not end the others, nor may it be repeated for ever.
                log.error("part.failed", part=name, exc_info=error)
                faults_ns = [at_ns for at_ns in faults_ns if now_ns - at_ns < _BUDGET_S * NS_PER_S] + [now_ns]
                if len(faults_ns) > _BUDGET:
                    self._give_up(name, error, f"{text}, {len(faults_ns)} times in {_BUDGET_S / 60:g} minutes; stopped")
                    return
            self._say(name, error, text)
            if now_ns - started_ns > _WELL_AFTER_S * NS_PER_S:
                pause_s = _FIRST_PAUSE_S
            await sleep_s(self._clock, pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            self._parts[name].restarts += 1

    async def _run_once(self, name: str, run: Callable[[], Awaitable[None]]) -> Exception | None:
        """The part's own error, if it ended with one; to be cancelled from outside is none of its errors."""
        well = asyncio.create_task(self._watch_well(name), name=f"{name} watch")
        try:
            await run()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return RuntimeError(f"cancelled from inside {error}".rstrip())
        except Exception as error:  # noqa: BLE001 - what is caught here is judged and reported by the caller
            return _worst(error)
        finally:
            well.cancel()
        return None

    async def _watch_well(self, name: str) -> None:
        """A part that failed before is called well once it has run for a while."""
        await sleep_s(self._clock, _WELL_AFTER_S / 10)
        self._say_well(name)

    def _say_well(self, name: str) -> None:
        part = self._parts.get(name)
        if part is not None and part.failing:
            part.failing = False
            log.info("part.well", part=name)
            self._on_condition(Condition(name, "failed", active=False, since_wall_ns=self._clock.wall_ns()))

    def _give_up(self, name: str, error: Exception, text: str) -> None:
        self._parts[name].given_up = text
        self._say(name, error, text)

    def _say(self, name: str, error: Exception, text: str) -> None:
        remedy = error.remedy if isinstance(error, LinesideError) and error.remedy else "see the log; report it if it stays"
        part = self._parts[name]
        if not part.failing or part.given_up:
            log.warning("part.stopped" if part.given_up else "part.restart", part=name, text=text)
        part.failing = True
        self._on_condition(
            Condition(name, "failed", True, Priority.MEDIUM, text, remedy, Ne107.FAILURE, self._clock.wall_ns()),
        )


def _worst(error: Exception) -> Exception:
    """Of what a task group brings up, the error that decides: one that forbids a restart, then one that nobody expected."""
    if not isinstance(error, ExceptionGroup):
        return error
    leaves = [_worst(inner) for inner in error.exceptions]
    ranks = [0 if isinstance(leaf, PermanentError | ConfigError) else 2 if isinstance(leaf, LinesideError) else 1 for leaf in leaves]
    return leaves[ranks.index(min(ranks))]
