"""Derived signals: difference, rate, counter, bit field and ratio, over whole columns."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from gateway.core.batch import Batch
from gateway.core.quality import Code, Level, combine, level
from preprocess.spec import DerivedSpec

Values = npt.NDArray[np.float64]
Exact = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_NS_PER_S = 1e9
_EXACT_LIMIT = 2.0**53


def whole(values: Values) -> Exact:
    """The integer part of columns as 64-bit patterns; what is no number becomes 0."""
    safe = np.where(np.isfinite(values) & (np.abs(values) <= _EXACT_LIMIT), values, 0.0)
    return safe.astype(np.int64).view(np.uint64)


class Derivation:
    """One derived signal for K parallel columns (the same signal of K assets).

    Rates and counters need two samples: the first gives NaN. So does a ratio by zero, a rate over time that stands or goes back, and a
    counter that moved by more than half of its width, because that is a device that started anew and no roll-over. A missing reading
    leaves the state alone, so that the next good one counts from the last good one and nothing is lost.
    """

    def __init__(self, spec: DerivedSpec, columns: int) -> None:
        self._spec = spec
        self._last: Values = np.full(columns, np.nan)
        self._last_exact: Exact = np.zeros(columns, np.uint64)
        self._last_ns = np.zeros(columns, np.int64)

    def update(self, time_ns: int, sources: Sequence[Values], exact: Exact, mask: Mask) -> Values:
        """The derived values, `float64[K]`, NaN outside the mask.

        Args:
            time_ns: Source time of the samples.
            sources: Columns of each source, `float64[K]`.
            exact: The first source as 64-bit patterns, `uint64[K]`.
            mask: Columns whose sources all have a usable sample now.
        """
        with np.errstate(all="ignore"):
            out = self._value(time_ns, sources, exact)
        out = np.where(mask & np.isfinite(out), out * self._spec.scale, np.nan)
        known = mask & np.isfinite(sources[0])
        self._last[known] = sources[0][known]
        self._last_exact[known] = exact[known]
        self._last_ns[known] = time_ns
        return out

    def _value(self, time_ns: int, sources: Sequence[Values], exact: Exact) -> Values:
        spec, first = self._spec, sources[0]
        if spec.kind == "difference":
            return first - sources[1]
        if spec.kind == "ratio":
            return np.where(sources[1] == 0, np.nan, first / sources[1])
        if spec.kind == "rate":
            passed_s = (time_ns - self._last_ns) / _NS_PER_S
            return np.where(passed_s > 0, (first - self._last) / passed_s, np.nan)
        if spec.kind == "counter":
            limit = np.uint64(2**spec.bits - 1)
            moved = (exact - self._last_exact) & limit
            return np.where(np.isnan(self._last) | (moved > limit >> np.uint64(1)), np.nan, moved.astype(np.float64))
        field = (exact >> np.uint64(spec.first_bit)) & np.uint64(2**spec.bit_count - 1)
        return np.where(np.isfinite(first), field.astype(np.float64), np.nan)


class DerivedTags:
    """Appends the configured derived tags of one group to its batches.

    Args:
        specs: What to derive, in order; a later one may use an earlier one.
        numbers: Tag numbers of all sources and results, by name.
    """

    def __init__(self, specs: Sequence[DerivedSpec], numbers: Mapping[str, int]) -> None:
        self._parts = [(Derivation(spec, 1), [numbers[name] for name in spec.sources], numbers[spec.name]) for spec in specs]

    def append(self, batch: Batch) -> Batch:
        """The batch with its derived values behind it, each with the worst quality of its parents."""
        if not self._parts or not len(batch):
            return batch
        rows: list[tuple[int, float, int, int]] = []
        for time_ns in np.unique(batch.source_time_ns):
            at = np.flatnonzero(batch.source_time_ns == time_ns)
            values = dict(zip(batch.tag[at].tolist(), batch.value[at].tolist(), strict=True))
            quality = dict(zip(batch.tag[at].tolist(), batch.quality[at].tolist(), strict=True))
            exact = {int(batch.tag[pos]): word for pos, word in zip(batch.wide_pos, batch.wide, strict=True) if pos in at}
            for derivation, sources, result in self._parts:
                if any(source not in values for source in sources):
                    continue
                columns = [np.array([values[source]]) for source in sources]
                words = np.array([exact[sources[0]]], np.uint64) if sources[0] in exact else whole(columns[0])
                worst = combine(*(quality[source] for source in sources))
                usable = np.array([level(worst) is not Level.BAD])
                value = float(derivation.update(int(time_ns), columns, words, usable)[0])
                if np.isnan(value) and usable[0]:
                    worst = combine(worst, Code.BAD_NOT_A_NUMBER)
                values[result], quality[result] = value, worst
                rows.append((result, value, worst, int(time_ns)))
        return _extended(batch, rows) if rows else batch


def _extended(batch: Batch, rows: Sequence[tuple[int, float, int, int]]) -> Batch:
    tags, values, qualities, times = zip(*rows, strict=True)
    return Batch(
        batch.group,
        batch.cycle,
        batch.requested_mono_ns,
        batch.received_mono_ns,
        batch.received_wall_ns,
        np.concatenate([batch.tag, np.array(tags, np.int32)]),
        np.concatenate([batch.value, np.array(values, np.float64)]),
        np.concatenate([batch.quality, np.array(qualities, np.uint16)]),
        np.concatenate([batch.source_time_ns, np.array(times, np.int64)]),
        batch.wide_pos,
        batch.wide,
        batch.text_pos,
        batch.text,
    )
