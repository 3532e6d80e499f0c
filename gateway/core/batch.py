"""What flows through the house: columns of values that arrived together, and how far time has come."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

TagColumn = npt.NDArray[np.int32]
ValueColumn = npt.NDArray[np.float64]
QualityColumn = npt.NDArray[np.uint16]
TimeColumn = npt.NDArray[np.int64]
PositionColumn = npt.NDArray[np.int32]
WideColumn = npt.NDArray[np.uint64]

_NO_POSITIONS: PositionColumn = np.empty(0, np.int32)
_NO_WIDE: WideColumn = np.empty(0, np.uint64)
_NO_POSITIONS.flags.writeable = False
_NO_WIDE.flags.writeable = False


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One response or one publish: n values in parallel read-only arrays.

    Attributes:
        group: Id of the group.
        cycle: Number of the poll cycle or publish; one cycle may give several batches.
        requested_mono_ns: When the request left (for a publish: when it arrived).
        received_mono_ns: When the response was complete.
        received_wall_ns: The same instant in UTC.
        tag: Tag numbers, `int32[n]`; a tag may occur more than once.
        value: `float64[n]`; NaN where the quality is bad and nothing is known.
        quality: `uint16[n]`, see `gateway.core.quality`.
        source_time_ns: `int64[n]`, in the group's time domain.
        wide_pos: Rows whose exact value is in `wide`, ascending, `int32[m]`.
        wide: 64-bit patterns, `uint64[m]`; a signed tag's are two's complement.
        text_pos: Rows whose value is in `text`, ascending, `int32[t]`.
        text: Strings of those rows.
    """

    group: int
    cycle: int
    requested_mono_ns: int
    received_mono_ns: int
    received_wall_ns: int
    tag: TagColumn
    value: ValueColumn
    quality: QualityColumn
    source_time_ns: TimeColumn
    wide_pos: PositionColumn = field(default_factory=lambda: _NO_POSITIONS)
    wide: WideColumn = field(default_factory=lambda: _NO_WIDE)
    text_pos: PositionColumn = field(default_factory=lambda: _NO_POSITIONS)
    text: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Checks that the columns are parallel and makes them read-only."""
        n = len(self.tag)
        if not (len(self.value) == len(self.quality) == len(self.source_time_ns) == n):
            msg = f"columns of different lengths: {n}, {len(self.value)}, {len(self.quality)}, {len(self.source_time_ns)}"
            raise ValueError(msg)
        if len(self.wide_pos) != len(self.wide) or len(self.text_pos) != len(self.text):
            msg = "wide or text column differs in length from its positions"
            raise ValueError(msg)
        for column in (self.tag, self.value, self.quality, self.source_time_ns, self.wide_pos, self.wide, self.text_pos):
            column.flags.writeable = False

    def __len__(self) -> int:
        return len(self.tag)

    def take(self, rows: npt.NDArray[np.intp]) -> "Batch":
        """The given rows, in the order given (each row at most once); wide and text values go with their row."""
        place = np.full(len(self), -1, np.int32)
        place[rows] = np.arange(len(rows), dtype=np.int32)
        wide_pos, wide_order = _moved(place, self.wide_pos)
        text_pos, text_order = _moved(place, self.text_pos)
        return Batch(
            self.group,
            self.cycle,
            self.requested_mono_ns,
            self.received_mono_ns,
            self.received_wall_ns,
            self.tag[rows],
            self.value[rows],
            self.quality[rows],
            self.source_time_ns[rows],
            wide_pos,
            self.wide[wide_order],
            text_pos,
            tuple(self.text[i] for i in text_order),
        )

    def slice(self, start: int, stop: int) -> "Batch":
        """Rows `start` to `stop`, the latter excluded."""
        return self.take(np.arange(*slice(start, stop).indices(len(self))))

    def in_order(self) -> "Batch":
        """The rows by source time, those of equal time as they arrived."""
        if len(self) < 2 or bool(np.all(self.source_time_ns[1:] >= self.source_time_ns[:-1])):
            return self
        return self.take(np.argsort(self.source_time_ns, kind="stable"))


def _moved(place: PositionColumn, positions: PositionColumn) -> tuple[PositionColumn, npt.NDArray[np.intp]]:
    """New positions, ascending, of those that are kept, and the order of their values."""
    if not len(positions):
        return _NO_POSITIONS, np.empty(0, np.intp)
    target = place[positions]
    order = np.argsort(target, kind="stable")
    order = order[target[order] >= 0]
    return target[order], order


def merge(batches: Sequence[Batch]) -> Batch:
    """One batch of the rows of several of the same group, in arrival order.

    Its scalars are the earliest request, the latest receipt and the newest cycle.

    Raises:
        ValueError: No batch, or batches of different groups.
    """
    if not batches:
        msg = "nothing to merge"
        raise ValueError(msg)
    if len({batch.group for batch in batches}) > 1:
        msg = "batches of different groups cannot be merged"
        raise ValueError(msg)
    if len(batches) == 1:
        return batches[0]
    offsets = np.cumsum([0, *(len(batch) for batch in batches[:-1])]).astype(np.int32)
    last = max(batches, key=lambda batch: batch.received_mono_ns)
    return Batch(
        batches[0].group,
        max(batch.cycle for batch in batches),
        min(batch.requested_mono_ns for batch in batches),
        last.received_mono_ns,
        last.received_wall_ns,
        np.concatenate([batch.tag for batch in batches]),
        np.concatenate([batch.value for batch in batches]),
        np.concatenate([batch.quality for batch in batches]),
        np.concatenate([batch.source_time_ns for batch in batches]),
        np.concatenate([batch.wide_pos + offset for batch, offset in zip(batches, offsets, strict=True)]),
        np.concatenate([batch.wide for batch in batches]),
        np.concatenate([batch.text_pos + offset for batch, offset in zip(batches, offsets, strict=True)]),
        tuple(text for batch in batches for text in batch.text),
    )


@dataclass(frozen=True, slots=True)
class Watermark:
    """Every value of the group with a source time up to `up_to_ns` has arrived; later ones are late.

    Attributes:
        group: Id of the group.
        up_to_ns: In the group's time domain.
        alive: Whether the source itself vouches for it; `False` when time merely went on.
    """

    group: int
    up_to_ns: int
    alive: bool = True
