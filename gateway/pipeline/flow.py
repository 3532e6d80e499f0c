"""Fan-out to consumers that cannot hold each other up, and the stage that each consumer runs in."""

from collections.abc import Awaitable, Callable, Sequence

import structlog

from gateway.core.errors import DataError
from gateway.core.protocols import Flowing
from gateway.core.quality import Ne107
from gateway.core.snapshot import StageStatus
from gateway.pipeline.queue import FlowQueue, Overflow

log = structlog.get_logger(__name__)

Handler = Callable[[Sequence[Flowing]], Awaitable[None]]
Tap = Callable[[Flowing], None]


class Fanout:
    """Gives each item to every tap, at once, and to every outlet's queue."""

    def __init__(self) -> None:
        self._taps: list[Tap] = []
        self._outlets: list[FlowQueue] = []

    def tap(self, tap: Tap) -> None:
        """Add a consumer that takes an item in microseconds and cannot fail."""
        self._taps.append(tap)

    def outlet(self, queue: FlowQueue) -> None:
        """Add a consumer's queue."""
        self._outlets.append(queue)

    def put(self, item: Flowing) -> None:
        """Hand an item on; never waits."""
        for tap in self._taps:
            tap(item)
        for queue in self._outlets:
            queue.put(item)


class Stage:
    """Drains a queue into a handler, everything that waits at a time.

    A `DataError` of the handler loses that portion, counted as rejected; other errors end the stage and are the supervisor's.

    Args:
        name: Shown to the operator.
        handler: Takes the items in order.
        capacity: Values that may wait.
        overflow: What a full queue does.
    """

    def __init__(self, name: str, handler: Handler, *, capacity: int = 100_000, overflow: Overflow = Overflow.DROP_OLDEST) -> None:
        self.name = name
        self.queue = FlowQueue(capacity, overflow)
        self._handler = handler
        self._said_bad = False

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self.queue.wait()
            try:
                with self.queue.take_all() as items:
                    await self._handler(items)
            except DataError as error:
                if not self._said_bad:
                    log.warning("stage.rejected", stage=self.name, text=str(error))
                self._said_bad = True
            else:
                self._said_bad = False

    def status(self) -> StageStatus:
        """Its accounts."""
        ledgers = self.queue.ledgers()
        dropped = sum(ledger.dropped for ledger in ledgers.values())
        word = Ne107.OUT_OF_SPECIFICATION if self._said_bad or dropped else Ne107.GOOD
        return StageStatus(self.name, word, f"{dropped} dropped" if dropped else "", ledgers)
