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
    """What a full queue does with one more item."""

    DROP_OLDEST = "drop oldest"
    DROP_NEWEST = "drop newest"


@dataclass(slots=True)
class _Account:
    """One unit's counts."""

    received: int = 0
    consumed: int = 0
    rejected: int = 0
    dropped: int = 0
    merged: int = 0
    waiting: int = 0
    in_flight: int = 0
    produced: int = 0


def measure(item: Flowing) -> tuple[str, int]:
    """The unit an item is counted in, and how many of it."""
    if isinstance(item, Batch):
        return "values", len(item)
    return ("watermarks", 1) if isinstance(item, Watermark) else ("predictions", 1)


class FlowQueue:
    """A queue between the fan-out and one consumer, bounded in values and predictions.

    Watermarks take no room and are never dropped: in a run of watermarks behind the last batch, a newer one of the same group replaces the
    older, so that a run is never longer than there are groups. Putting never waits: a slow consumer must not delay a poll.

    Args:
        capacity: Values (or predictions) that may wait.
        overflow: What to do beyond it.
    """

    def __init__(self, capacity: int, overflow: Overflow = Overflow.DROP_OLDEST) -> None:
        self._capacity = capacity
        self._overflow = overflow
        self._items: deque[Flowing] = deque()
        self._weight = 0
        self._accounts: dict[str, _Account] = {}
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def _account(self, unit: str) -> _Account:
        account = self._accounts.get(unit)
        if account is None:
            account = self._accounts[unit] = _Account()
        return account

    def put(self, item: Flowing) -> None:
        """Add an item; never waits and never raises."""
        unit, count = measure(item)
        account = self._account(unit)
        account.received += count
        self._arrived.set()
        if isinstance(item, Watermark):
            account.waiting += 1
            self._put_watermark(item, account)
            return
        if self._weight + count > self._capacity and not self._make_room(count):
            account.dropped += count
            return
        account.waiting += count
        self._weight += count
        self._items.append(item)

    def _put_watermark(self, mark: Watermark, account: _Account) -> None:
        place = len(self._items)
        while place and isinstance(self._items[place - 1], Watermark):
            place -= 1
            known = self._items[place]
            if isinstance(known, Watermark) and known.group == mark.group:
                del self._items[place]
                account.waiting -= 1
                account.merged += 1
                break
        self._items.append(mark)

    def _make_room(self, count: int) -> bool:
        """Drop the oldest batches or predictions until `count` fits; watermarks keep their place."""
        if self._overflow is Overflow.DROP_NEWEST or count > self._capacity:
            return False
        kept: list[Flowing] = []
        while self._items and self._weight + count > self._capacity:
            item = self._items.popleft()
            if isinstance(item, Watermark):
                kept.append(item)
                continue
            unit, size = measure(item)
            account = self._account(unit)
            account.waiting -= size
            account.dropped += size
            self._weight -= size
        self._items.extendleft(reversed(self._merged(kept)))
        return True

    def _merged(self, kept: list[Flowing]) -> list[Flowing]:
        """Watermarks that have become neighbours, the newest of each group at its place."""
        newest = {item.group: i for i, item in enumerate(kept) if isinstance(item, Watermark)}
        result = [item for i, item in enumerate(kept) if isinstance(item, Watermark) and newest[item.group] == i]
        gone = len(kept) - len(result)
        if gone:
            account = self._account("watermarks")
            account.waiting -= gone
            account.merged += gone
        return list(result)

    async def wait(self) -> None:
        """Return once something waits."""
        while not self._items:
            self._arrived.clear()
            await self._arrived.wait()

    @contextmanager
    def take_all(self) -> Iterator[list[Flowing]]:
        """Everything that waits, in order; in flight until the block ends, rejected if it ends with an error."""
        items = list(self._items)
        self._items.clear()
        self._weight = 0
        counts: dict[str, int] = {}
        for item in items:
            unit, count = measure(item)
            counts[unit] = counts.get(unit, 0) + count
        for unit, count in counts.items():
            account = self._account(unit)
            account.waiting -= count
            account.in_flight += count
        try:
            yield items
        except BaseException:
            self._settle(counts, "rejected")
            raise
        self._settle(counts, "consumed")

    def _settle(self, counts: dict[str, int], fate: str) -> None:
        for unit, count in counts.items():
            account = self._account(unit)
            account.in_flight -= count
            setattr(account, fate, getattr(account, fate) + count)

    def reject(self, unit: str, count: int) -> None:
        """Of what is in flight and will be counted as consumed, call `count` rejected instead."""
        account = self._account(unit)
        account.consumed -= count
        account.rejected += count

    def produce(self, unit: str, count: int) -> None:
        """Count what the consumer put out."""
        self._account(unit).produced += count

    def ledgers(self) -> dict[str, Ledger]:
        """The accounts by unit."""
        return {
            unit: Ledger(a.received, a.consumed, a.rejected, a.dropped, a.merged, a.waiting, a.in_flight, a.produced)
            for unit, a in self._accounts.items()
        }
