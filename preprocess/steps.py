"""Event time: batches and watermarks in, closed steps with their windows out. Pure and deterministic, for training and for serving."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gateway.core.batch import Batch, Watermark
from gateway.core.clock import NS_PER_S
from gateway.core.errors import ConfigError
from gateway.core.prediction import Outcome
from gateway.core.quality import Code, Level, combine, level
from gateway.core.tags import GroupMode, TagTable
from gateway.core.window import Window
from preprocess.alignment import Alignment
from preprocess.enable import Enable
from preprocess.marks import Marks
from preprocess.pending import Router, Samples
from preprocess.scaling import Scaling
from preprocess.soundness import verify
from preprocess.spec import ChainSpec

_PENDING_LIMIT = 1_000_000  # samples; beyond it the oldest batch is given up and counted
_PENDING_PARTS = 20_000  # batches, the same


@dataclass(frozen=True, slots=True)
class AssetBinding:
    """Which tag feeds which signal of an asset.

    Attributes:
        asset: Name of the asset.
        tags: Tag number by signal name, for all of `ChainSpec.signals`.
        factors: `(factor, offset)` by signal name where the tag's unit is not the model's.
    """

    asset: str
    tags: Mapping[str, int]
    factors: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AssetStep:
    """One asset's share of a closed step; `window` is there if and only if `outcome` is INFERRED, which here means "ready for it"."""

    asset: str
    outcome: Outcome
    window: Window | None
    coverage: float
    quality: int


@dataclass(frozen=True, slots=True)
class Step:
    """One closed step. Of several closed at once only the newest is due."""

    end_ns: int
    epoch: int
    due: bool
    assets: tuple[AssetStep, ...]


@dataclass(slots=True)
class StepCounters:
    """What the steps have seen, in samples but for `epochs` and `closed`."""

    applied: int = 0
    late: int = 0
    duplicates: int = 0
    discarded: int = 0
    epochs: int = 0
    closed: int = 0


class Steps:
    """The grid of one model over all its assets.

    A step covers `(end - period, end]`. It closes when the watermarks of all groups have passed its end, or when the furthest of them is
    `max_lateness_s` beyond it.

    Args:
        chain: The declared signal path.
        assets: The assets and their tags.
        table: Gives each tag's group.

    Raises:
        ConfigError: The chain makes no sense, or every group is slower than `gap_reset_s`.
        ValueError: A signal of an asset has no tag.
    """

    def __init__(self, chain: ChainSpec, assets: Sequence[AssetBinding], table: TagTable) -> None:
        verify(chain)
        self.chain = chain
        self.counters = StepCounters()
        self._assets = tuple(binding.asset for binding in assets)
        mapped = chain.signals()
        signals = [*mapped, *(spec.name for spec in chain.derived)]
        columns, groups = _wiring(chain, assets, table, signals)
        self._router = Router(columns)
        self.groups = frozenset(int(group) for group in groups)
        ordered = [table.group(group) for group in sorted(self.groups)]
        self._column_place = np.searchsorted([group.id for group in ordered], groups)
        fastest_s = min(group.period_s for group in ordered)
        if fastest_s > chain.gap_reset_s:
            text = f"a gap of {chain.gap_reset_s:g} s resets the model, but its fastest group comes every {fastest_s:g} s"
            raise ConfigError(text, remedy="poll faster, or train with a larger gap_reset_s")
        on_change = np.array([table.group(int(g)).mode is GroupMode.ON_CHANGE for g in groups], np.bool_)
        self._alignment = Alignment(chain, signals, len(assets), on_change)
        self._signals = signals
        self._enable = Enable(chain.enable)
        shape = (len(assets), len(signals))
        self._feature = np.array([signals.index(spec.name) for spec in chain.inputs], np.intp)
        self._columns = np.arange(len(assets) * len(signals), dtype=np.intp).reshape(shape)[:, self._feature]
        periods = np.array([table.group(int(g)).period_s for g in groups]).reshape(shape)[:, self._feature]
        self._prompt = periods <= chain.period_s * (1 + 1e-9)
        self._scaling = Scaling(chain.inputs)
        self._period_ns = round(chain.period_s * NS_PER_S)
        self._lateness_ns = round(chain.max_lateness_s * NS_PER_S)
        self._gap_ns = round(chain.gap_reset_s * NS_PER_S)
        self._order = 0
        self._epoch = 0
        self._marks = Marks(ordered, chain.period_s, round(chain.max_lateness_s * NS_PER_S), self._gap_ns)
        self._confirmed: dict[int, int] = {}
        self._pending: list[Samples] = []
        self._closed_ns: int | None = None
        self._reset_windows()

    def _reset_windows(self) -> None:
        """Doubled rings: each step is written twice, so that the last `window` steps are always one view."""
        assets, features, window = len(self._assets), len(self._feature), self.chain.window
        self._values = np.zeros((2 * window, assets, features))
        self._observed = np.zeros((2 * window, assets, features), np.bool_)
        self._kept = np.zeros((2 * window, assets, features), np.bool_)
        self._qualities = np.zeros((2 * window, assets, features), np.uint16)
        self._filled = 0
        self._enabled_steps = np.zeros(assets, np.int64)

    def feed(self, item: Batch | Watermark) -> list[Step]:
        """Take one item and give the steps it closed, oldest first."""
        if isinstance(item, Watermark):
            return self._advance(item) if item.group in self.groups else []
        if item.group in self.groups:
            self._order += 1
            samples = self._router.route(item, self._order, self._marks.get(item.group))
            if samples is not None:
                self._pending.append(samples)
                self._bound_pending()
        return []

    def refill(self, items: Iterable[Batch | Watermark]) -> None:
        """Take recorded items for their state alone."""
        for item in items:
            self.feed(item)

    def _bound_pending(self) -> None:
        # A sum over all batches at every batch would grow with the square of what waits.
        if len(self._pending) % 64 and len(self._pending) <= _PENDING_PARTS:
            return
        waiting = sum(len(samples.column) for samples in self._pending)
        while waiting > _PENDING_LIMIT or len(self._pending) > _PENDING_PARTS:
            oldest = self._pending.pop(0)
            waiting -= len(oldest.column)
            self.counters.discarded += len(oldest.column)

    def _advance(self, mark: Watermark) -> list[Step]:
        group, up_to_ns = mark.group, self._marks.reach_ns(mark)
        first = not len(self._marks)
        if first or self._marks.breaks(group, up_to_ns):
            self._start_epoch(group, up_to_ns, first=first)
        self._marks.put(group, up_to_ns, alive=mark.alive)
        self._confirmed[group] = self._order
        return self._close()

    def _start_epoch(self, group: int, up_to_ns: int, *, first: bool) -> None:
        """Forget the state and anchor the grid at the new time, before the oldest sample that the group brought with it.

        Unconfirmed samples of the other groups may belong to the new time already; those near it are kept.
        """
        now_ns = self._marks.now_ns(group, up_to_ns)
        kept: list[Samples] = []
        for samples in self._pending:
            own = first or samples.group == group
            latest_ns = up_to_ns + (self._gap_ns if own else self._lateness_ns)
            new = first or samples.order > self._confirmed.get(samples.group, 0)
            part = samples.where((samples.time_ns > now_ns - self._gap_ns) & (samples.time_ns <= latest_ns)) if new else None
            self.counters.discarded += len(samples.column) - (len(part.column) if part else 0)
            if part is not None and len(part.column):
                kept.append(part)
        self._pending = kept
        oldest_ns = min((int(s.time_ns.min()) for s in kept if s.group == group), default=now_ns + 1)
        self._closed_ns = (min(oldest_ns - 1, now_ns) // self._period_ns) * self._period_ns
        if not first:
            self._epoch += 1
            self.counters.epochs += 1
            self._marks.clear()
        self._alignment.reset()
        self._reset_windows()

    def _close(self) -> list[Step]:
        assert self._closed_ns is not None  # noqa: S101 - anchored by the first watermark
        count = (self._marks.limit_ns() - self._closed_ns) // self._period_ns
        if count <= 0:
            return []
        start_ns = self._closed_ns
        samples = _Sorted(self._take(start_ns, start_ns + count * self._period_ns))
        steps: list[Step] = []
        for i in range(1, count + 1):
            end_ns = start_ns + i * self._period_ns
            for part in samples.instants(end_ns):
                self.counters.duplicates += self._alignment.apply(part)
            self._push(end_ns)
            self._closed_ns = end_ns
            steps.append(self._step(end_ns, due=i == count))
        self.counters.closed += count
        return steps

    def _take(self, start_ns: int, end_ns: int) -> list[Samples]:
        """Pending samples up to `end_ns`.

        Once its group's watermark has passed over a sample, it is late if it is older than `start_ns`, and discarded if it is further ahead
        of that watermark than a gap, since time comes there only by a new epoch.
        """
        taken: list[Samples] = []
        left: list[Samples] = []
        for samples in self._pending:
            due = (samples.time_ns > start_ns) & (samples.time_ns <= end_ns)
            wait = ~due
            mark_ns = self._marks.get(samples.group)
            if mark_ns is not None and samples.order <= self._confirmed.get(samples.group, 0) and wait.any():
                late, lost = samples.time_ns <= start_ns, samples.time_ns > max(mark_ns + self._gap_ns, end_ns)
                self.counters.late += int(np.count_nonzero(late))
                self.counters.discarded += int(np.count_nonzero(lost))
                wait &= ~(late | lost)
            if due.any():
                self.counters.applied += int(np.count_nonzero(due))
                taken.append(samples if due.all() else samples.where(due))
            if wait.any():
                left.append(samples.where(wait))
        self._pending = left
        return taken

    def _push(self, end_ns: int) -> None:
        value, observed, held, quality = self._alignment.close(end_ns, self._marks.living_ns[self._column_place])
        window = self.chain.window
        for row in (self._filled % window, self._filled % window + window):
            self._values[row] = value[self._columns]
            self._observed[row] = observed[self._columns]
            self._kept[row] = (observed | held)[self._columns]
            self._qualities[row] = quality[self._columns]
        self._filled += 1
        by_signal = value.reshape(len(self._assets), len(self._signals))
        named = {name: by_signal[:, i] for i, name in enumerate(self._signals)}
        enabled = self._enable(named, len(self._assets))
        self._enabled_steps = np.where(enabled, self._enabled_steps + 1, 0)

    def _step(self, end_ns: int, *, due: bool) -> Step:
        if not due:
            passed = tuple(AssetStep(asset, Outcome.CAUGHT_UP, None, 0.0, Code.BAD_STALE) for asset in self._assets)
            return Step(end_ns, self._epoch, due=False, assets=passed)
        start = self._filled % self.chain.window
        view = slice(start, start + self.chain.window)
        return Step(end_ns, self._epoch, due=True, assets=tuple(self._asset_step(i, view, end_ns) for i in range(len(self._assets))))

    def _asset_step(self, i: int, view: slice, end_ns: int) -> AssetStep:
        chain, name = self.chain, self._assets[i]
        coverage = float(np.count_nonzero(self._kept[view, i])) / (chain.window * len(self._feature))
        enabled = int(self._enabled_steps[i])
        if not enabled:
            return AssetStep(name, Outcome.DISABLED, None, coverage, Code.BAD_DISABLED)
        discarding = chain.enable and enabled <= chain.enable_discard_steps
        if self._filled < chain.window or discarding:
            return AssetStep(name, Outcome.WARMING_UP, None, coverage, Code.BAD_WAITING)
        observed = self._observed[view, i]
        quality = self._quality(i, view, coverage, observed)
        if coverage < chain.coverage_uncertain:
            return AssetStep(name, Outcome.COVERAGE, None, coverage, quality)
        return AssetStep(name, Outcome.INFERRED, self._window(i, view, end_ns, coverage, quality, observed), coverage, quality)

    def _quality(self, i: int, view: slice, coverage: float, observed: npt.NDArray[np.bool_]) -> int:
        chain = self.chain
        if coverage < chain.coverage_uncertain:
            return Code.BAD_COVERAGE
        newest = observed[chain.window - chain.newest_observed :][:, self._prompt[i]]
        gaps = Code.GOOD if coverage >= chain.coverage_good and bool(newest.all()) else Code.UNCERTAIN_COVERAGE
        cells = self._qualities[view, i]
        return combine(gaps, int((cells & 0xFF).max()) | int(np.bitwise_or.reduce(cells & 0xFF00, axis=None)))

    def _window(self, i: int, view: slice, end_ns: int, coverage: float, quality: int, observed: npt.NDArray[np.bool_]) -> Window:
        aligned = self._values[view, i].copy()
        columns = self._columns[i]
        newest = columns[int(np.argmax(self._alignment.good_ns[columns]))]
        received = self._alignment.received_ns[columns]
        oldest = columns[int(np.argmax(self._alignment.lag_ns[columns] - received))]
        return Window(
            self._assets[i],
            end_ns,
            self._scaling.scale(aligned),
            aligned,
            observed.copy(),
            coverage,
            quality if level(quality) is not Level.BAD else combine(quality, Code.BAD_COVERAGE),
            int(self._alignment.requested_ns[newest]),
            int(self._alignment.received_ns[newest]),
            int(self._alignment.lag_ns[oldest]),
            int(self._alignment.received_ns[oldest]),
        )


class _Sorted:
    """Samples of several batches by (source time, arrival), handed out instant by instant."""

    def __init__(self, parts: Sequence[Samples]) -> None:
        self._parts = sorted(parts, key=lambda part: part.order)
        cuts: list[tuple[int, int, Samples]] = []
        for part in self._parts:
            if part.time_ns[0] == part.time_ns[-1] and bool((part.time_ns == part.time_ns[0]).all()):
                cuts.append((int(part.time_ns[0]), part.order, part))
                continue
            cuts.extend((int(t), part.order, part.where(part.time_ns == t)) for t in np.unique(part.time_ns))
        self._cuts = sorted(cuts, key=lambda cut: cut[:2])
        self._next = 0

    def instants(self, end_ns: int) -> Iterable[Samples]:
        """The samples up to `end_ns` not handed out yet."""
        while self._next < len(self._cuts) and self._cuts[self._next][0] <= end_ns:
            yield self._cuts[self._next][2]
            self._next += 1


def _wiring(
    chain: ChainSpec, assets: Sequence[AssetBinding], table: TagTable, signals: Sequence[str]
) -> tuple[list[tuple[int, int, float, float]], npt.NDArray[np.int64]]:
    """`(tag, column, factor, offset)` of every mapped signal, and the group of every column."""
    mapped = chain.signals()
    rows: list[tuple[int, int, float, float]] = []
    groups: list[int] = []
    for place, binding in enumerate(assets):
        missing = [name for name in mapped if name not in binding.tags]
        if missing:
            raise ValueError(f"asset {binding.asset}: no tag for {', '.join(missing)}")
        group_of: dict[str, int] = {}
        for name in mapped:
            tag = binding.tags[name]
            group_of[name] = table[tag].group
            rows.append((tag, place * len(signals) + signals.index(name), *binding.factors.get(name, (1.0, 0.0))))
        for spec in chain.derived:
            group_of[spec.name] = group_of[spec.sources[0]]
        groups.extend(group_of[name] for name in signals)
    return rows, np.array(groups, np.int64)
