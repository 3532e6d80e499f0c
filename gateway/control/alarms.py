"""Alarms from conditions, in one place: raise, clear, acknowledge, shelve; states after ISA-18.2."""

from collections.abc import Callable
from dataclasses import replace

from gateway.core.clock import NS_PER_S, Clock
from gateway.core.command import Command, CommandKind, CommandResult, Verdict
from gateway.core.condition import Alarm, AlarmState, Condition, Priority
from gateway.core.protocols import Journal

_MAX_SHELVE_S = 12 * 3600.0


def next_state(state: AlarmState, *, active: bool, acknowledged: bool = False) -> AlarmState:
    """The ISA-18.2 transition of a condition's change or of an acknowledgement (A normal, B unacknowledged, C acknowledged, D returned)."""
    if state in (AlarmState.SHELVED, AlarmState.SUPPRESSED, AlarmState.OUT_OF_SERVICE):
        return state
    if acknowledged:
        return AlarmState.ACKNOWLEDGED if active else AlarmState.NORMAL
    if active:
        return AlarmState.ACKNOWLEDGED if state is AlarmState.ACKNOWLEDGED else AlarmState.UNACKNOWLEDGED
    return AlarmState.RETURNED if state in (AlarmState.UNACKNOWLEDGED, AlarmState.RETURNED) else AlarmState.NORMAL


class Alarms:
    """The keyed map of conditions and the alarms made from them.

    Args:
        clock: For stamps and shelving.
        journal: Keeps every change.
    """

    def __init__(self, clock: Clock, journal: Journal) -> None:
        self._clock = clock
        self._journal = journal
        self._alarms: dict[str, Alarm] = {}
        self._listeners: list[Callable[[Alarm], None]] = []

    def listen(self, listener: Callable[[Alarm], None]) -> None:
        """Tell a listener of every change."""
        self._listeners.append(listener)

    def condition(self, condition: Condition) -> None:
        """Take the latest state of a condition; one that has not changed does nothing."""
        known = self._alarms.get(condition.key)
        if known is None:
            if condition.active:
                self._set(condition.key, Alarm(condition, AlarmState.UNACKNOWLEDGED))
            return
        if known.condition.active == condition.active and known.condition.text == condition.text:
            return
        if known.condition.active and not condition.active:
            # A cleared alarm keeps its words: the operator must still see what it was.
            condition = replace(known.condition, active=False, since_wall_ns=condition.since_wall_ns)
        self._set(condition.key, replace(known, condition=condition, state=next_state(known.state, active=condition.active)))

    def _set(self, key: str, alarm: Alarm) -> None:
        if alarm.state is AlarmState.NORMAL:
            self._alarms.pop(key, None)
        else:
            self._alarms[key] = alarm
        body = {
            "key": key,
            "state": alarm.state.value,
            "active": alarm.condition.active,
            "priority": int(alarm.condition.priority),
            "text": alarm.condition.text,
            "by": alarm.acknowledged_by,
        }
        self._journal.record("alarm", self._clock.wall_ns(), body)
        for listener in self._listeners:
            listener(alarm)

    def _unshelve(self) -> None:
        """A shelf has an end; then the alarm is as the condition is."""
        now_ns = self._clock.wall_ns()
        for key, alarm in list(self._alarms.items()):
            if alarm.state is AlarmState.SHELVED and now_ns >= alarm.shelved_until_wall_ns:
                state = AlarmState.UNACKNOWLEDGED if alarm.condition.active else AlarmState.NORMAL
                self._set(key, replace(alarm, state=state, shelved_until_wall_ns=0, shelve_reason=""))

    def current(self) -> tuple[Alarm, ...]:
        """Alarms that are not normal: unacknowledged first, then by priority, newest first."""
        self._unshelve()
        order = {AlarmState.UNACKNOWLEDGED: 0, AlarmState.RETURNED: 1, AlarmState.ACKNOWLEDGED: 2}
        alarms = [alarm for alarm in self._alarms.values() if alarm.condition.priority is not Priority.DIAGNOSTIC]
        return tuple(
            sorted(alarms, key=lambda a: (order.get(a.state, 3), a.condition.priority, -a.condition.since_wall_ns)),
        )

    async def handle(self, command: Command) -> CommandResult:
        """Acknowledge (one by key, or all) or shelve (`reason` and `duration_s` are required)."""
        keys = [command.target] if command.target else list(self._alarms)
        if command.target and command.target not in self._alarms:
            return CommandResult(command.id, Verdict.REFUSED, f"no alarm '{command.target}'")
        if command.kind is CommandKind.SHELVE:
            return self._shelve(command)
        for key in keys:
            alarm = self._alarms[key]
            state = next_state(alarm.state, active=alarm.condition.active, acknowledged=True)
            self._set(key, replace(alarm, state=state, acknowledged_by=command.actor))
        return CommandResult(command.id, Verdict.ACCEPTED, f"{len(keys)} acknowledged")

    def _shelve(self, command: Command) -> CommandResult:
        reason = command.arguments.get("reason", "").strip()
        try:
            duration_s = float(command.arguments.get("duration_s", ""))
        except ValueError:
            duration_s = 0.0
        if not command.target or not reason or not 0 < duration_s <= _MAX_SHELVE_S:
            text = f"shelving needs an alarm, a reason and a duration_s of at most {_MAX_SHELVE_S:.0f}"
            return CommandResult(command.id, Verdict.REFUSED, text)
        until_ns = self._clock.wall_ns() + round(duration_s * NS_PER_S)
        alarm = replace(
            self._alarms[command.target],
            state=AlarmState.SHELVED,
            shelved_until_wall_ns=until_ns,
            shelve_reason=reason,
            acknowledged_by=command.actor,
        )
        self._set(command.target, alarm)
        return CommandResult(command.id, Verdict.ACCEPTED, f"shelved for {duration_s:.0f} s")
