"""Alarms after ISA-18.2: what the operator does never hides what is wrong."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.control.alarms import AlarmEvent, Alarms, next_state
from gateway.core.command import Command, CommandKind, CommandResult, Verdict
from gateway.core.condition import Alarm, AlarmState, Condition, Priority
from tests.unit.control.machine import Memory
from tests.virtual_clock import VirtualClock

N, B, C, D = AlarmState.NORMAL, AlarmState.UNACKNOWLEDGED, AlarmState.ACKNOWLEDGED, AlarmState.RETURNED
E, F, G = AlarmState.SHELVED, AlarmState.SUPPRESSED, AlarmState.OUT_OF_SERVICE
KEY = "plc/unreachable"


def condition(*, active: bool, text: str = "no answer", priority: Priority = Priority.MEDIUM, kind: str = "unreachable") -> Condition:
    return Condition("plc", kind, active, priority, text)


def only(alarms: Alarms) -> Alarm:
    (alarm,) = alarms.current()
    return alarm


async def shelve(alarms: Alarms, key: str = KEY, **arguments: str) -> CommandResult:
    return await alarms.handle(Command("1", "eve", CommandKind.SHELVE, key, arguments))


async def acknowledge(alarms: Alarms, key: str = KEY) -> CommandResult:
    return await alarms.handle(Command("1", "eve", CommandKind.ACKNOWLEDGE, key))


@pytest.mark.parametrize(
    ("state", "event", "active", "expected"),
    [
        (N, AlarmEvent.RAISE, True, B),
        (B, AlarmEvent.ACKNOWLEDGE, True, C),
        (C, AlarmEvent.CLEAR, False, N),
        (B, AlarmEvent.CLEAR, False, D),
        (D, AlarmEvent.ACKNOWLEDGE, False, N),
        (D, AlarmEvent.RAISE, True, B),
        (C, AlarmEvent.RAISE, True, C),
        *((state, AlarmEvent.SHELVE, True, E) for state in (B, C, D)),
        *((state, event, True, state) for state in (E, F, G) for event in (AlarmEvent.RAISE, AlarmEvent.CLEAR, AlarmEvent.ACKNOWLEDGE)),
        *((state, AlarmEvent.RESTORE, True, B) for state in (E, F, G)),
        *((state, AlarmEvent.RESTORE, False, N) for state in (E, F, G)),
    ],
)
def test_the_transitions_are_those_of_the_standard(state: AlarmState, event: AlarmEvent, active: bool, expected: AlarmState) -> None:
    assert next_state(state, event, active=active) is expected


async def test_an_acknowledgement_never_hides_an_active_alarm_and_a_new_fault_asks_again() -> None:
    alarms = Alarms(VirtualClock(), Memory())
    alarms.condition(condition(active=True))
    assert (await acknowledge(alarms)).verdict is Verdict.ACCEPTED
    assert (only(alarms).state, only(alarms).acknowledged_by) == (C, "eve")
    assert (await acknowledge(alarms)).verdict is Verdict.REFUSED
    alarms.condition(condition(active=False))
    assert alarms.current() == ()
    alarms.condition(condition(active=True))
    assert (only(alarms).state, only(alarms).acknowledged_by) == (B, "")


async def test_a_fault_that_went_by_itself_stays_until_somebody_has_seen_it() -> None:
    alarms = Alarms(VirtualClock(), Memory())
    alarms.condition(condition(active=True))
    alarms.condition(condition(active=False, text=""))
    assert (only(alarms).state, only(alarms).condition.text) == (D, "no answer")
    await acknowledge(alarms, "")
    assert alarms.current() == ()


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"reason": "works"},
        {"duration_s": "60"},
        {"reason": " ", "duration_s": "60"},
        *({"reason": "works", "duration_s": duration} for duration in ("0", "-1", "nan", "inf", "43201", "soon")),
    ],
)
async def test_shelving_without_a_reason_or_an_end_is_refused(arguments: dict[str, str]) -> None:
    alarms = Alarms(VirtualClock(), Memory())
    alarms.condition(condition(active=True))
    assert (await shelve(alarms, **arguments)).verdict is Verdict.REFUSED
    assert only(alarms).state is B


@pytest.mark.parametrize("active", [True, False])
async def test_a_shelf_ends_by_itself_and_the_alarm_is_as_its_condition_then_is(active: bool) -> None:
    clock = VirtualClock()
    alarms = Alarms(clock, Memory())
    alarms.condition(condition(active=True))
    assert (await shelve(alarms, reason="works", duration_s="60")).verdict is Verdict.ACCEPTED
    alarms.condition(condition(active=active))
    clock.step_wall(86400)
    await clock.advance(59)
    assert (only(alarms).state, only(alarms).shelve_reason) == (E, "works")
    await clock.advance(2)
    assert [alarm.state for alarm in alarms.current()] == ([B] if active else [])


async def test_what_does_not_exist_can_be_neither_acknowledged_nor_shelved() -> None:
    alarms = Alarms(VirtualClock(), Memory())
    assert (await acknowledge(alarms)).verdict is Verdict.REFUSED
    assert (await shelve(alarms, reason="works", duration_s="60")).verdict is Verdict.REFUSED


def test_suppressed_alarms_come_back_as_their_conditions_are() -> None:
    alarms = Alarms(VirtualClock(), Memory())
    alarms.condition(condition(active=True))
    alarms.set_aside("plc", F)
    alarms.condition(condition(active=True, kind="refused"))
    assert {alarm.state for alarm in alarms.current()} == {F}
    alarms.condition(condition(active=False))
    alarms.set_aside("plc", None)
    assert [(alarm.condition.kind, alarm.state) for alarm in alarms.current()] == [("refused", B)]


def test_the_most_urgent_come_first_and_diagnostics_are_no_alarms() -> None:
    alarms, journal = Alarms(VirtualClock(), memory := Memory()), memory
    for kind, priority in (("low", Priority.LOW), ("high", Priority.HIGH), ("note", Priority.DIAGNOSTIC)):
        alarms.condition(condition(active=True, kind=kind, priority=priority))
    assert [alarm.condition.kind for alarm in alarms.current()] == ["high", "low"]
    assert [kind for kind, _ in journal.entries] == ["alarm", "alarm", "event"]


def test_a_condition_told_again_is_journalled_once_and_its_words_are_the_latest() -> None:
    alarms, journal = Alarms(VirtualClock(), memory := Memory()), memory
    heard: list[AlarmState] = []
    alarms.listen(lambda alarm: heard.append(alarm.state))
    for second in range(5):
        alarms.condition(condition(active=True, text=f"down {second} s"))
    assert only(alarms).condition.text == "down 4 s"
    assert (len(journal.entries), heard) == (1, [B])


class Operating(RuleBasedStateMachine):
    """Faults come and go while an operator does whatever he can."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.alarms = Alarms(self.clock, Memory())
        self.active = False

    @rule(active=st.booleans())
    def change(self, active: bool) -> None:
        """The condition's latest state."""
        self.active = active
        self.alarms.condition(condition(active=active))

    @rule(command=st.sampled_from([acknowledge, lambda a: shelve(a, reason="r", duration_s="5"), lambda a: shelve(a, duration_s="0")]))
    def operate(self, command: object) -> None:
        """A command, which ends without waiting for anything."""
        with pytest.raises(StopIteration):
            command(self.alarms).send(None)  # type: ignore[operator] # one of the three above

    @rule(seconds=st.integers(1, 10))
    def wait(self, seconds: int) -> None:
        """Time goes on."""
        self.clock._move(self.clock.mono_ns() + seconds * 1_000_000_000)

    @invariant()
    def what_is_wrong_is_shown(self) -> None:
        """Only the end of a fault takes it from the list."""
        shown = self.alarms.current()
        if self.active:
            assert [alarm.state in (B, C, E) and alarm.condition.active for alarm in shown] == [True]
        else:
            assert all(alarm.state in (D, E) and not alarm.condition.active for alarm in shown)


Operating.TestCase.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
TestOperating = Operating.TestCase
