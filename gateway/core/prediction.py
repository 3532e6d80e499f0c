"""What a model says, how good it is, and how long each part of the way took."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt


class Outcome(StrEnum):
    """What became of one closed step of one asset."""

    INFERRED = "inferred"
    DISABLED = "disabled"
    WARMING_UP = "warming up"
    COVERAGE = "coverage"
    CAUGHT_UP = "caught up"
    NO_BACKEND = "no back end"


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One number a model predicts.

    Attributes:
        name: Unique in the model.
        unit: Engineering unit.
        horizon_s: How far ahead of the window's end it speaks.
        low: Lower limit of a credible output, in `unit`.
        high: Upper limit of a credible output, in `unit`.
        source_input: Input it forecasts, empty if it is a quantity of its own; a "last-value" output is relative to it.
    """

    name: str
    unit: str
    horizon_s: float = 0.0
    low: float = float("-inf")
    high: float = float("inf")
    source_input: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """Monotonic instants of one result, in nanoseconds; 0 where it has not come so far.

    `written_sequence` is the number it was written under, as it stands beside the value in the device.
    """

    requested_ns: int = 0
    received_ns: int = 0
    window_ready_ns: int = 0
    inference_start_ns: int = 0
    inference_end_ns: int = 0
    written_ns: int = 0
    read_back_ns: int = 0
    written_sequence: int = 0

    def steps_ms(self) -> dict[str, float]:
        """Milliseconds of each part that has both of its ends, in order of the way."""
        parts = (
            ("read", self.requested_ns, self.received_ns),
            ("window", self.received_ns, self.window_ready_ns),
            ("wait", self.window_ready_ns, self.inference_start_ns),
            ("inference", self.inference_start_ns, self.inference_end_ns),
            ("write", self.inference_end_ns, self.written_ns),
            ("read back", self.written_ns, self.read_back_ns),
            ("total", self.requested_ns, self.read_back_ns or self.written_ns or self.inference_end_ns),
        )
        return {name: (end - start) / 1e6 for name, start, end in parts if start and end}


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """The one answer to one closed step of one asset.

    Attributes:
        model: Name of the model in the configuration.
        asset: Name of the asset.
        sequence: Counts the predictions of this model and asset since start, from 1.
        end_ns: End of the window, in the model's time domain.
        domain: That domain.
        outputs: Engineering units, in the order of the model's output specs, `float64[outputs]`; NaN before the first inference.
        quality: Never better than its window's.
        outcome: Whether it was inferred, and if not, why; then `outputs` are the last ones and the quality is bad.
        digest: Digest of the bundle.
        backend: Rung that answered, empty if none did.
        trace: Instants of this result.
        made_wall_ns: UTC of the answer.
        oldest_lag_ns: Lag of the oldest input at its receipt (see `Window`).
        oldest_received_mono_ns: Receipt of the oldest input.
    """

    model: str
    asset: str
    sequence: int
    end_ns: int
    domain: str
    outputs: npt.NDArray[np.float64]
    quality: int
    outcome: Outcome
    digest: str
    backend: str
    trace: Trace
    made_wall_ns: int
    oldest_lag_ns: int = 0
    oldest_received_mono_ns: int = 0

    def oldest_age_ns(self, now_mono_ns: int) -> int:
        """Age of the oldest input used; 0 if there was none."""
        if not self.oldest_received_mono_ns:
            return 0
        return max(self.oldest_lag_ns, 0) + now_mono_ns - self.oldest_received_mono_ns
