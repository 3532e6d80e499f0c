"""Bounded queues that account for every value and never lose a watermark."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from gateway.core.batch import Batch, Watermark
from gateway.core.prediction import Prediction
from gateway.core.protocols import Flowing
from gateway.core.snapshot import Ledger


class Overflow(StrEnum):
    """What a full queue does with one more item; watermarks always enter."""

    DROP_OLDEST = "drop oldest"
    DROP_NEWEST = "drop newest"
    REFUSE = "refuse"
    WAIT = "wait"


@dataclass(slots=True)
class Account:
    """One unit's running counts, from which its `Ledger` is read."""

    received: int = 0
    consumed: int = 0
    rejected: int = 0
    dropped: int = 0
    merged: int = 0
    waiting: int = 0
    in_flight: int = 0
    produced: int = 0

    def ledger(self) -> Ledger:
        """The counts at this instant."""
        return Ledger(self.received, self.consumed, self.rejected, self.dropped, self.merged, self.waiting, self.in_flight, self.produced)


def measure(item: Flowing) -> tuple[str, int]:
    """The unit an item is counted in, and how many of it."""
    if isinstance(item, Batch):
        return "values", len(item.tag)
    return ("watermarks", 1) if isinstance(item, Watermark) else ("predictions", 1)


class _Run:
    """Adjacent watermarks.

    A newer one replaces the older ones of its group, but a dead one never a living one, which still vouches for its time.
    """

    __slots__ = ("kept",)

    def __init__(self) -> None:
        self.kept: dict[int, Watermark] = {}

    def add(self, mark: Watermark) -> int:
        """Takes one more behind the others; returns how many it replaced."""
        kept, living = self.kept, 2 * mark.group
        merged = 0 if kept.pop(living + 1, None) is None else 1
        if mark.alive:
            merged += 0 if kept.pop(living, None) is None else 1
            kept[living] = mark
        else:
            kept[living + 1] = mark
        return merged


class FlowQueue:
    """A queue between the fan-out and one consumer, bounded in values (or predictions) and in items.

    Watermarks take no room, are never dropped and never overtake a batch. In a run of adjacent ones the newest of a group replaces the
    older, so that a run is never longer than twice the number of groups. Putting never waits: a slow consumer must not delay a poll.

    Args:
        capacity: Values (or predictions) that may wait.
        overflow: What to do beyond it.
        max_items: Batches (or predictions) that may wait, whatever their size.
    """

    def __init__(self, capacity: int, overflow: Overflow = Overflow.DROP_OLDEST, *, max_items: int = 4096) -> None:
        self.overflow = overflow
        self._capacity = capacity
        self._max_items = max_items
        self._entries: deque[Batch | Prediction | _Run] = deque()
        self._items = 0
        self._weight = 0
        self._accounts: dict[str, Account] = {}
        self._arrived: asyncio.Future[None] | None = None
        self._leavers: list[asyncio.Future[None]] = []
        self._taken = 0

    def __len__(self) -> int:
        return self._items + self.account("watermarks").waiting

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is in the consumer's hands."""
        return not self._entries and not self._taken

    def account(self, unit: str) -> Account:
        """Running counts of one unit."""
        account = self._accounts.get(unit)
        if account is None:
            account = self._accounts[unit] = Account()
        return account

    def put(self, item: Flowing) -> bool:
        """Add an item; never waits and never raises.

        Returns:
            Whether it was admitted. A full queue whose policy is to wait does not count the item: use `put_when_free` there.
        """
        if isinstance(item, Watermark):
            self._put_watermark(item)
        elif not self._put_data(item):
            return False
        arrived = self._arrived
        if arrived is not None:
            self._arrived = None
            if not arrived.done():
                arrived.set_result(None)
        return True

    async def put_when_free(self, item: Flowing) -> None:
        """Add an item; if the policy is to wait, do so until there is room."""
        while not self.put(item) and self.overflow is Overflow.WAIT:
            await self._departure()

    def _put_data(self, item: Batch | Prediction) -> bool:
        unit, count = measure(item)
        account = self._accounts.get(unit) or self.account(unit)
        if self._is_full(count) and not self._admits(count, account):
            return False
        account.received += count
        account.waiting += count
        self._weight += count
        self._items += 1
        self._entries.append(item)
        return True

    def _is_full(self, count: int) -> bool:
        return self._weight + count > self._capacity or self._items >= self._max_items

    def _admits(self, count: int, account: Account) -> bool:
        """What the policy says to an item for which there is no room now."""
        if self.overflow is Overflow.WAIT:
            # What never fits is let in alone, else it would be waited for without end.
            return not self._items
        if self.overflow is Overflow.DROP_OLDEST and count <= self._capacity:
            self._make_room(count)
            return True
        account.received += count
        if self.overflow is Overflow.REFUSE:
            account.rejected += count
        else:
            account.dropped += count
        return False

    def _put_watermark(self, mark: Watermark) -> None:
        last = self._entries[-1] if self._entries else None
        if not isinstance(last, _Run):
            last = _Run()
            self._entries.append(last)
        merged = last.add(mark)
        account = self.account("watermarks")
        account.received += 1
        account.merged += merged
        account.waiting += 1 - merged

    def _make_room(self, count: int) -> None:
        """Drop the oldest batches or predictions until `count` fits; watermarks stay, and merge where they become neighbours."""
        head = _Run()
        while self._items and self._is_full(count):
            entry = self._entries.popleft()
            if isinstance(entry, _Run):
                self._join(head, entry)
                continue
            unit, size = measure(entry)
            account = self.account(unit)
            account.waiting -= size
            account.dropped += size
            self._weight -= size
            self._items -= 1
        if head.kept:
            if self._entries and isinstance(self._entries[0], _Run):
                following = self._entries.popleft()
                assert isinstance(following, _Run)  # noqa: S101 - looked at on the line before
                self._join(head, following)
            self._entries.appendleft(head)

    def _join(self, older: _Run, newer: _Run) -> None:
        merged = sum([older.add(mark) for mark in newer.kept.values()])
        account = self.account("watermarks")
        account.merged += merged
        account.waiting -= merged

    async def wait(self) -> None:
        """Return once something waits; one consumer only."""
        while not self._entries:
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived

    async def join(self) -> None:
        """Return once nothing waits and nothing is in the consumer's hands."""
        while not self.idle:
            await self._departure()

    @contextmanager
    def take_all(self) -> Iterator[list[Flowing]]:
        """Everything that waits, in order; in flight until the block ends, rejected if it ends with an error (cancellation included)."""
        items: list[Flowing] = []
        for entry in self._entries:
            if isinstance(entry, _Run):
                items.extend(entry.kept.values())
            else:
                items.append(entry)
        counts = {unit: account.waiting for unit, account in self._accounts.items() if account.waiting}
        self._entries.clear()
        self._weight = self._items = 0
        for unit, count in counts.items():
            account = self._accounts[unit]
            account.waiting -= count
            account.in_flight += count
        self._taken += 1
        self._announce()
        done = False
        try:
            yield items
            done = True
        finally:
            for unit, count in counts.items():
                account = self._accounts[unit]
                account.in_flight -= count
                if done:
                    account.consumed += count
                else:
                    account.rejected += count
            self._taken -= 1
            self._announce()

    def reject(self, unit: str, count: int) -> None:
        """Of what was consumed (or will be, being in flight), call `count` rejected instead; the account stays balanced all the while."""
        account = self.account(unit)
        account.consumed -= count
        account.rejected += count

    def produce(self, unit: str, count: int) -> None:
        """Count what the consumer put out."""
        self.account(unit).produced += count

    def ledgers(self) -> dict[str, Ledger]:
        """The accounts by unit."""
        return {unit: account.ledger() for unit, account in self._accounts.items()}

    async def _departure(self) -> None:
        leaver = asyncio.get_running_loop().create_future()
        self._leavers.append(leaver)
        try:
            await leaver
        finally:
            if leaver in self._leavers:
                self._leavers.remove(leaver)

    def _announce(self) -> None:
        if not self._leavers:
            return
        leavers, self._leavers = self._leavers, []
        for leaver in leavers:
            if not leaver.done():
                leaver.set_result(None)


def is_data(item: Flowing) -> bool:
    """Whether it carries values, not only time."""
    return isinstance(item, Batch | Prediction)
