"""Which requests read the tags of a group: neighbours together, within the device's limits."""

from collections.abc import Sequence
from dataclasses import dataclass

from connectors.modbus.settings import ModbusTagSettings, Order, Table, WireType, parse_address

_FUNCTIONS = {Table.COIL: 1, Table.DISCRETE: 2, Table.HOLDING: 3, Table.INPUT: 4}
_MAX_BITS = 2000


@dataclass(frozen=True, slots=True)
class Block:
    """One read request.

    Attributes:
        table: Which table.
        start: First address.
        count: Registers or bits.
        members: Positions of the tags it carries, in the list the plan was made from.
    """

    table: Table
    start: int
    count: int
    members: tuple[int, ...]

    @property
    def function(self) -> int:
        """Function code."""
        return _FUNCTIONS[self.table]

    @property
    def data_bytes(self) -> int:
        """Data bytes of the response."""
        return (self.count + 7) // 8 if self.table in (Table.COIL, Table.DISCRETE) else self.count * 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value lies."""

    table: Table
    address: int
    type: WireType
    order: Order | None = None
    scale: float = 1.0
    offset: float = 0.0


def place_of(tag: ModbusTagSettings) -> Place:
    """The place a tag's settings name."""
    table, address = parse_address(tag.address)
    kind = WireType.BOOL if table in (Table.COIL, Table.DISCRETE) else tag.type
    return Place(table, address, kind, tag.order, tag.scale, tag.offset)


def plan(places: Sequence[Place], max_gap: int, max_registers: int) -> list[Block]:
    """Requests that read all places, by table and ascending address.

    Args:
        places: What to read.
        max_gap: Unused registers between two that are read along (16 times as many bits).
        max_registers: Registers per request.
    """
    blocks: list[Block] = []
    for table in Table:
        bits = table in (Table.COIL, Table.DISCRETE)
        gap, limit = (max_gap * 16, _MAX_BITS) if bits else (max_gap, max_registers)
        members: list[int] = []
        start = end = 0
        for i in sorted((i for i, p in enumerate(places) if p.table is table), key=lambda i: places[i].address):
            first, last = places[i].address, places[i].address + (1 if bits else places[i].type.words)
            if members and (first - end > gap or max(last, end) - start > limit):
                blocks.append(Block(table, start, end - start, tuple(members)))
                members = []
            if not members:
                start, end = first, last
            members.append(i)
            end = max(end, last)
        if members:
            blocks.append(Block(table, start, end - start, tuple(members)))
    return blocks
