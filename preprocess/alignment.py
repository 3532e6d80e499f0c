"""From samples at any time to one value per step and signal, with filters, hold and a memory of where each value came from."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gateway.core.clock import NS_PER_S
from gateway.core.quality import Level, combine_columns, levels
from preprocess.derive import Derivation, whole
from preprocess.filters import FilterBank
from preprocess.pending import Samples
from preprocess.spec import ChainSpec, DerivedSpec, InputSpec

Values = npt.NDArray[np.float64]
Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NEVER = np.iinfo(np.int64).min // 2
_LARGEST = float(np.finfo(np.float32).max)  # a network's inputs are float32: what lies beyond is no credible number


class Alignment:
    """State of all signals of all assets, in columns `asset * signals + signal`.

    Args:
        chain: The declared path.
        signals: Names of the signals of an asset: mapped ones, then derived ones.
        assets: Number of assets.
        on_change: Columns fed by an `on_change` group, `bool[columns]`.
    """

    def __init__(self, chain: ChainSpec, signals: Sequence[str], assets: int, on_change: Mask) -> None:
        specs = {spec.name: spec for spec in chain.inputs}
        inputs = [specs.get(name, InputSpec(name=name, unit="1")) for name in signals]
        self._columns = len(signals) * assets
        self._period_ns = round(chain.period_s * NS_PER_S)
        self._on_change = on_change
        self._low = np.tile([max(spec.low, -_LARGEST) for spec in inputs], assets)
        self._high = np.tile([min(spec.high, _LARGEST) for spec in inputs], assets)
        self._mean = np.tile([spec.align == "mean" for spec in inputs], assets)
        self._interpolate = np.tile([spec.align == "interpolate" for spec in inputs], assets)
        self._hold_ns = np.tile([round(spec.hold_limit_s * NS_PER_S) for spec in inputs], assets)
        self._fill = np.tile([spec.scaling.center if spec.scaling.kind in ("standard", "min_max") else 0.0 for spec in inputs], assets)
        self._source_filters = FilterBank([spec.source_filters for spec in inputs] * assets)
        self._step_filters = FilterBank([spec.step_filters for spec in inputs] * assets)
        self._derived = [(spec, *_derived_columns(spec, signals, assets)) for spec in chain.derived]
        self.reset()

    def reset(self) -> None:
        """Forget everything: a new epoch."""
        n = self._columns
        self._source_filters.reset()
        self._step_filters.reset()
        self._derivations = [Derivation(spec, len(result)) for spec, _, result in self._derived]
        self._applied_ns = np.full(n, _NEVER, np.int64)
        self._last: Values = np.full(n, np.nan)
        self._last_good = np.zeros(n, np.bool_)
        self._last_quality = np.zeros(n, np.uint16)
        self._good_until_ns = np.full(n, _NEVER, np.int64)
        self._aligned: Values = np.full(n, np.nan)
        self.good_ns = np.full(n, _NEVER, np.int64)
        self.lag_ns = np.zeros(n, np.int64)
        self.requested_ns = np.zeros(n, np.int64)
        self.received_ns = np.zeros(n, np.int64)
        self._previous: tuple[Values, Times] = (np.full(n, np.nan), np.full(n, _NEVER, np.int64))
        self._begin_step()

    def _begin_step(self) -> None:
        n = self._columns
        self._seen = np.zeros(n, np.bool_)
        self._quality = np.zeros(n, np.uint16)
        self._sum = np.zeros(n)
        self._count = np.zeros(n, np.int64)
        self._first: tuple[Values, Times] = (np.full(n, np.nan), np.full(n, _NEVER, np.int64))

    def apply(self, samples: Samples) -> int:
        """Take the samples of one instant.

        Returns:
            How many were ignored as repeats of a time already applied.
        """
        time_ns = int(samples.time_ns[0])
        fresh = time_ns > self._applied_ns[samples.column]
        # The first arrival of a repeated stamp is the one that counts, and of equal columns numpy keeps the last written.
        order = np.flatnonzero(fresh)[::-1]
        columns = samples.column[order]
        value, exact = np.full(self._columns, np.nan), np.zeros(self._columns, np.uint64)
        quality, mask = np.zeros(self._columns, np.uint16), np.zeros(self._columns, np.bool_)
        value[columns], exact[columns], quality[columns], mask[columns] = (
            samples.value[order],
            samples.exact[order],
            samples.quality[order],
            True,
        )
        repeats = len(samples.column) - int(np.count_nonzero(mask))
        self.lag_ns[columns] = samples.lag_ns[order]
        self.requested_ns[columns] = samples.requested_mono_ns
        self.received_ns[columns] = samples.received_mono_ns
        self._derive(time_ns, value, exact, quality, mask)
        self._applied_ns[mask] = time_ns
        with np.errstate(invalid="ignore"):
            good = mask & (levels(quality) != Level.BAD) & np.isfinite(value) & (value >= self._low) & (value <= self._high)
        self._last_good[mask] = good[mask]
        if good.any():
            self._accept(time_ns, self._source_filters.update(time_ns, value, good), quality, good)
        return repeats

    def _accept(self, time_ns: int, value: Values, quality: npt.NDArray[np.uint16], good: Mask) -> None:
        self._last[good] = value[good]
        self._last_quality[good] = quality[good]
        self.good_ns[good] = time_ns
        self._good_until_ns[good] = time_ns
        first = good & ~self._seen
        self._first[0][first] = value[first]
        self._first[1][first] = time_ns
        self._seen |= good
        self._sum[good] += value[good]
        self._count[good] += 1
        self._quality[good] = combine_columns(self._quality, quality)[good]

    def _derive(self, time_ns: int, value: Values, exact: npt.NDArray[np.uint64], quality: npt.NDArray[np.uint16], mask: Mask) -> None:
        for derivation, (_, sources, result) in zip(self._derivations, self._derived, strict=True):
            ready = np.logical_and.reduce([mask[source] for source in sources])
            if not ready.any():
                continue
            worst = quality[sources[0]]
            for source in sources[1:]:
                worst = combine_columns(worst, quality[source])
            usable = ready & (levels(worst) != Level.BAD)
            value[result] = derivation.update(time_ns, [value[source] for source in sources], exact[sources[0]], usable)
            mask[result] = ready
            exact[result] = whole(value[result])
            quality[result] = np.where(ready, worst, quality[result])
            newest = sources[0]
            self.lag_ns[result] = np.where(ready, self.lag_ns[newest], self.lag_ns[result])
            self.requested_ns[result] = np.where(ready, self.requested_ns[newest], self.requested_ns[result])
            self.received_ns[result] = np.where(ready, self.received_ns[newest], self.received_ns[result])

    def close(self, end_ns: int, living_ns: Times) -> tuple[Values, Mask, Mask, npt.NDArray[np.uint16]]:
        """One step of the grid.

        Args:
            end_ns: End of the step.
            living_ns: How far a living watermark of each column's group has come, `int64[columns]`.

        Returns:
            Aligned values (finite), observed, held, and quality of the samples in the step or of the one that stands in for them, each
            `[columns]`.
        """
        covered = self._on_change & self._last_good & (living_ns >= end_ns)
        self._good_until_ns[covered] = end_ns
        observed = self._seen | covered
        held = ~observed & (end_ns - self._good_until_ns <= self._hold_ns)
        # Between two samples of which the second is not known yet, the first is the best there is.
        value = np.where(observed | self._interpolate, self._last, self._aligned)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = np.where(self._mean & self._seen, self._sum / self._count, value)
        if self._interpolate.any():
            value = np.where(self._interpolate & self._seen, self._interpolated(end_ns - self._period_ns), value)
        value = np.where(np.isnan(value), np.where(np.isnan(self._last), self._fill, self._last), value)
        self._aligned = np.where(np.isnan(self._last), np.nan, value)
        filtered = self._step_filters.update(end_ns, value, ~np.isnan(self._last))
        quality = np.where(self._seen, self._quality, np.where(observed | held, self._last_quality, np.uint16(0)))
        self._previous = (np.where(self._seen, self._last, self._previous[0]), np.where(self._seen, self.good_ns, self._previous[1]))
        self._begin_step()
        return filtered, observed, held, quality

    def _interpolated(self, at_ns: int) -> Values:
        """Value at the step's start, between the last sample before it and the first one in it, if that one is near enough."""
        (before, before_ns), (after, after_ns) = self._previous, self._first
        span = np.maximum(after_ns - before_ns, 1)
        value = before + (after - before) * ((at_ns - before_ns) / span)
        return np.where(np.isnan(before) | (span > self._hold_ns + self._period_ns), after, value)


def _derived_columns(spec: DerivedSpec, signals: Sequence[str], assets: int) -> tuple[list[npt.NDArray[np.intp]], npt.NDArray[np.intp]]:
    base = np.arange(assets, dtype=np.intp) * len(signals)
    return [base + signals.index(name) for name in spec.sources], base + signals.index(spec.name)
