"""One group's part of a source: its requests, compiled once, and its slots in time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from connectors.modbus.codec import BitCodec, Codec, Field
from connectors.modbus.plan import Block, Place, place_of, plan
from connectors.modbus.settings import ModbusGroupSettings, ModbusSourceSettings, StampSettings, Table, WireType, parse_address
from gateway.core.clock import NS_PER_MS, NS_PER_S
from gateway.core.errors import TransientError
from gateway.core.quality import Code
from gateway.core.tags import Group, TagTable

_STAMP = -1  # number of a member that is the group's time stamp and no tag


@dataclass(slots=True, eq=False)
class Read:
    """One block with its codec and the columns it fills.

    Attributes:
        block: The request.
        codec: Gives the tags' values, then the stamp if the block carries it.
        tags: Tag numbers, `int32[n]`.
        low: Lower ends of their ranges, `float64[n]`.
        high: Upper ends, `float64[n]`.
        ranged: Whether any of them is a limit.
        good: Qualities of a block without fault, `uint16[n]`, shared by all batches.
        stamp: Column of the time stamp, None if it is elsewhere.
        failure: The protocol's last word on this block, empty if its last read was fine.
    """

    block: Block
    codec: Codec | BitCodec
    tags: npt.NDArray[np.int32]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    ranged: bool
    good: npt.NDArray[np.uint16]
    stamp: int | None
    failure: str = ""

    def quality(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint16]:
        """NaN and infinities are bad, what lies outside a tag's range is uncertain."""
        finite = np.isfinite(values)
        if not self.ranged and finite.all():
            return self.good
        with np.errstate(invalid="ignore"):
            outside = (values < self.low) | (values > self.high)
        if finite.all() and not outside.any():
            return self.good
        quality = np.where(outside, Code.UNCERTAIN_OUT_OF_RANGE, Code.GOOD)
        return np.where(finite, quality, Code.BAD_NOT_A_NUMBER).astype(np.uint16)


class GroupPoll:
    """One group's plan, slots and state.

    Args:
        group: As numbered by the table.
        settings: Of the group.
        source: Of the source it belongs to.
        table: Has its tags already.
    """

    def __init__(self, group: Group, settings: ModbusGroupSettings, source: ModbusSourceSettings, table: TagTable) -> None:
        self.group = group
        self.stamp: StampSettings | None = settings.clock
        self.period_ns = round(settings.period_s * NS_PER_S)
        self.cycle = 0
        self.missed = 0
        self.errors = 0
        self.answered = False
        self.failure: TransientError | None = None
        self.refusal: TransientError | None = None
        self.stamp_ns: int | None = None
        self.stamp_mono_ns = 0
        places = [place_of(tag) for tag in settings.tags]
        numbers = table.numbers(tag.name for tag in settings.tags)
        if self.stamp is not None:
            stamp_table, address = parse_address(self.stamp.address)
            places.append(Place(stamp_table, address, WireType.UINT32, self.stamp.order))
            numbers.append(_STAMP)
        blocks = plan(places, source.max_gap, source.max_registers)
        # The stamp comes first, so that no value of the cycle can be older than it.
        blocks.sort(key=lambda block: not any(numbers[i] == _STAMP for i in block.members))
        self.reads = [_compile(block, places, numbers, source, table) for block in blocks]

    def next_slot_ns(self, wall_ns: int) -> int:
        """The next mid-period instant, strictly after `wall_ns`, in UTC."""
        half = self.period_ns // 2
        return ((wall_ns - half) // self.period_ns + 1) * self.period_ns + half

    def set_stamp(self, value: float, mono_ns: int) -> None:
        """Take what the time-stamp register says."""
        unit_ns = NS_PER_S if self.stamp is not None and self.stamp.unit == "s" else NS_PER_MS
        self.stamp_ns, self.stamp_mono_ns = int(value) * unit_ns, mono_ns

    def now_ns(self, mono_ns: int, wall_ns: int) -> int:
        """The present in the group's time domain, as far as it can be told: its last stamp and what has passed since.

        Before the first stamp it is the origin of time, so that whatever the source's clock says later is newer.
        """
        if self.stamp is None:
            return wall_ns
        return 0 if self.stamp_ns is None else self.stamp_ns + mono_ns - self.stamp_mono_ns


def _compile(block: Block, places: Sequence[Place], numbers: Sequence[int], source: ModbusSourceSettings, table: TagTable) -> Read:
    members = [i for i in block.members if numbers[i] != _STAMP]
    stamp = next((i for i in block.members if numbers[i] == _STAMP), None)
    columns = [places[i] for i in (members if stamp is None else [*members, stamp])]
    fields = [Field(p.address - block.start, p.type, p.order or source.order, p.scale, p.offset) for p in columns]
    tags = [table[numbers[i]] for i in members]
    low, high = np.array([tag.low for tag in tags]), np.array([tag.high for tag in tags])
    good = np.zeros(len(tags), np.uint16)
    good.flags.writeable = False
    return Read(
        block,
        BitCodec(fields) if block.table in (Table.COIL, Table.DISCRETE) else Codec(fields),
        np.array([numbers[i] for i in members], np.int32),
        low,
        high,
        bool(np.isfinite(low).any() or np.isfinite(high).any()),
        good,
        None if stamp is None else len(columns) - 1,
    )
