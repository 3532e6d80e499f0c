"""Fan-out to consumers that cannot hold each other up, and the stage that each consumer runs in."""

from collections.abc import Awaitable, Callable, Iterable, Sequence

import structlog

from gateway.core.errors import DataError
from gateway.core.prediction import Prediction
from gateway.core.protocols import Flowing
from gateway.core.quality import Ne107
from gateway.core.snapshot import StageStatus
from gateway.pipeline.queue import FlowQueue, Overflow

log = structlog.get_logger(__name__)

Handler = Callable[[Sequence[Flowing]], Awaitable[None]]
Tap = Callable[[Flowing], None]
_NO_GROUP = -1


class Fanout:
    """Gives each item to every tap, at once, and to every outlet's queue."""

    def __init__(self) -> None:
        self._taps: list[Tap] = []
        self._outlets: dict[FlowQueue, frozenset[int] | None] = {}
        self._routes: dict[int, tuple[FlowQueue, ...]] = {}
        self._waits = False

    def tap(self, tap: Tap) -> None:
        """Add a consumer that takes an item in microseconds and cannot fail."""
        self._taps.append(tap)

    def outlet(self, queue: FlowQueue, groups: Iterable[int] | None = None) -> None:
        """Add a consumer's queue.

        Args:
            queue: Bounded, with its own policy.
            groups: Groups whose batches and watermarks it wants, all by default. What has no group goes to every queue.
        """
        self._outlets[queue] = None if groups is None else frozenset(groups)
        self._rewire()

    def remove(self, queue: FlowQueue) -> None:
        """Detach a consumer; what waits in its queue stays there."""
        self._outlets.pop(queue, None)
        self._rewire()

    @property
    def waits(self) -> bool:
        """Whether an outlet asks to be waited for (offline only), so that `send` is the way."""
        return self._waits

    def put(self, item: Flowing) -> None:
        """Hand an item on; never waits."""
        for tap in self._taps:
            tap(item)
        for queue in self._route(item):
            queue.put(item)

    async def send(self, item: Flowing) -> None:
        """Hand an item on, waiting for the outlets whose policy asks for it."""
        for tap in self._taps:
            tap(item)
        for queue in self._route(item):
            await queue.put_when_free(item)

    def _route(self, item: Flowing) -> tuple[FlowQueue, ...]:
        group = _NO_GROUP if isinstance(item, Prediction) else item.group
        route = self._routes.get(group)
        if route is None:
            wanting = (q for q, groups in self._outlets.items() if groups is None or group == _NO_GROUP or group in groups)
            route = self._routes[group] = tuple(wanting)
        return route

    def _rewire(self) -> None:
        self._routes.clear()
        self._waits = any(queue.overflow is Overflow.WAIT for queue in self._outlets)


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
