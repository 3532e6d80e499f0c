"""The latest value of every tag, with a short trend of those on the overview."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gateway.core.batch import Batch, Watermark
from gateway.core.clock import NS_PER_MS, NS_PER_S, Clock
from gateway.core.quality import Code, Level, combine, describe, levels
from gateway.core.snapshot import SourceStatus, TagStatus
from gateway.core.tags import DataType, TagTable

_NEVER_NS = np.iinfo(np.int64).min
_SIGN_BIT = 1 << 63


@dataclass(frozen=True, slots=True)
class LatestValue:
    """Latest value of one tag; `value` is NaN and `source_time_ns` 0 before the first."""

    value: float
    quality: int
    source_time_ns: int
    received_mono_ns: int
    received_wall_ns: int
    text: str = ""


class LatestValues:
    """Columns by tag number. A tag's value never goes back in source time, unless its group's watermark does (a source clock that was set).

    Args:
        table: Tags; those added later get their columns when first seen.
        clock: For ages and trends.
        headline: Names of the tags whose trend is kept.
        trend_period_s: Distance of two points of a trend.
        trend_points: Points kept.
    """

    def __init__(
        self, table: TagTable, clock: Clock, *, headline: Sequence[str] = (), trend_period_s: float = 10.0, trend_points: int = 60
    ) -> None:
        self._table = table
        self._clock = clock
        self._value: npt.NDArray[np.float64] = np.empty(0)
        self._quality: npt.NDArray[np.uint16] = np.empty(0, np.uint16)
        self._source_ns: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._received_ns: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._wall_ns: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._good_ns: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._text: dict[int, str] = {}
        self._marks: dict[int, Watermark] = {}
        self._trend_ns = round(trend_period_s * NS_PER_S)
        self._trend_due_ns = clock.mono_ns() + self._trend_ns
        self._trend: npt.NDArray[np.float64] = np.full((trend_points, 0), np.nan)
        self._trend_next = 0
        self._headline: npt.NDArray[np.intp] = np.empty(0, np.intp)
        self._grow()
        self.show(headline)

    def show(self, headline: Sequence[str]) -> None:
        """Keep the trend of these tags from now on; those shown before keep theirs, unknown names are left out."""
        numbers = np.array([self._table.number(name) for name in headline if name in self._table], np.intp)
        trend = np.full((len(self._trend), len(numbers)), np.nan)
        for column, number in enumerate(numbers):
            known = np.flatnonzero(self._headline == number)
            if len(known):
                trend[:, column] = self._trend[:, known[0]]
        self._headline, self._trend = numbers, trend
        self._grow()

    def update(self, item: Batch | Watermark) -> None:
        """Take what a source sent."""
        if isinstance(item, Watermark):
            self._mark(item)
            return
        if not len(item):
            return
        batch = item.in_order()
        if len(self._table) > len(self._value):
            self._grow()
        self._sample(batch.received_mono_ns)
        fresh = batch.source_time_ns > self._source_ns[batch.tag]
        if fresh.all():
            tag, value, quality, source_ns = batch.tag, batch.value, batch.quality, batch.source_time_ns
        else:
            tag, value, quality, source_ns = batch.tag[fresh], batch.value[fresh], batch.quality[fresh], batch.source_time_ns[fresh]
        # Of a tag that occurs more than once the last row stays, which is the newest.
        self._value[tag] = value
        self._quality[tag] = quality
        self._source_ns[tag] = source_ns
        self._received_ns[tag] = batch.received_mono_ns
        self._wall_ns[tag] = batch.received_wall_ns
        # The common case of all good costs one look.
        good = tag if not quality.any() else tag[levels(quality) != Level.BAD]
        self._good_ns[good] = batch.received_mono_ns
        if len(batch.wide_pos) or batch.text_pos.size:
            self._keep_text(batch, fresh)

    def value(self, tag: int) -> LatestValue:
        """Latest value of a tag; of a dead group its quality says that the connection is lost."""
        if tag >= len(self._value):
            self._grow()
        if self._source_ns[tag] == _NEVER_NS:
            return LatestValue(float("nan"), Code.BAD_WAITING, 0, 0, 0)
        quality = int(self._quality[tag])
        if self._is_dead(self._table[tag].group):
            quality = combine(quality, Code.BAD_COMM_LOST)
        return LatestValue(
            float(self._value[tag]),
            quality,
            int(self._source_ns[tag]),
            int(self._received_ns[tag]),
            int(self._wall_ns[tag]),
            self._text.get(tag, ""),
        )

    def statuses(self, names: Sequence[str] | None = None) -> tuple[TagStatus, ...]:
        """State of the named tags, those with a trend by default; unknown names are left out."""
        self._sample(self._clock.mono_ns())
        if names is None:
            numbers = [int(number) for number in self._headline]
        else:
            numbers = [self._table.number(name) for name in names if name in self._table]
        return tuple(self._status(number) for number in numbers)

    def good_counts(self) -> dict[str, tuple[int, int]]:
        """Tags whose latest value is not bad, and tags in all, by source."""
        self._grow()
        counts: dict[str, tuple[int, int]] = {}
        for group in self._table.groups():
            tags = self._table.tags_of(group.id)
            seen = self._source_ns[tags] != _NEVER_NS
            good = 0 if self._is_dead(group.id) else int(np.count_nonzero(seen & (levels(self._quality[tags]) != Level.BAD)))
            before = counts.get(group.source, (0, 0))
            counts[group.source] = (before[0] + good, before[1] + len(tags))
        return counts

    def filled(self, statuses: Sequence[SourceStatus]) -> tuple[SourceStatus, ...]:
        """Source states with their counts of tags and the age of the newest good value."""
        counts = self.good_counts()
        newest: dict[str, int] = {}
        for group in self._table.groups():
            tags = self._table.tags_of(group.id)
            if tags:
                newest[group.source] = max(newest.get(group.source, _NEVER_NS), int(self._good_ns[tags].max()))
        now_ns = self._clock.mono_ns()
        return tuple(
            replace(
                status,
                good_tags=counts.get(status.name, (0, 0))[0],
                tags=counts.get(status.name, (0, 0))[1],
                last_good_age_ms=_age_ms(newest.get(status.name, _NEVER_NS), now_ns),
            )
            for status in statuses
        )

    def _grow(self) -> None:
        more = len(self._table) - len(self._value)
        if more <= 0:
            return
        self._value = np.concatenate([self._value, np.full(more, np.nan)])
        self._quality = np.concatenate([self._quality, np.full(more, Code.BAD_WAITING, np.uint16)])
        self._source_ns = np.concatenate([self._source_ns, np.full(more, _NEVER_NS)])
        self._received_ns = np.concatenate([self._received_ns, np.full(more, _NEVER_NS)])
        self._wall_ns = np.concatenate([self._wall_ns, np.zeros(more, np.int64)])
        self._good_ns = np.concatenate([self._good_ns, np.full(more, _NEVER_NS)])

    def _mark(self, mark: Watermark) -> None:
        before = self._marks.get(mark.group)
        if before is not None and mark.up_to_ns < before.up_to_ns:
            self._grow()
            tags = self._table.tags_of(mark.group)
            # The clock of the source was set back: its next values are new although their stamps are older.
            self._source_ns[tags] = np.minimum(self._source_ns[tags], mark.up_to_ns)
        self._marks[mark.group] = mark

    def _is_dead(self, group: int) -> bool:
        mark = self._marks.get(group)
        return mark is not None and not mark.alive

    def _keep_text(self, batch: Batch, fresh: npt.NDArray[np.bool_]) -> None:
        for row, word in zip(batch.wide_pos.tolist(), batch.wide.tolist(), strict=True):
            if fresh[row]:
                tag = int(batch.tag[row])
                signed = self._table[tag].data_type is DataType.INT64 and word >= _SIGN_BIT
                self._text[tag] = str(word - 2 * _SIGN_BIT if signed else word)
        for row, text in zip(batch.text_pos.tolist(), batch.text, strict=True):
            if fresh[row]:
                self._text[int(batch.tag[row])] = text

    def _sample(self, now_ns: int) -> None:
        """Adds the trend points that became due; a long pause leaves a gap."""
        if now_ns < self._trend_due_ns:
            return
        passed = (now_ns - self._trend_due_ns) // self._trend_ns + 1
        self._trend_due_ns += passed * self._trend_ns
        shown = self._headline
        point = np.where(levels(self._quality[shown]) == Level.BAD, np.nan, self._value[shown])
        for column, number in enumerate(shown.tolist()):
            if self._is_dead(self._table[number].group):
                point[column] = np.nan
        for missed in range(min(int(passed), len(self._trend)) - 1, -1, -1):
            self._trend[self._trend_next] = np.nan if missed else point
            self._trend_next = (self._trend_next + 1) % len(self._trend)

    def _status(self, number: int) -> TagStatus:
        tag, latest = self._table[number], self.value(number)
        usable = np.isfinite(latest.value)
        return TagStatus(
            tag.name,
            tag.unit,
            latest.value if usable else None,
            latest.quality,
            describe(latest.quality),
            _age_ms(latest.received_mono_ns or _NEVER_NS, self._clock.mono_ns()),
            tag.low if np.isfinite(tag.low) else None,
            tag.high if np.isfinite(tag.high) else None,
            self._trend_of(number),
            tag.description,
            latest.text,
        )

    def _trend_of(self, number: int) -> tuple[float | None, ...]:
        columns = np.flatnonzero(self._headline == number)
        if not len(columns):
            return ()
        points = np.roll(self._trend[:, columns[0]], -self._trend_next)
        return tuple(point if point == point else None for point in points.tolist())  # noqa: PLR0124 - a NaN is not itself


def _age_ms(then_ns: int, now_ns: int) -> float:
    return -1.0 if then_ns == _NEVER_NS else max(now_ns - then_ns, 0) / NS_PER_MS
