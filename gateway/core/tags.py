"""Tags, groups and the table that numbers them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from gateway.core.units import unit


class DataType(StrEnum):
    """Data type of a tag inside the house; wire layouts belong to the connectors."""

    BOOL = "bool"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"
    INT64 = "int64"
    UINT64 = "uint64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    TEXT = "text"

    @property
    def is_wide(self) -> bool:
        """Whether float64 cannot hold every value, so that the `wide` column is authoritative."""
        return self in (DataType.INT64, DataType.UINT64)


class GroupMode(StrEnum):
    """Whether a missing sample means "nothing was read" or "nothing has changed"."""

    SAMPLED = "sampled"
    ON_CHANGE = "on_change"


@dataclass(frozen=True, slots=True)
class Group:
    """What one source reads at one period or publishes at one interval.

    Attributes:
        id: Number of the group in its `TagTable`.
        name: `source/group`, unique in the process.
        source: Name of the source that feeds it.
        period_s: Poll period or publishing interval.
        mode: How silence is to be read.
        domain: Time domain of its stamps: `gateway` or a named source clock.
        silence_limit_s: Monotonic time without a living watermark after which the source stage declares the group dead.
    """

    id: int
    name: str
    source: str
    period_s: float
    mode: GroupMode = GroupMode.SAMPLED
    domain: str = "gateway"
    silence_limit_s: float = 3.0


@dataclass(frozen=True, slots=True)
class Tag:
    """One signal.

    Attributes:
        name: Unique in the process.
        unit: Symbol of the fixed vocabulary (`gateway.core.units`).
        data_type: Type inside the house.
        group: Id of the group that carries it.
        low: Lower end of the engineering range, in `unit`.
        high: Upper end of the engineering range, in `unit`.
        dead_band: Change below which history may leave a sample out, in `unit`.
        description: The user's words.
    """

    name: str
    unit: str
    data_type: DataType
    group: int
    low: float = float("-inf")
    high: float = float("inf")
    dead_band: float = 0.0
    description: str = ""

    def __post_init__(self) -> None:
        """Converts an alias of the unit to its symbol."""
        object.__setattr__(self, "unit", unit(self.unit).symbol)


class TagTable:
    """Numbers tags and groups, append-only, so that a queued Batch can always be read.

    Adding a tag again is free; adding a changed one under the same name gives it a new number, and the old number keeps its old meaning.
    """

    def __init__(self) -> None:
        self._tags: list[Tag] = []
        self._current: dict[str, int] = {}
        self._groups: list[Group] = []
        self._group_of: dict[str, int] = {}

    def add_group(
        self,
        name: str,
        source: str,
        period_s: float,
        *,
        mode: GroupMode = GroupMode.SAMPLED,
        domain: str = "gateway",
        silence_limit_s: float | None = None,
    ) -> Group:
        """The group of that description, numbered now if it is new."""
        limit_s = silence_limit_s if silence_limit_s is not None else max(3 * period_s, 1.0)
        known = self._group_of.get(name)
        group = Group(len(self._groups) if known is None else known, name, source, period_s, mode, domain, limit_s)
        if known is not None:
            if self._groups[known] == group:
                return self._groups[known]
            group = Group(len(self._groups), name, source, period_s, mode, domain, limit_s)
        self._groups.append(group)
        self._group_of[name] = group.id
        return group

    def add(self, tag: Tag) -> int:
        """The tag's number."""
        known = self._current.get(tag.name)
        if known is not None and self._tags[known] == tag:
            return known
        self._tags.append(tag)
        self._current[tag.name] = len(self._tags) - 1
        return len(self._tags) - 1

    def number(self, name: str) -> int:
        """Number of the tag that has this name now.

        Raises:
            KeyError: No tag has it.
        """
        return self._current[name]

    def numbers(self, names: Iterable[str]) -> list[int]:
        """Numbers of several tags, in the order asked for."""
        return [self._current[name] for name in names]

    def __getitem__(self, number: int) -> Tag:
        return self._tags[number]

    def __len__(self) -> int:
        return len(self._tags)

    def __iter__(self) -> Iterator[Tag]:
        """The tags that have a name now, superseded ones left out."""
        return (self._tags[number] for number in self._current.values())

    def __contains__(self, name: str) -> bool:
        return name in self._current

    def group(self, group_id: int) -> Group:
        """The group with that number."""
        return self._groups[group_id]

    def groups(self) -> tuple[Group, ...]:
        """The groups that are current, by number."""
        return tuple(self._groups[i] for i in sorted(self._group_of.values()))

    def tags_of(self, group_id: int) -> list[int]:
        """Numbers of the current tags of one group, ascending."""
        return sorted(n for n in self._current.values() if self._tags[n].group == group_id)
