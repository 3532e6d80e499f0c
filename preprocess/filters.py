"""Sliding-window filters, causal and incremental, over K columns at once.

Every filter sees one sample per column and call; a mask says which columns have one. A filter that is not full yet works on what it has.
Sources: the textbook definitions; the tests compare each with its batch form.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from preprocess.spec import FilterSpec

Values = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_MAD_TO_SIGMA = 1.4826  # of a normal distribution
_NS_PER_S = 1e9


class Filter(Protocol):
    """Filters K columns, one sample each per call."""

    def update(self, time_ns: int, values: Values, mask: Mask) -> Values:
        """Filtered values, `float64[K]`; columns outside the mask are given back as they came."""
        ...


class _Ring:
    """The last W samples of each of K columns, each column with its own count. `inf` where there is none yet."""

    def __init__(self, window: int, columns: int) -> None:
        self.window = window
        self.samples: Values = np.full((window, columns), np.inf)
        self.count = np.zeros(columns, np.int64)
        self._every = np.arange(columns)

    def push(self, values: Values, mask: Mask) -> tuple[Values, npt.NDArray[np.int64], npt.NDArray[np.intp]]:
        """Samples `[W, M]` and counts `[M]` of the M masked columns after adding theirs, and their numbers."""
        columns = self._every[mask]
        self.samples[self.count[columns] % self.window, columns] = values[columns]
        self.count[columns] += 1
        return self.samples[:, columns], np.minimum(self.count[columns], self.window), columns


def _median(samples: Values, count: npt.NDArray[np.int64]) -> Values:
    """Median of the first `count` finite samples of each column; absent ones are `inf`, so they sort to the end."""
    ordered = np.sort(samples, axis=0)
    every = np.arange(samples.shape[1])
    return (ordered[(count - 1) // 2, every] + ordered[count // 2, every]) / 2


class MovingMean:
    """Mean of the last `window` samples."""

    def __init__(self, spec: FilterSpec, columns: int) -> None:
        self._ring = _Ring(spec.window, columns)

    def update(self, time_ns: int, values: Values, mask: Mask) -> Values:  # noqa: ARG002 - one signature for all filters
        """See `Filter`."""
        samples, count, columns = self._ring.push(values, mask)
        out = values.copy()
        # Summed anew: a running sum keeps the rounding error of a spike for ever.
        out[columns] = np.where(np.isinf(samples), 0.0, samples).sum(axis=0) / np.maximum(count, 1)
        return out


class WeightedMean:
    """Weighted mean of the last samples; before the window is full, of those that are there with their own weights."""

    def __init__(self, spec: FilterSpec, columns: int) -> None:
        self._weights = np.asarray(spec.weights, np.float64)
        self._ring = _Ring(len(self._weights), columns)

    def update(self, time_ns: int, values: Values, mask: Mask) -> Values:  # noqa: ARG002 - one signature for all filters
        """See `Filter`."""
        samples, _, columns = self._ring.push(values, mask)
        window = len(self._weights)
        # Row r of the ring was written `age` samples ago; the newest has the last weight.
        age = (self._ring.count[columns] - 1 - np.arange(window)[:, None]) % window
        weights = np.where(np.isinf(samples), 0.0, self._weights[window - 1 - age])
        total = weights.sum(axis=0)
        out = values.copy()
        weighted = (np.where(np.isinf(samples), 0.0, samples) * weights).sum(axis=0)
        out[columns] = np.divide(weighted, total, out=values[columns].copy(), where=total != 0)
        return out


class Ewma:
    """Exponentially weighted mean, started at the first sample."""

    def __init__(self, spec: FilterSpec, columns: int) -> None:
        self._alpha = spec.alpha
        self._state: Values = np.full(columns, np.nan)

    def update(self, time_ns: int, values: Values, mask: Mask) -> Values:  # noqa: ARG002 - one signature for all filters
        """See `Filter`."""
        before = np.where(np.isnan(self._state), values, self._state)
        out = np.where(mask, before + self._alpha * (values - before), values)
        self._state[mask] = out[mask]
        return out


class Median:
    """Median of the last `window` samples."""

    def __init__(self, spec: FilterSpec, columns: int) -> None:
        self._ring = _Ring(spec.window, columns)

    def update(self, time_ns: int, values: Values, mask: Mask) -> Values:  # noqa: ARG002 - one signature for all filters
        """See `Filter`."""
        samples, count, columns = self._ring.push(values, mask)
        out = values.copy()
        if len(columns):
            out[columns] = _median(samples, count)
        return out


class Hampel:
    """Replaces a sample by the median of the last `window` if it lies beyond `n_sigmas` scaled median absolute deviations.

    In a constant channel the deviation is zero, so any other value is an outlier until it holds the majority of the window.
    """

    def __init__(self, spec: FilterSpec, columns: int) -> None:
        self._ring = _Ring(spec.window, columns)
        self._n_sigmas = spec.n_sigmas

    def update(self, time_ns: int, values: Values, mask: Mask) -> Values:  # noqa: ARG002 - one signature for all filters
        """See `Filter`."""
        samples, count, columns = self._ring.push(values, mask)
        out = values.copy()
        if len(columns):
            median = _median(samples, count)
            deviation = _median(np.abs(samples - median), count)
            new = values[columns]
            outlier = np.abs(new - median) > self._n_sigmas * _MAD_TO_SIGMA * deviation
            out[columns] = np.where(outlier, median, new)
        return out


class RateClip:
    """Lets a signal move by at most `max_rate_per_s` of event time."""

    def __init__(self, spec: FilterSpec, columns: int) -> None:
        self._rate = spec.max_rate_per_s
        self._state: Values = np.full(columns, np.nan)
        self._time_ns = np.zeros(columns, np.int64)

    def update(self, time_ns: int, values: Values, mask: Mask) -> Values:
        """See `Filter`."""
        reach = self._rate * (time_ns - self._time_ns) / _NS_PER_S
        fresh = np.isnan(self._state)
        clipped = np.clip(values, self._state - reach, self._state + reach)
        out = np.where(mask & ~fresh, clipped, values)
        self._state[mask] = out[mask]
        self._time_ns[mask] = time_ns
        return out


_KINDS: dict[str, Callable[[FilterSpec, int], Filter]] = {
    "moving_mean": MovingMean,
    "weighted_mean": WeightedMean,
    "ewma": Ewma,
    "median": Median,
    "hampel": Hampel,
    "rate_clip": RateClip,
}


class FilterBank:
    """The declared filters of K columns: equal filters at the same place run as one.

    Args:
        chains: Filters of each column, in order.
    """

    def __init__(self, chains: Sequence[Sequence[FilterSpec]]) -> None:
        self._chains = [tuple(chain) for chain in chains]
        self.reset()

    def reset(self) -> None:
        """Forget all samples."""
        self._stages: list[tuple[npt.NDArray[np.intp], Filter]] = []
        for place in range(max(map(len, self._chains), default=0)):
            groups: dict[FilterSpec, list[int]] = {}
            for column, chain in enumerate(self._chains):
                if place < len(chain):
                    groups.setdefault(chain[place], []).append(column)
            for spec, columns in groups.items():
                self._stages.append((np.array(columns, np.intp), _KINDS[spec.kind](spec, len(columns))))

    def update(self, time_ns: int, values: Values, mask: Mask) -> Values:
        """Filtered values, `float64[K]`."""
        if not self._stages:
            return values
        out = values.copy()
        for columns, stage in self._stages:
            chosen = mask[columns]
            if chosen.any():
                out[columns] = stage.update(time_ns, out[columns], chosen)
        return out
