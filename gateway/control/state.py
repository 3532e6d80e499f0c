"""State of one guarded target, and what was last done with it."""

from dataclasses import dataclass, field
from enum import StrEnum


class GuardState(StrEnum):
    """OFF writes nothing; ARMED writes all; HELD writes the hold value with bad quality, heartbeat running."""

    OFF = "OFF"
    ARMED = "ARMED"
    HELD = "HELD"


@dataclass(slots=True)
class Past:
    """What was last done with a target; it outlives a reload that leaves the target as it was.

    Attributes:
        values: Written last, by output.
        values_ns: When, monotonic.
        inputs_ns: Age of their oldest input, as a monotonic instant.
        write_ns: When anything was written last.
        loop_ms: From the request of the newest input to the read-back, of the result before.
        written: Writes.
        verified: Writes that read back equal.
        refused: Results not written as they were, by reason.
        last_written: The operator's line of the last write.
        last_refusal: The operator's line of the last refusal.
    """

    values: dict[str, float] = field(default_factory=dict)
    values_ns: int = 0
    inputs_ns: int = 0
    write_ns: int = 0
    loop_ms: float = 0.0
    written: int = 0
    verified: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    last_written: str = ""
    last_refusal: str = ""
