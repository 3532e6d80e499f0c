"""Scaling of features to what a network was trained on, and of its outputs back to engineering units."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gateway.core.prediction import OutputSpec
from preprocess.spec import InputSpec

Aligned = npt.NDArray[np.float64]

_LARGEST = float(np.finfo(np.float32).max)


class Scaling:
    """Scales windows of one chain and unscales the outputs of its network.

    An output that forecasts an input carries that input's scaling; one of its own is in engineering units already.

    Args:
        inputs: Features, in order.
        outputs: Outputs, in order.
    """

    def __init__(self, inputs: Sequence[InputSpec], outputs: Sequence[OutputSpec] = ()) -> None:
        self._relative = np.array([spec.scaling.kind == "last_value" for spec in inputs], np.bool_)
        plain = [spec.scaling.kind in ("standard", "min_max") for spec in inputs]
        self._center = np.where(plain, [spec.scaling.center for spec in inputs], 0.0)
        self._scale = np.array([1.0 if spec.scaling.kind == "none" else spec.scaling.scale for spec in inputs], np.float64)
        names = [spec.name for spec in inputs]
        source = [names.index(spec.source_input) if spec.source_input else -1 for spec in outputs]
        self._source = np.array(source, np.intp)

    def scale(self, aligned: Aligned) -> npt.NDArray[np.float32]:
        """`[..., steps, features] float64` in engineering units to the network's `float32`, finite whatever comes in finite."""
        with np.errstate(over="ignore"):
            exact = (aligned - self._centers(aligned)[..., None, :]) / self._scale
        scaled: npt.NDArray[np.float32] = np.clip(exact, -_LARGEST, _LARGEST).astype(np.float32)
        return scaled

    def unscale(self, outputs: npt.NDArray[np.float32], aligned: Aligned) -> Aligned:
        """The network's `[..., outputs]` to engineering units.

        Args:
            outputs: As the network gave them.
            aligned: The windows they were made from, `[..., steps, features]`.
        """
        forecast = self._source >= 0
        center = np.where(forecast, self._centers(aligned)[..., self._source], 0.0)
        factor = np.where(forecast, self._scale[self._source], 1.0)
        result: Aligned = outputs.astype(np.float64) * factor + center
        return result

    def target(self, values: Aligned, aligned: Aligned) -> npt.NDArray[np.float32]:
        """The inverse of `unscale`: engineering values to what the network should say (for training)."""
        forecast = self._source >= 0
        center = np.where(forecast, self._centers(aligned)[..., self._source], 0.0)
        factor = np.where(forecast, self._scale[self._source], 1.0)
        result: npt.NDArray[np.float32] = ((values - center) / factor).astype(np.float32)
        return result

    def _centers(self, aligned: Aligned) -> Aligned:
        """Centre of each feature of each window, `[..., features]`."""
        return np.where(self._relative, aligned[..., -1, :], self._center)
