"""What a value must satisfy before it may be written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gateway.core.clock import NS_PER_S
from gateway.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Limit:
    """Bounds of one output, in its engineering unit.

    Attributes:
        low: Smallest value that may be written.
        high: Largest value that may be written.
        max_step: Largest change from the last written value.
        max_rate_per_s: Largest change per second since the last written value.
    """

    low: float
    high: float
    max_step: float | None = None
    max_rate_per_s: float | None = None

    def objection(self, value: float, last: float | None, elapsed_ns: int) -> str:
        """Why a value may not be written, empty if it may."""
        if not np.isfinite(value):
            return "not a number"
        if not self.low <= value <= self.high:
            return f"{value:g} is outside {self.low:g} to {self.high:g}"
        if last is None:
            return ""
        change = abs(value - last)
        if self.max_step is not None and change > self.max_step:
            return f"step of {change:g} is larger than {self.max_step:g}"
        if self.max_rate_per_s is not None and change > self.max_rate_per_s * elapsed_ns / NS_PER_S:
            return f"change of {change:g} in {elapsed_ns / NS_PER_S:.2g} s is faster than {self.max_rate_per_s:g} per s"
        return ""


@dataclass(frozen=True, slots=True)
class TargetRules:
    """How one target is guarded.

    Attributes:
        limits: By output name, for every output of the target.
        heartbeat_s: Period of the heartbeat.
        valid_for_ms: Age of a prediction beyond which it is refused.
        min_interval_ms: Shortest time between two writes.
        read_back: Whether each write is read back and compared.
        dry_run: Whether everything happens but the write itself.
        hold: Values declared for the held state by output; empty: the last written ones.
    """

    limits: Mapping[str, Limit]
    heartbeat_s: float = 1.0
    valid_for_ms: float = 1000.0
    min_interval_ms: float = 0.0
    read_back: bool = True
    dry_run: bool = False
    hold: Mapping[str, float] | None = None

    def check(self, target: str, outputs: Sequence[str]) -> None:
        """See that nothing can be written that has no limits.

        Raises:
            ConfigError: An output has no limit, or a hold value lies outside its own.
        """
        missing = [name for name in outputs if name not in self.limits]
        if missing:
            raise ConfigError(f"no limits for {', '.join(missing)}", remedy="give low and high for every output", component=target)
        for name, value in (self.hold or {}).items():
            objection = self.limits[name].objection(value, None, 0) if name in outputs else "there is no such output"
            if objection:
                raise ConfigError(f"hold value of {name}: {objection}", remedy="choose a value inside the limits", component=target)
