"""Conditions, the latest state of every thing that can be wrong, and the alarms made from them."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from gateway.core.quality import Ne107


class Priority(IntEnum):
    """Alarm priority, 1 the most urgent; a diagnostic is an event that needs no operator."""

    HIGH = 1
    MEDIUM = 2
    LOW = 3
    DIAGNOSTIC = 4


class AlarmState(StrEnum):
    """ISA-18.2 states A to G."""

    NORMAL = "normal"
    UNACKNOWLEDGED = "unacknowledged"
    ACKNOWLEDGED = "acknowledged"
    RETURNED = "returned unacknowledged"
    SHELVED = "shelved"
    SUPPRESSED = "suppressed"
    OUT_OF_SERVICE = "out of service"


@dataclass(frozen=True, slots=True)
class Condition:
    """State of one thing of one component. The latest of a `(component, kind)` replaces the one before.

    Attributes:
        component: Source, model, target or stage, as the configuration names it.
        kind: Stable word for the thing (`unreachable`, `no back end`, `write refused`).
        active: Whether it is wrong now.
        priority: Of the alarm it makes.
        text: What happened, one line.
        remedy: What to do, one line.
        word: NE 107 word of the component while it is active.
        since_wall_ns: UTC of the change.
    """

    component: str
    kind: str
    active: bool
    priority: Priority = Priority.LOW
    text: str = ""
    remedy: str = ""
    word: Ne107 = Ne107.OUT_OF_SPECIFICATION
    since_wall_ns: int = 0

    @property
    def key(self) -> str:
        """`component/kind`, by which it is acknowledged."""
        return f"{self.component}/{self.kind}"


@dataclass(frozen=True, slots=True)
class Alarm:
    """A condition together with what the operator did about it."""

    condition: Condition
    state: AlarmState
    acknowledged_by: str = ""
    shelved_until_wall_ns: int = 0
    shelve_reason: str = ""

    @property
    def needs_attention(self) -> bool:
        """Whether it belongs on the overview."""
        return self.state in (AlarmState.UNACKNOWLEDGED, AlarmState.ACKNOWLEDGED, AlarmState.RETURNED)
