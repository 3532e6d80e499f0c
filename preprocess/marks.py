"""How far time has come, as the watermarks of several groups tell it."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gateway.core.batch import Watermark
from gateway.core.clock import NS_PER_S
from gateway.core.tags import Group, GroupMode

NEVER = np.iinfo(np.int64).min // 2


class Marks:
    """The watermarks of the groups of one model.

    A poll in gateway time promises that nothing comes before its next request; that of a group slower than the grid is therefore no sign
    that time itself has come so far.

    Args:
        groups: All groups, by id.
        period_s: Of the grid.
        lateness_ns: How far the furthest group may be ahead of the others.
        gap_ns: Jump that starts a new epoch.
    """

    def __init__(self, groups: Sequence[Group], period_s: float, lateness_ns: int, gap_ns: int) -> None:
        self._ahead_ns = {group.id: _ahead_ns(group, period_s) for group in groups}
        self._place = {group.id: place for place, group in enumerate(groups)}
        self._lateness_ns = lateness_ns
        self._gap_ns = gap_ns
        self.clear()

    def clear(self) -> None:
        """Forget all marks: a new epoch."""
        self._marks: dict[int, int] = {}
        self._alive: set[int] = set()
        self._shift_ns: dict[int, int] = {}
        self.living_ns: npt.NDArray[np.int64] = np.full(len(self._place), NEVER, np.int64)

    def __len__(self) -> int:
        """Groups that have spoken."""
        return len(self._marks)

    def get(self, group: int) -> int | None:
        """The newest mark of a group."""
        return self._marks.get(group)

    def now_ns(self, group: int, up_to_ns: int) -> int:
        """What a mark of that group says of time itself."""
        return up_to_ns - self._ahead_ns[group]

    def breaks(self, group: int, up_to_ns: int) -> bool:
        """Whether a mark is too far ahead of all others, or behind its own group's last one, to belong to the same epoch."""
        before_ns = self._marks.get(group)
        back = before_ns is not None and before_ns - up_to_ns > self._lateness_ns
        return back or self.now_ns(group, up_to_ns) - self._furthest_ns() > self._gap_ns

    def put(self, group: int, up_to_ns: int, *, alive: bool) -> None:
        """Take a mark; one that goes back a little is taken for its group's last one."""
        self._marks[group] = max(self._marks.get(group, up_to_ns), up_to_ns)
        if alive:
            place = self._place[group]
            self._alive.add(group)
            self.living_ns[place] = max(self.living_ns[place], up_to_ns)
        else:
            self._alive.discard(group)

    def limit_ns(self) -> int:
        """Steps up to here may close."""
        limit_ns = self._furthest_ns() - self._lateness_ns
        return max(limit_ns, min(self._marks.values())) if len(self._marks) == len(self._place) else limit_ns

    def reach_ns(self, mark: Watermark) -> int:
        """How far a mark reaches.

        A dead group counts on from a clock that may have been set since. Beside a living group it tells only how much time went by: it
        starts from the living one's time, never goes back, and begins no epoch.
        """
        group, known_ns = mark.group, self._marks.get(mark.group)
        if mark.alive:
            self._shift_ns.pop(group, None)
            return mark.up_to_ns
        living = [self.now_ns(other, self._marks[other]) for other in self._alive if other != group]
        if living and known_ns is None and abs(mark.up_to_ns - max(living)) > self._lateness_ns + self._ahead_ns[group]:
            self._shift_ns[group] = max(living) - mark.up_to_ns
        up_to_ns = mark.up_to_ns + self._shift_ns.get(group, 0)
        if not living:
            return up_to_ns
        most_ns = self._furthest_ns() + self._ahead_ns[group] + self._gap_ns
        if known_ns is None:
            return min(up_to_ns, most_ns)
        return max(known_ns, up_to_ns) if up_to_ns <= most_ns else known_ns

    def _furthest_ns(self) -> int:
        return max(self.now_ns(group, up_to_ns) for group, up_to_ns in self._marks.items())


def _ahead_ns(group: Group, period_s: float) -> int:
    """How much further than time itself a group's watermarks may reach, beyond one step of the grid."""
    polled = group.mode is GroupMode.SAMPLED and group.domain == "gateway"
    return max(round((group.period_s - period_s) * NS_PER_S), 0) if polled else 0
