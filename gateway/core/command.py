"""What people and programs may ask of the gateway; every command is audited."""

from dataclasses import dataclass, field
from enum import StrEnum


class CommandKind(StrEnum):
    """What is asked."""

    ARM = "arm"
    DISARM = "disarm"
    HOLD = "hold"
    RELEASE = "release"
    WRITE = "write"
    ACKNOWLEDGE = "ack"
    SHELVE = "shelve"
    SWAP = "swap"
    ROLLBACK = "rollback"
    RELOAD = "reload"


class Verdict(StrEnum):
    """How a command ended; `verified` means that its effect was read back."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    VERIFIED = "verified"


@dataclass(frozen=True, slots=True)
class Command:
    """One request.

    Attributes:
        id: Chosen by the sender, unique.
        actor: Who asks (user name, client id).
        kind: What is asked.
        target: Write target, alarm key, model or tag it concerns; empty for the whole gateway.
        arguments: Further text, by name (value, reason, duration_s, path).
        expected: Old value the sender believes in; the command is refused if it is another. Empty: any.
        expires_wall_ns: UTC after which it must not be carried out; 0: never.
    """

    id: str
    actor: str
    kind: CommandKind
    target: str = ""
    arguments: dict[str, str] = field(default_factory=dict)
    expected: str = ""
    expires_wall_ns: int = 0


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The answer; `reason` is the operator's line."""

    id: str
    verdict: Verdict
    reason: str = ""
