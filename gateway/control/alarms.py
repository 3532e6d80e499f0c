"""Alarms from conditions, in one place: raise, clear, acknowledge, shelve, suppress, out of service; states after ISA-18.2."""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from gateway.core.clock import NS_PER_S, Clock
from gateway.core.command import Command, CommandKind, CommandResult, Verdict
from gateway.core.condition import Alarm, AlarmState, Condition, Priority
from gateway.core.protocols import Journal

_MAX_SHELVE_S = 12 * 3600.0
_ASIDE = (AlarmState.SHELVED, AlarmState.SUPPRESSED, AlarmState.OUT_OF_SERVICE)
_ORDER = {AlarmState.UNACKNOWLEDGED: 0, AlarmState.RETURNED: 1, AlarmState.ACKNOWLEDGED: 2}


class AlarmEvent(StrEnum):
    """What moves an alarm from one state to another."""

    RAISE = "raise"
    CLEAR = "clear"
    ACKNOWLEDGE = "acknowledge"
    SHELVE = "shelve"
    SUPPRESS = "suppress"
    TAKE_OUT = "take out of service"
    RESTORE = "restore"


def next_state(state: AlarmState, event: AlarmEvent, *, active: bool) -> AlarmState:
    """The ISA-18.2 transition (A normal, B unacknowledged, C acknowledged, D returned, E shelved, F suppressed, G out of service).

    Args:
        state: Before.
        event: What happened.
        active: Whether the condition is active, the event included.
    """
    match event:
        case AlarmEvent.SHELVE:
            return AlarmState.SHELVED
        case AlarmEvent.SUPPRESS:
            return AlarmState.SUPPRESSED
        case AlarmEvent.TAKE_OUT:
            return AlarmState.OUT_OF_SERVICE
        case AlarmEvent.RESTORE:
            if state not in _ASIDE:
                return state
            return AlarmState.UNACKNOWLEDGED if active else AlarmState.NORMAL
    if state in _ASIDE:
        return state
    match event:
        case AlarmEvent.RAISE:
            return AlarmState.ACKNOWLEDGED if state is AlarmState.ACKNOWLEDGED else AlarmState.UNACKNOWLEDGED
        case AlarmEvent.CLEAR:
            return AlarmState.RETURNED if state in (AlarmState.UNACKNOWLEDGED, AlarmState.RETURNED) else AlarmState.NORMAL
        case AlarmEvent.ACKNOWLEDGE:
            return AlarmState.ACKNOWLEDGED if active else AlarmState.NORMAL


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
        self._shelf_end_ns: dict[str, int] = {}
        self._aside: dict[str, AlarmState] = {}
        self._listeners: list[Callable[[Alarm], None]] = []

    def listen(self, listener: Callable[[Alarm], None]) -> None:
        """Tell a listener of every change."""
        self._listeners.append(listener)

    def condition(self, condition: Condition) -> None:
        """Take the latest state of a condition; one that has not changed does nothing, new words alone are no event."""
        known = self._alarms.get(condition.key)
        was_active = known is not None and known.condition.active
        if not condition.active and not was_active:
            return
        if not condition.since_wall_ns:
            condition = replace(condition, since_wall_ns=self._clock.wall_ns())
        if condition.active and was_active and known is not None:
            latest = replace(condition, since_wall_ns=known.condition.since_wall_ns)
            self._alarms[condition.key] = replace(known, condition=latest)
            return
        if condition.priority is Priority.DIAGNOSTIC or (known is not None and known.condition.priority is Priority.DIAGNOSTIC):
            self._event(condition, known)
        elif condition.active:
            state = next_state(known.state if known else AlarmState.NORMAL, AlarmEvent.RAISE, active=True)
            state = self._aside.get(condition.component, state)
            self._set(condition.key, Alarm(condition, state) if known is None else replace(known, condition=condition, state=state))
        elif known is not None:
            # A cleared alarm keeps its words: the operator must still see what it was.
            cleared = replace(known.condition, active=False, since_wall_ns=condition.since_wall_ns)
            state = next_state(known.state, AlarmEvent.CLEAR, active=False)
            self._set(condition.key, replace(known, condition=cleared, state=state))

    def _event(self, condition: Condition, known: Alarm | None) -> None:
        """What needs no operator is remembered while it lasts, and journalled."""
        if condition.active:
            self._alarms[condition.key] = Alarm(condition, AlarmState.ACKNOWLEDGED)
        else:
            self._alarms.pop(condition.key, None)
        text = condition.text if condition.active or known is None else known.condition.text
        self._journal.record("event", self._clock.wall_ns(), {"key": condition.key, "active": condition.active, "text": text})

    def _set(self, key: str, alarm: Alarm) -> None:
        if alarm.state is AlarmState.UNACKNOWLEDGED:
            alarm = replace(alarm, acknowledged_by="")
        if alarm.state is not AlarmState.SHELVED:
            self._shelf_end_ns.pop(key, None)
            alarm = replace(alarm, shelved_until_wall_ns=0, shelve_reason="")
        if alarm.state is AlarmState.NORMAL or (
            alarm.state in (AlarmState.SUPPRESSED, AlarmState.OUT_OF_SERVICE) and not alarm.condition.active
        ):
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

    def set_aside(self, component: str, state: AlarmState | None) -> None:
        """Suppress a component's alarms by design, take them out of service, or (None) restore them as their conditions then are.

        Raises:
            ValueError: The state is none of these.
        """
        if state not in (AlarmState.SUPPRESSED, AlarmState.OUT_OF_SERVICE, None):
            raise ValueError(f"alarms cannot be set aside as {state}")
        event = AlarmEvent.RESTORE if state is None else AlarmEvent.SUPPRESS if state is AlarmState.SUPPRESSED else AlarmEvent.TAKE_OUT
        if state is None:
            self._aside.pop(component, None)
        else:
            self._aside[component] = state
        for key, alarm in list(self._alarms.items()):
            if alarm.condition.component != component or alarm.condition.priority is Priority.DIAGNOSTIC:
                continue
            if event is AlarmEvent.RESTORE and alarm.state is AlarmState.SHELVED:
                continue
            changed = next_state(alarm.state, event, active=alarm.condition.active)
            if changed is not alarm.state:
                self._set(key, replace(alarm, state=changed))

    def _unshelve(self) -> None:
        """A shelf has an end, by monotonic time; then the alarm is as the condition is."""
        now_ns = self._clock.mono_ns()
        for key, end_ns in list(self._shelf_end_ns.items()):
            if now_ns >= end_ns:
                alarm = self._alarms[key]
                self._set(key, replace(alarm, state=next_state(alarm.state, AlarmEvent.RESTORE, active=alarm.condition.active)))

    def current(self) -> tuple[Alarm, ...]:
        """Alarms that are not normal: unacknowledged first, then by priority, newest first."""
        self._unshelve()
        alarms = [alarm for alarm in self._alarms.values() if alarm.condition.priority is not Priority.DIAGNOSTIC]
        return tuple(
            sorted(alarms, key=lambda a: (_ORDER.get(a.state, 3), a.condition.priority, -a.condition.since_wall_ns)),
        )

    async def handle(self, command: Command) -> CommandResult:
        """Acknowledge (one by key, or all) or shelve (`reason` and `duration_s` are required; a duration of 0 ends the shelving)."""
        self._unshelve()
        known = self._alarms.get(command.target)
        if command.target and (known is None or known.condition.priority is Priority.DIAGNOSTIC):
            return CommandResult(command.id, Verdict.REFUSED, f"no alarm '{command.target}'")
        if command.kind is CommandKind.SHELVE:
            return self._shelve(command, known)
        if command.kind is not CommandKind.ACKNOWLEDGE:
            return CommandResult(command.id, Verdict.REFUSED, f"an alarm cannot be asked to {command.kind}")
        keys = [command.target] if command.target else list(self._alarms)
        waiting = [key for key in keys if self._alarms[key].state in (AlarmState.UNACKNOWLEDGED, AlarmState.RETURNED)]
        if command.target and not waiting and known is not None:
            return CommandResult(command.id, Verdict.REFUSED, f"'{command.target}' is {known.state.value}")
        for key in waiting:
            alarm = self._alarms[key]
            state = next_state(alarm.state, AlarmEvent.ACKNOWLEDGE, active=alarm.condition.active)
            self._set(key, replace(alarm, state=state, acknowledged_by=command.actor))
        return CommandResult(command.id, Verdict.ACCEPTED, f"{len(waiting)} acknowledged")

    def _shelve(self, command: Command, alarm: Alarm | None) -> CommandResult:
        reason = command.arguments.get("reason", "").strip()
        try:
            duration_s = float(command.arguments.get("duration_s", ""))
        except ValueError:
            duration_s = -1.0
        if alarm is not None and alarm.state is AlarmState.SHELVED and duration_s == 0:
            self._set(command.target, replace(alarm, state=next_state(alarm.state, AlarmEvent.RESTORE, active=alarm.condition.active)))
            return CommandResult(command.id, Verdict.ACCEPTED, "no longer shelved")
        if alarm is None or not reason or not 0 < duration_s <= _MAX_SHELVE_S:
            text = f"shelving needs an alarm, a reason and a duration_s of at most {_MAX_SHELVE_S:.0f}"
            return CommandResult(command.id, Verdict.REFUSED, text)
        if alarm.state in (AlarmState.SUPPRESSED, AlarmState.OUT_OF_SERVICE):
            return CommandResult(command.id, Verdict.REFUSED, f"'{command.target}' is {alarm.state.value}")
        self._shelf_end_ns[command.target] = self._clock.mono_ns() + round(duration_s * NS_PER_S)
        shelved = replace(
            alarm,
            state=next_state(alarm.state, AlarmEvent.SHELVE, active=alarm.condition.active),
            shelved_until_wall_ns=self._clock.wall_ns() + round(duration_s * NS_PER_S),
            shelve_reason=reason,
            acknowledged_by=command.actor,
        )
        self._set(command.target, shelved)
        return CommandResult(command.id, Verdict.ACCEPTED, f"shelved for {duration_s:.0f} s")
