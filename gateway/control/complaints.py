"""What is wrong with one target now, told once when it begins and once when it ends."""

from collections.abc import Callable

import structlog

from gateway.core.clock import Clock
from gateway.core.condition import Condition, Priority
from gateway.core.quality import Ne107

log = structlog.get_logger(__name__)

WRITE_FAILED = "write failed"
HEARTBEAT_FAILED = "heartbeat failed"
WRITE_REFUSED = "write refused"
NO_PREDICTIONS = "no predictions"
_FAILURES = (WRITE_FAILED, HEARTBEAT_FAILED)


class Complaints:
    """Of one target, by kind.

    Args:
        target: Its name.
        clock: For stamps.
        on_condition: Told of begin, end and changed words.
    """

    def __init__(self, target: str, clock: Clock, on_condition: Callable[[Condition], None]) -> None:
        self._target = target
        self._clock = clock
        self._on_condition = on_condition
        self._texts: dict[str, str] = {}

    def __contains__(self, kind: str) -> bool:
        return kind in self._texts

    def text(self, kind: str) -> str:
        """The words of one kind, empty if all is well."""
        return self._texts.get(kind, "")

    def begin(self, kind: str, text: str, remedy: str) -> None:
        """Say that something is wrong; the same words again say nothing."""
        before = self._texts.get(kind)
        if before == text:
            return
        self._texts[kind] = text
        if before is None:
            log.warning("target.unwell", target=self._target, kind=kind, text=text)
        failure = kind in _FAILURES
        priority, word = (Priority.MEDIUM, Ne107.FAILURE) if failure else (Priority.LOW, Ne107.OUT_OF_SPECIFICATION)
        self._on_condition(Condition(self._target, kind, True, priority, text, remedy, word, self._clock.wall_ns()))

    def end(self, *kinds: str) -> None:
        """Say that something is well again; of what was not wrong nothing is said. No kinds: all of them."""
        for kind in kinds or tuple(self._texts):
            if self._texts.pop(kind, None) is not None:
                log.info("target.well", target=self._target, kind=kind)
                self._on_condition(Condition(self._target, kind, active=False, since_wall_ns=self._clock.wall_ns()))

    def worst(self) -> tuple[str, Ne107]:
        """The words that matter most, and the NE 107 word they stand for."""
        for kind in (*_FAILURES, *self._texts):
            if kind in self._texts:
                return self._texts[kind], Ne107.FAILURE if kind in _FAILURES else Ne107.OUT_OF_SPECIFICATION
        return "", Ne107.GOOD
