"""Samples that wait for their step to close."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gateway.core.batch import Batch
from preprocess.derive import Exact, whole

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Rows of one batch that concern a model: the column each goes to, and what is known of it.

    Attributes:
        group: Id of the group.
        order: Number of the batch; samples of equal time are applied in this order.
        column: Signal column, `intp[n]`.
        value: Engineering value, `float64[n]`.
        exact: 64-bit pattern, `uint64[n]`.
        quality: `uint16[n]`.
        time_ns: Source time, `int64[n]`.
        lag_ns: Newest watermark of the group at receipt minus source time, `int64[n]`.
        requested_mono_ns: Of the batch.
        received_mono_ns: Of the batch.
    """

    group: int
    order: int
    column: npt.NDArray[np.intp]
    value: npt.NDArray[np.float64]
    exact: Exact
    quality: npt.NDArray[np.uint16]
    time_ns: Times
    lag_ns: Times
    requested_mono_ns: int
    received_mono_ns: int

    def where(self, mask: npt.NDArray[np.bool_]) -> "Samples":
        """The rows of the mask."""
        return Samples(
            self.group,
            self.order,
            self.column[mask],
            self.value[mask],
            self.exact[mask],
            self.quality[mask],
            self.time_ns[mask],
            self.lag_ns[mask],
            self.requested_mono_ns,
            self.received_mono_ns,
        )


class Router:
    """Finds the columns of a batch's tags. A tag may feed several columns.

    Args:
        columns: `(tag number, column, factor, offset)` of every mapping.
    """

    def __init__(self, columns: Sequence[tuple[int, int, float, float]]) -> None:
        ordered = sorted(columns)
        self._tag = np.array([row[0] for row in ordered], np.int32)
        self._column = np.array([row[1] for row in ordered], np.intp)
        self._factor = np.array([row[2] for row in ordered], np.float64)
        self._offset = np.array([row[3] for row in ordered], np.float64)
        # Sources send the same tag array again and again; the array is kept so that its id stays its own.
        self._known: dict[int, tuple[npt.NDArray[np.int32], npt.NDArray[np.intp], npt.NDArray[np.intp]]] = {}

    def route(self, batch: Batch, order: int, mark_ns: int | None) -> Samples | None:
        """The samples of a batch, or None if it has none of ours."""
        rows, places = self._places(batch.tag)
        if not len(rows):
            return None
        raw = batch.value[rows]
        exact = whole(raw)
        if len(batch.wide_pos):
            words = np.zeros(len(batch), np.uint64)
            words[batch.wide_pos] = batch.wide
            exact = np.where(np.isin(rows, batch.wide_pos), words[rows], exact)
        time_ns = batch.source_time_ns[rows]
        lag_ns = np.zeros(len(rows), np.int64) if mark_ns is None else mark_ns - time_ns
        with np.errstate(over="ignore", invalid="ignore"):
            value = raw * self._factor[places] + self._offset[places]
        return Samples(
            batch.group,
            order,
            self._column[places],
            value,
            exact,
            batch.quality[rows],
            time_ns,
            lag_ns,
            batch.requested_mono_ns,
            batch.received_mono_ns,
        )

    def _places(self, tags: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        known = self._known.get(id(tags))
        if known is not None and known[0] is tags:
            return known[1], known[2]
        first = np.searchsorted(self._tag, tags, "left")
        count = np.searchsorted(self._tag, tags, "right") - first
        rows = np.repeat(np.arange(len(tags)), count)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        places = np.repeat(first, count) + within
        if len(self._known) >= 256:
            self._known.clear()
        self._known[id(tags)] = (tags, rows, places)
        return rows, places
