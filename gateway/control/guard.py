"""The write guard: off until armed; limits, staleness, audit before each write, read-back after it, heartbeat, hold and release."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import structlog

from gateway.control.audit import Audit
from gateway.control.limits import TargetRules
from gateway.core.clock import NS_PER_MS, NS_PER_S, Clock
from gateway.core.command import Command, CommandKind, CommandResult, Verdict
from gateway.core.condition import Condition, Priority
from gateway.core.errors import DataError, LinesideError, PermanentError
from gateway.core.prediction import Outcome, OutputSpec, Prediction, Trace
from gateway.core.protocols import Target
from gateway.core.quality import Code, Level, Ne107, code, combine, level
from gateway.core.snapshot import TargetStatus

log = structlog.get_logger(__name__)


class GuardState(StrEnum):
    """OFF writes nothing; ARMED writes all; HELD writes the hold value with bad quality, heartbeat running."""

    OFF = "OFF"
    ARMED = "ARMED"
    HELD = "HELD"


@dataclass(slots=True)
class _Target:
    """One target and what was last done with it."""

    target: Target
    model: str
    asset: str
    outputs: Sequence[OutputSpec]
    rules: TargetRules
    state: GuardState = GuardState.OFF
    reason: str = "not armed"
    waiting: Prediction | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    sequence: int = 0
    beat: int = 0
    last_values: dict[str, float] = field(default_factory=dict)
    last_write_ns: int = 0
    loop_ms: float = 0.0
    written: int = 0
    verified: int = 0
    superseded: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    last_written: str = ""
    last_refusal: str = ""
    failing: str = ""


class Guard:
    """Guards every write to a machine.

    Args:
        clock: For ages and stamps.
        audit: Written before each write.
        on_condition: Told of failing targets.
        on_closed: Told the closed trace of each written prediction.
    """

    def __init__(
        self,
        clock: Clock,
        audit: Audit,
        on_condition: Callable[[Condition], None],
        on_closed: Callable[[Prediction, Trace], None],
    ) -> None:
        self._clock = clock
        self._audit = audit
        self._on_condition = on_condition
        self._on_closed = on_closed
        self._targets: dict[str, _Target] = {}

    def add(self, target: Target, *, model: str, asset: str, outputs: Sequence[OutputSpec], rules: TargetRules) -> None:
        """Guard a target. One that is known keeps its state and its sequence if its rules and outputs are the same, else it is OFF.

        Raises:
            ValueError: An output has no limit.
        """
        missing = [spec.name for spec in outputs if spec.name not in rules.limits]
        if missing:
            raise ValueError(f"target {target.name}: no limits for {', '.join(missing)}")
        known = self._targets.get(target.name)
        entry = _Target(target, model, asset, tuple(outputs), rules)
        if known is not None:
            entry.sequence, entry.beat = known.sequence, known.beat
            if (known.model, known.asset, known.outputs, known.rules) == (model, asset, entry.outputs, rules):
                entry.state, entry.reason, entry.last_values = known.state, known.reason, known.last_values
                entry.written, entry.verified, entry.refused = known.written, known.verified, known.refused
        self._targets[target.name] = entry

    def remove(self, name: str) -> None:
        """Forget a target."""
        self._targets.pop(name, None)

    @property
    def names(self) -> tuple[str, ...]:
        """The guarded targets."""
        return tuple(self._targets)

    def offer(self, prediction: Prediction) -> None:
        """Take a prediction for all targets of its model and asset; of several waiting for one target the newest wins."""
        if prediction.outcome is Outcome.CAUGHT_UP:
            return
        for entry in self._targets.values():
            if (entry.model, entry.asset) == (prediction.model, prediction.asset) and entry.state is not GuardState.OFF:
                if entry.waiting is not None:
                    entry.superseded += 1
                entry.waiting = prediction
                entry.arrived.set()

    async def run_target(self, name: str) -> None:
        """Write what is offered to one target until cancelled; its faults stay its own."""
        entry = self._targets[name]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat(entry), name=f"heartbeat {name}")
            tasks.create_task(self._write_for_ever(entry), name=f"writes {name}")

    async def _write_for_ever(self, entry: _Target) -> None:
        while True:
            await entry.arrived.wait()
            await self._clock.sleep_until(entry.last_write_ns + round(entry.rules.min_interval_ms * NS_PER_MS))
            entry.arrived.clear()
            prediction, entry.waiting = entry.waiting, None
            if prediction is None or entry.state is GuardState.OFF:
                continue
            async with entry.lock:
                await self._write(entry, prediction)

    async def _write(self, entry: _Target, prediction: Prediction) -> None:
        """One write, from the checks to the comparison; every way out is counted."""
        now_ns = self._clock.mono_ns()
        made_ns = prediction.trace.inference_end_ns or prediction.trace.window_ready_ns or now_ns
        valid_until_ns = made_ns + round(entry.rules.valid_for_ms * NS_PER_MS)
        if now_ns > valid_until_ns:
            self._refuse(entry, "stale", f"result {(now_ns - made_ns) / NS_PER_MS:.0f} ms old")
            return
        quality, values = self._judge(entry, prediction, now_ns)
        entry.sequence = entry.sequence % 0xFFFFFFFF + 1
        # A failed model leaves no trace of its window; what is written then is at least new itself.
        received_ns = prediction.trace.received_ns or now_ns
        fields = {
            "quality": float(quality),
            "sequence": float(entry.sequence),
            "age_ms": min(prediction.oldest_age_ns(now_ns) / NS_PER_MS, 4e9),
            "latency_ms": (now_ns - received_ns) / NS_PER_MS,
            "loop_ms": entry.loop_ms,
            **{f"value:{name}": value for name, value in values.items()},
        }
        if await self._carry_out(entry, fields, valid_until_ns):
            self._close(entry, prediction, quality, values)

    def _judge(self, entry: _Target, prediction: Prediction, now_ns: int) -> tuple[int, dict[str, float]]:
        """The quality word to write, and the values that may go with it: all of them or none."""
        if entry.state is GuardState.HELD:
            held = dict(entry.rules.hold) if entry.rules.hold else dict(entry.last_values)
            return Code.BAD_HELD, held
        if level(prediction.quality) is Level.BAD:
            self._refuse(entry, "bad quality", prediction.outcome.value)
            return prediction.quality, {}
        values: dict[str, float] = {}
        for spec, value in zip(entry.outputs, prediction.outputs.tolist(), strict=True):
            last = entry.last_values.get(spec.name)
            objection = entry.rules.limits[spec.name].objection(value, last, now_ns - entry.last_write_ns)
            if objection:
                self._refuse(entry, "limit", f"{spec.name}: {objection}")
                return combine(prediction.quality, Code.BAD_OUT_OF_RANGE), {}
            values[spec.name] = value
        return prediction.quality, values

    async def _carry_out(self, entry: _Target, fields: Mapping[str, float], valid_until_ns: int) -> bool:
        """Audit, write, read back.

        Returns:
            Whether the device is known (or, in a dry run, supposed) to hold the fields now.
        """
        try:
            words = entry.target.encode({name: value for name, value in fields.items() if name in entry.target.fields})
            self._audit.append("dry run" if entry.rules.dry_run else "write", {"target": entry.target.name, "fields": dict(fields)})
            started_ns = self._clock.mono_ns()
            if entry.rules.dry_run:
                entry.last_write_ns = started_ns
                return True
            await entry.target.write(words, valid_until_ns)
            entry.last_write_ns = self._clock.mono_ns()
            entry.written += 1
            if entry.rules.read_back:
                patience_ns = max(valid_until_ns, entry.last_write_ns + NS_PER_S)
                seen = await entry.target.read_back(list(words), patience_ns)
                differing = [name for name, value in words.items() if seen.get(name) != value]
                if differing:
                    raise DataError(
                        f"{differing[0]} reads back otherwise than written", remedy="look for another writer of these registers"
                    )
                entry.verified += 1
        except PermanentError as error:
            if self._audit.broken:
                self._stop_writing(error)
            self._fail(entry, error)
            return False
        except LinesideError as error:
            self._fail(entry, error)
            return False
        self._recover(entry)
        return True

    def _close(self, entry: _Target, prediction: Prediction, quality: int, values: dict[str, float]) -> None:
        read_back_ns = self._clock.mono_ns() if entry.rules.read_back and not entry.rules.dry_run else 0
        trace = replace(prediction.trace, written_ns=entry.last_write_ns, read_back_ns=read_back_ns)
        if trace.requested_ns:
            entry.loop_ms = ((read_back_ns or entry.last_write_ns) - trace.requested_ns) / NS_PER_MS
        if entry.state is GuardState.ARMED and values:
            entry.last_values = values
        shown = ", ".join(f"{name} {value:.4g}" for name, value in list(values.items())[:3]) or "quality only"
        proof = "dry run" if entry.rules.dry_run else "read back equal" if entry.rules.read_back else "not read back"
        entry.last_written = f"#{entry.sequence} {shown}, quality {code(quality)}, {proof}"
        if not entry.rules.dry_run:
            self._on_closed(prediction, trace)

    async def _beat(self, entry: _Target) -> None:
        """The heartbeat runs while armed or held, whatever the model does; only the loss of the gateway stops it."""
        while True:
            await self._clock.sleep_until(self._clock.mono_ns() + round(entry.rules.heartbeat_s * NS_PER_S))
            if entry.state is GuardState.OFF or entry.rules.dry_run or "heartbeat" not in entry.target.fields:
                continue
            entry.beat = (entry.beat + 1) % 0x10000
            deadline_ns = self._clock.mono_ns() + round(entry.rules.heartbeat_s * NS_PER_S)
            async with entry.lock:
                try:
                    if not self._audit.broken:
                        await entry.target.write(entry.target.encode({"heartbeat": float(entry.beat)}), deadline_ns)
                except LinesideError as error:
                    self._fail(entry, error)

    def _refuse(self, entry: _Target, reason: str, detail: str) -> None:
        entry.refused[reason] = entry.refused.get(reason, 0) + 1
        entry.last_refusal = f"{reason}: {detail}"

    def _fail(self, entry: _Target, error: LinesideError) -> None:
        self._refuse(entry, "not written", error.text)
        if entry.failing == error.text:
            return
        entry.failing = error.text
        log.warning("target.failing", target=entry.target.name, text=error.text)
        self._on_condition(
            Condition(
                entry.target.name, "write failed", True, Priority.MEDIUM, error.text, error.remedy, Ne107.FAILURE, self._clock.wall_ns()
            ),
        )

    def _recover(self, entry: _Target) -> None:
        if entry.failing:
            entry.failing = ""
            log.info("target.well", target=entry.target.name)
            self._on_condition(Condition(entry.target.name, "write failed", active=False, since_wall_ns=self._clock.wall_ns()))

    def _stop_writing(self, error: LinesideError) -> None:
        """Without an audit there are no writes."""
        for entry in self._targets.values():
            entry.state, entry.reason = GuardState.OFF, error.text

    def set_state(self, name: str, state: GuardState, reason: str) -> None:
        """Change a target's state at once (commands come through `handle`)."""
        entry = self._targets[name]
        entry.state, entry.reason, entry.waiting = state, reason, None

    async def handle(self, command: Command) -> CommandResult:
        """Arm, disarm, hold or release one target, or all of them."""
        names = [command.target] if command.target else list(self._targets)
        unknown = [name for name in names if name not in self._targets]
        if unknown or not names:
            known = ", ".join(self._targets) or "none"
            return CommandResult(command.id, Verdict.REFUSED, f"no target '{command.target}'; known: {known}")
        for name in names:
            objection = self._objection(self._targets[name], command)
            if objection:
                return CommandResult(command.id, Verdict.REFUSED, f"{name}: {objection}")
        state = {
            CommandKind.ARM: GuardState.ARMED,
            CommandKind.DISARM: GuardState.OFF,
            CommandKind.HOLD: GuardState.HELD,
            CommandKind.RELEASE: GuardState.ARMED,
        }[command.kind]
        for name in names:
            self.set_state(name, state, f"{command.kind} by {command.actor}")
        return CommandResult(command.id, Verdict.ACCEPTED, f"{', '.join(names)}: {state}")

    def _objection(self, entry: _Target, command: Command) -> str:
        if command.expected and command.expected != entry.state:
            return f"is {entry.state}, not {command.expected}"
        if self._audit.broken and command.kind is not CommandKind.DISARM:
            return self._audit.broken
        if command.kind is CommandKind.RELEASE and entry.state is not GuardState.HELD:
            return f"is {entry.state}, there is nothing to release"
        if command.kind is CommandKind.HOLD and entry.state is GuardState.OFF:
            return "is OFF; arm it first"
        if command.kind is CommandKind.ARM and entry.state is GuardState.HELD:
            return "is HELD; release it"
        return ""

    def status(self) -> tuple[TargetStatus, ...]:
        """State of all targets."""
        return tuple(
            TargetStatus(
                name,
                type(entry.target).__name__.removesuffix("Target").lower(),
                entry.state.value + (" (dry run)" if entry.rules.dry_run else ""),
                entry.failing or entry.reason,
                Ne107.FAILURE if entry.failing else Ne107.FUNCTION_CHECK if entry.state is GuardState.HELD else Ne107.GOOD,
                entry.written,
                entry.verified,
                dict(entry.refused),
                entry.last_written,
                entry.last_refusal,
            )
            for name, entry in self._targets.items()
        )
