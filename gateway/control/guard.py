"""The write guard: off until armed; limits, staleness, audit before each write, read-back after it, heartbeat, hold and release."""

from collections.abc import Callable, Hashable, Sequence

import structlog

from gateway.control.audit import Audit
from gateway.control.guarded import GuardedTarget, Surroundings
from gateway.control.limits import TargetRules
from gateway.control.state import GuardState
from gateway.core.clock import Clock
from gateway.core.command import Command, CommandKind, CommandResult, Verdict
from gateway.core.condition import Condition, Priority
from gateway.core.prediction import Outcome, OutputSpec, Prediction, Trace
from gateway.core.protocols import Target
from gateway.core.quality import Ne107
from gateway.core.snapshot import TargetStatus

__all__ = ["Guard", "GuardState"]

log = structlog.get_logger(__name__)

_STATES = {
    CommandKind.ARM: GuardState.ARMED,
    CommandKind.DISARM: GuardState.OFF,
    CommandKind.HOLD: GuardState.HELD,
    CommandKind.RELEASE: GuardState.ARMED,
}


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
        self._around = Surroundings(clock, audit, on_condition, on_closed, self._stop_all)
        self._targets: dict[str, GuardedTarget] = {}
        self._places: dict[str, Hashable] = {}

    def add(
        self, target: Target, *, model: str, asset: str, outputs: Sequence[OutputSpec], rules: TargetRules, place: Hashable = None
    ) -> None:
        """Guard a target.

        One that is known goes on in its state if model, outputs, rules and place are the same, else it is OFF. Its sequence goes on anyway.

        Args:
            target: Where to write.
            model: Whose predictions.
            asset: Of which asset.
            outputs: In the order of the predictions' columns.
            rules: How it is guarded.
            place: Whatever tells that it still stands for the same place on the same machine (device, address, byte order).

        Raises:
            ConfigError: An output has no limit, or a hold value lies outside its own.
        """
        entry = GuardedTarget(target, model=model, asset=asset, outputs=outputs, rules=rules, around=self._around)
        known = self._targets.get(target.name)
        if known is not None:
            entry.resume(known, same_place=self._places[target.name] == place)
        self._targets[target.name], self._places[target.name] = entry, place

    def remove(self, name: str) -> None:
        """Forget a target; a write under way is broken off."""
        entry = self._targets.pop(name, None)
        self._places.pop(name, None)
        if entry is not None:
            entry.set_state(GuardState.OFF, "removed from the configuration")

    @property
    def names(self) -> tuple[str, ...]:
        """The guarded targets."""
        return tuple(self._targets)

    def offer(self, prediction: Prediction) -> None:
        """Take a prediction for all targets of its model and asset; of several waiting for one target the newest wins."""
        if prediction.outcome is Outcome.CAUGHT_UP:
            return
        for entry in self._targets.values():
            if (entry.model, entry.asset) == (prediction.model, prediction.asset):
                entry.offer(prediction)

    async def run_target(self, name: str) -> None:
        """Write what is offered to one target until cancelled; its faults stay its own."""
        await self._targets[name].run()

    def _stop_all(self, reason: str) -> None:
        """Without an audit there are no writes."""
        for entry in self._targets.values():
            if entry.state is not GuardState.OFF:
                entry.set_state(GuardState.OFF, reason)
        log.error("guard.stopped", reason=reason)
        remedy = "free the disk, restart the gateway, arm again"
        now_ns = self._clock.wall_ns()
        self._on_condition(Condition("control", "writing stopped", True, Priority.HIGH, reason, remedy, Ne107.FAILURE, now_ns))

    def set_state(self, name: str, state: GuardState, reason: str) -> None:
        """Change a target's state at once (commands come through `handle`)."""
        self._targets[name].set_state(state, reason)

    async def handle(self, command: Command) -> CommandResult:
        """Arm, disarm, hold or release one target, or all of them; after the answer nothing of the earlier state is written any more."""
        names = [command.target] if command.target else list(self._targets)
        unknown = [name for name in names if name not in self._targets]
        if unknown or not names:
            known = ", ".join(self._targets) or "none"
            return CommandResult(command.id, Verdict.REFUSED, f"no target '{command.target}'; known: {known}")
        if command.kind not in _STATES:
            return CommandResult(command.id, Verdict.REFUSED, f"a target cannot be asked to {command.kind}")
        entries = [self._targets[name] for name in names]
        for entry in entries:
            objection = self._objection(entry, command)
            if objection:
                return CommandResult(command.id, Verdict.REFUSED, f"{entry.target.name}: {objection}")
        state = _STATES[command.kind]
        for entry in entries:
            entry.set_state(state, f"{command.kind} by {command.actor}")
        for entry in entries:
            await entry.quiet()
        return CommandResult(command.id, Verdict.ACCEPTED, f"{', '.join(names)}: {state}")

    def _objection(self, entry: GuardedTarget, command: Command) -> str:
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
        return tuple(entry.status() for entry in self._targets.values())
