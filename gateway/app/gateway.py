"""The gateway: opens the house, keeps one generation at work in it, answers reload, shows itself."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import IO

import structlog

from connectors.modbus.connector import ModbusConnector
from gateway.api.server import ApiServer, Queries
from gateway.app.generation import Generation, House
from gateway.config.load import Loaded, load
from gateway.control.alarms import Alarms
from gateway.control.audit import Audit
from gateway.control.commands import CommandRouter
from gateway.control.guard import Guard, GuardState
from gateway.core.clock import NS_PER_S, Clock, sleep_s
from gateway.core.command import Command, CommandKind, CommandResult, Verdict
from gateway.core.condition import Condition, Priority
from gateway.core.errors import ConfigError, LinesideError, TransientError
from gateway.core.prediction import Prediction, Trace
from gateway.core.quality import Ne107
from gateway.core.snapshot import GatewaySnapshot
from gateway.core.tags import TagTable
from gateway.health.resources import Resources
from gateway.pipeline.supervisor import Supervisor
from gateway.store.database import Database
from gateway.store.history import History
from gateway.store.journal import StoredJournal
from gateway.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)

_CONDITIONS_S = 0.5


class Gateway:
    """A running gateway. `run` is its whole life.

    Args:
        loaded: The checked configuration.
        clock: Everything's time.
    """

    def __init__(self, loaded: Loaded, clock: Clock) -> None:
        self._loaded = loaded
        self._clock = clock
        self._started_ns = clock.mono_ns()
        self._state = "starting"
        self._configuration = str(loaded.path)
        self._generation: Generation | None = None
        self._reloading = asyncio.Lock()

    async def run(self, stop: asyncio.Event, ready: Callable[["Gateway"], None] = lambda _gateway: None) -> None:
        """Work until `stop` is set, then end everything in order.

        Args:
            stop: Ends it.
            ready: Told once all is up.

        Raises:
            LinesideError: It cannot start; the text says what to do.
        """
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._generation = Generation(self._loaded, self._house)
            await self._generation.__aenter__()
            stack.push_async_callback(self._end_generation)
            self._arm_at_start()
            await stack.enter_async_context(self._api())
            self._supervisor.start("conditions", self._watch_conditions)
            self._state = "running"
            log.info("gateway.running", gateway=self._loaded.settings.gateway.name, socket=str(self._loaded.socket))
            ready(self)
            await stop.wait()
            self._state = "stopping"
            log.info("gateway.stopping")

    async def _open(self, stack: AsyncExitStack) -> None:
        """The house, from the ground up."""
        clock, settings = self._clock, self._loaded.settings
        stack.callback(_lock(self._loaded.state_dir).close)
        database = await stack.enter_async_context(Database(self._loaded.state_dir / "history.db", clock))
        self._journal = StoredJournal(database, clock)
        stack.push_async_callback(self._journal.flush)
        self._alarms = Alarms(clock, self._journal)
        self._note_quarantine(database)
        audit = Audit(self._loaded.state_dir / "audit.jsonl", clock)
        stack.callback(audit.close)
        self._audit = audit
        self._router = CommandRouter(clock, audit, self._journal)
        self._guard = Guard(clock, audit, self._alarms.condition, self._closed)
        self._router.register([CommandKind.ARM, CommandKind.DISARM, CommandKind.HOLD, CommandKind.RELEASE], self._guard)
        self._router.register([CommandKind.ACKNOWLEDGE, CommandKind.SHELVE], self._alarms)
        self._router.register([CommandKind.RELOAD], self)
        table = TagTable()
        kept = settings.history
        history = History(database, table, clock, block_s=kept.block_s, retention_h=kept.retention_h, max_mb=kept.max_mb)
        stack.push_async_callback(history.close)
        self._history = history
        self._resources = Resources(clock)
        modbus = await stack.enter_async_context(ModbusConnector(clock))
        self._supervisor = await stack.enter_async_context(Supervisor(clock, self._alarms.condition))
        self._house = House(clock, table, self._supervisor, modbus, database, history, self._guard, self._alarms)
        for name, run in (("audit", audit.run), ("journal", self._journal.run), ("resources", self._resources.run)):
            self._supervisor.start(name, run)

    def _note_quarantine(self, database: Database) -> None:
        if database.quarantined is not None:
            text = f"history was damaged and has been moved to {database.quarantined.name}"
            now_ns = self._clock.wall_ns()
            remedy = "check the disk; the old file can be examined with sqlite3"
            condition = Condition("history", "damaged", True, Priority.LOW, text, remedy, Ne107.MAINTENANCE_REQUIRED, now_ns)
            self._alarms.condition(condition)

    def _api(self) -> ApiServer:
        metrics = Metrics(lambda: self.snapshot([]))
        queries = Queries(
            snapshot=self.snapshot,
            ailments=self.ailments,
            history=self._history.rows,
            predictions=self._history.predictions,
            journal=self._journal.newest,
            command=self._router.handle,
            metrics=metrics.render,
            tape=self.tape,
        )
        wanted = self._loaded.settings.gateway.metrics
        return ApiServer(self._loaded.socket, queries, metrics_host=wanted.host, metrics_port=wanted.port)

    async def _end_generation(self) -> None:
        if self._generation is not None:
            await self._generation.__aexit__(None, None, None)

    def _arm_at_start(self) -> None:
        if not self._loaded.settings.control.arm_at_start:
            return
        for name in self._guard.names:
            self._audit.append("armed at start", {"target": name, "configuration": self._configuration})
            self._audit.sync()
            self._guard.set_state(name, GuardState.ARMED, "armed at start by the configuration")

    def _closed(self, prediction: Prediction, trace: Trace) -> None:
        if self._generation is not None:
            self._generation.closed(prediction, trace)

    async def _watch_conditions(self) -> None:
        """Carry the conditions of sources and sinks to the alarms."""
        while True:
            generation = self._generation
            if generation is not None:
                for stage in generation.sources:
                    for condition in stage.source.conditions():
                        self._alarms.condition(condition)
                for outbox in generation.outboxes:
                    for condition in outbox.conditions():
                        self._alarms.condition(condition)
            await sleep_s(self._clock, _CONDITIONS_S)

    async def handle(self, command: Command) -> CommandResult:
        """Reload: the file is read and checked; a bad one changes nothing, and the answer says what is wrong with it."""
        async with self._reloading:
            try:
                loaded = await asyncio.to_thread(load, Path(command.arguments.get("path") or self._loaded.path))
                self._check_unchanged(loaded)
                await self._replace(loaded)
            except ConfigError as error:
                self._note_reload(str(error))
                return CommandResult(command.id, Verdict.REFUSED, f"{error}\nthe old configuration stays in service")
            self._note_reload("")
            return CommandResult(command.id, Verdict.ACCEPTED, f"{loaded.path} is in service")

    def _check_unchanged(self, loaded: Loaded) -> None:
        """What the process was started with cannot change under it."""
        for what, old, new in (
            ("gateway.state_dir", self._loaded.state_dir, loaded.state_dir),
            ("gateway.socket", self._loaded.socket, loaded.socket),
            ("gateway.metrics", self._loaded.settings.gateway.metrics, loaded.settings.gateway.metrics),
            ("history", self._loaded.settings.history, loaded.settings.history),
        ):
            if old != new:
                raise ConfigError(f"{what} cannot change while running", remedy="restart the gateway to change it")

    async def _replace(self, loaded: Loaded) -> None:
        """Stop the old generation, start the new; if that cannot start, the old one again."""
        await self._end_generation()
        self._generation = None
        fresh = Generation(loaded, self._house)
        try:
            await fresh.__aenter__()
        except LinesideError as error:
            old = Generation(self._loaded, self._house)
            await old.__aenter__()
            self._generation = old
            raise ConfigError(error.text, remedy=error.remedy) from error
        self._generation, self._loaded = fresh, loaded
        log.info("gateway.reloaded", path=str(loaded.path))

    def _note_reload(self, text: str) -> None:
        first = text.splitlines()[0] if text else ""
        now_ns = self._clock.wall_ns()
        remedy = "correct the file and reload again; the old configuration stays in service"
        condition = Condition("gateway", "reload refused", bool(text), Priority.LOW, first, remedy, Ne107.MAINTENANCE_REQUIRED, now_ns)
        self._alarms.condition(condition)

    async def tape(self, model: str) -> AsyncIterator[bytes]:
        """Frames of a model's intake from now on.

        Raises:
            TransientError: The gateway is between two configurations.
            ConfigError: There is no such model.
        """
        if self._generation is None:
            raise TransientError("the gateway is reloading", remedy="try again")
        async for frame in self._generation.tape(model):
            yield frame

    def ailments(self) -> list[str]:
        """Why the gateway is not well, in the operator's words; empty if it is."""
        snapshot = self.snapshot([])
        groups = (snapshot.stages, snapshot.sources, snapshot.models, snapshot.targets, snapshot.sinks)
        words = [(part.name, part.word) for group in groups for part in group]
        reasons = [f"{name}: {word.name.lower().replace('_', ' ')}" for name, word in words if word >= Ne107.OUT_OF_SPECIFICATION]
        return reasons if snapshot.state == "running" else [f"the gateway is {snapshot.state}", *reasons]

    def snapshot(self, tags: list[str]) -> GatewaySnapshot:
        """The summary now, with the headline tags and those asked for."""
        settings, generation = self._loaded.settings, self._generation
        empty = GatewaySnapshot(
            settings.gateway.name,
            version("lineside"),
            self._state,
            self._clock.wall_ns(),
            (self._clock.mono_ns() - self._started_ns) / NS_PER_S,
            self._resources.loop_delay_ms,
            self._resources.rss_mb,
            self._configuration,
            alarms=self._alarms.current(),
            targets=self._guard.status(),
            simulated=settings.gateway.simulated,
        )
        if generation is None:
            return replace(empty, state="reloading")
        restarts = self._supervisor.restarts
        stages = [
            *(stage.status(restarts(f"source {stage.source.name}")) for stage in generation.sources),
            *(predictor.stage() for predictor in generation.predictors.values()),
            *(stage.status() for stage in generation.stages),
            *(outbox.stage() for outbox in generation.outboxes),
        ]
        names = list(dict.fromkeys([*settings.gateway.headline, *tags]))
        return replace(
            empty,
            stages=tuple(stages),
            sources=generation.latest.filled([stage.source.status() for stage in generation.sources]),
            models=tuple(predictor.status() for predictor in generation.predictors.values()),
            sinks=tuple(outbox.status() for outbox in generation.outboxes),
            tags=generation.latest.statuses(names),
        )


def _lock(state_dir: Path) -> IO[str]:
    """One gateway per state folder.

    Raises:
        ConfigError: The folder cannot be written, or another gateway uses it.
    """
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        file = (state_dir / "lock").open("a+", encoding="ascii")
    except OSError as error:
        raise ConfigError(f"state folder {state_dir}: {error.strerror}", remedy="make it writable, or set gateway.state_dir") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise ConfigError(f"another gateway (process {holder}) uses {state_dir}", remedy="stop it, or set another state_dir") from error
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file
