"""What a model is given."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The last steps of all inputs of one asset.

    Attributes:
        asset: Name of the asset.
        end_ns: End of the newest step, in the model's time domain.
        values: Scaled, `[steps, features] float32`, finite everywhere.
        aligned: Unscaled engineering values, `[steps, features] float64`, finite everywhere.
        observed: Whether a good sample stands behind the cell, `[steps, features] bool`.
        coverage: Share of cells observed or held within their hold limit, 0 to 1.
        quality: By the manifest's limits on coverage and on the newest steps.
        requested_mono_ns: Request of the batch that holds the newest value used.
        received_mono_ns: Receipt of that batch.
        oldest_lag_ns: Newest watermark at receipt minus source time, of the input whose newest value is oldest.
        oldest_received_mono_ns: Receipt of that input's newest value.
    """

    asset: str
    end_ns: int
    values: npt.NDArray[np.float32]
    aligned: npt.NDArray[np.float64]
    observed: npt.NDArray[np.bool_]
    coverage: float
    quality: int
    requested_mono_ns: int
    received_mono_ns: int
    oldest_lag_ns: int
    oldest_received_mono_ns: int

    def oldest_age_ns(self, now_mono_ns: int) -> int:
        """Age of the oldest input: lag behind its source's clock at receipt plus monotonic time since."""
        return max(self.oldest_lag_ns, 0) + now_mono_ns - self.oldest_received_mono_ns
