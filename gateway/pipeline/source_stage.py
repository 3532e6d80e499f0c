"""The edge of the house: what a source sends, without repeats, with derived tags, and with time going on when it falls silent."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import structlog

from gateway.core.batch import Batch, Watermark
from gateway.core.clock import NS_PER_S, Clock
from gateway.core.condition import Condition, Priority
from gateway.core.protocols import Source
from gateway.core.quality import Ne107
from gateway.core.snapshot import Ledger, StageStatus
from gateway.core.tags import Group, TagTable
from gateway.pipeline.flow import Fanout
from gateway.pipeline.queue import Account
from preprocess.derive import DerivedTags

log = structlog.get_logger(__name__)

_NEVER_NS = np.iinfo(np.int64).min
_GATEWAY_DOMAIN = "gateway"


@dataclass(slots=True)
class _Pulse:
    """What is known of the time of one group.

    Attributes:
        group: The group.
        due_mono_ns: When silence begins or, during it, when the next dead watermark is due.
        up_to_ns: Newest living watermark, or the newest of its domain while it had none itself.
        at_mono_ns: When that one came.
        sent_ns: Newest watermark put out.
        silent: Whether the stage speaks for the group now.
    """

    group: Group
    due_mono_ns: int
    up_to_ns: int | None = None
    at_mono_ns: int = 0
    sent_ns: int = _NEVER_NS
    silent: bool = False


class SourceStage:
    """Runs one source into a fan-out.

    Repeats of a tag's last source time are left out and counted as rejected. Beyond a group's silence limit the stage sends dead watermarks
    for it, one each period, at the last living one plus the monotonic time since; the first living one ends that.

    Args:
        source: Entered by `run` and left with it.
        table: Numbers the tags.
        clock: Measures silence.
        fanout: Where everything goes.
        derived: Derived tags by the id of their group.
        on_condition: Told when a group falls silent and when it speaks again.
        watch_silence: Whether time goes on without the source; not so for a recording.
    """

    def __init__(
        self,
        source: Source,
        table: TagTable,
        clock: Clock,
        fanout: Fanout,
        *,
        derived: Mapping[int, DerivedTags] | None = None,
        on_condition: Callable[[Condition], None] | None = None,
        watch_silence: bool = True,
    ) -> None:
        self.name = source.name
        self._source = source
        self._table = table
        self._clock = clock
        self._fanout = fanout
        self._derived = dict(derived or {})
        self._on_condition = on_condition or (lambda _: None)
        self._watch_silence = watch_silence
        self._last_ns: npt.NDArray[np.int64] = np.full(len(table), _NEVER_NS)
        self._scratch: npt.NDArray[np.int32] = np.zeros(len(table), np.int32)
        self._pulses: dict[int, _Pulse] = {}
        self._values = Account()
        self._marks = Account()
        self._restarts = 0

    @property
    def source(self) -> Source:
        """The source it runs."""
        return self._source

    async def run(self) -> None:
        """Take what the source sends until it ends (a recording does) or until cancelled."""
        async with self._source:
            now_ns = self._clock.mono_ns()
            for group in self._source.groups:
                pulse = self._pulses.setdefault(group.id, _Pulse(group, 0))
                pulse.due_mono_ns = now_ns + round(group.silence_limit_s * NS_PER_S)
                if pulse.up_to_ns is None and group.domain == _GATEWAY_DOMAIN:
                    pulse.up_to_ns, pulse.at_mono_ns = self._clock.wall_ns(), now_ns
            if not self._watch_silence or not self._pulses:
                await self._pump()
                return
            async with asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(self._watch(), name=f"silence of {self.name}")
                await self._pump()
                watch.cancel()

    def status(self, restarts: int = 0) -> StageStatus:
        """What came in, what of it was a repeat, and what went out (derived values included)."""
        silent = sorted(pulse.group.name for pulse in self._pulses.values() if pulse.silent)
        ledgers: dict[str, Ledger] = {"values": self._values.ledger(), "watermarks": self._marks.ledger()}
        word = Ne107.FAILURE if silent else Ne107.GOOD
        return StageStatus(self.name, word, f"silent: {', '.join(silent)}" if silent else "", ledgers, restarts)

    async def _pump(self) -> None:
        async for item in self._source.items():
            passed = self._marked(item) if isinstance(item, Watermark) else self._admitted(item)
            if passed is None:
                continue
            if self._fanout.waits:
                await self._fanout.send(passed)
            else:
                self._fanout.put(passed)

    def _marked(self, mark: Watermark) -> Watermark:
        self._marks.received += 1
        self._marks.consumed += 1
        self._marks.produced += 1
        pulse = self._pulses.get(mark.group)
        if pulse is not None:
            pulse.sent_ns = mark.up_to_ns
            if mark.alive:
                now_ns = self._clock.mono_ns()
                pulse.up_to_ns, pulse.at_mono_ns = mark.up_to_ns, now_ns
                pulse.due_mono_ns = now_ns + round(pulse.group.silence_limit_s * NS_PER_S)
                if pulse.silent:
                    self._note(pulse, silent=False)
        return mark

    def _admitted(self, batch: Batch) -> Batch | None:
        """The batch without repeats and with its derived values; nothing if all of it was repeated."""
        received = len(batch.tag)
        self._values.received += received
        kept = self._without_repeats(batch)
        self._values.consumed += len(kept.tag)
        self._values.rejected += received - len(kept.tag)
        if not len(kept.tag):
            return None
        derived = self._derived.get(kept.group)
        if derived is not None:
            kept = derived.append(kept)
        self._values.produced += len(kept.tag)
        return kept

    def _without_repeats(self, batch: Batch) -> Batch:
        tag, time_ns = batch.tag, batch.source_time_ns
        if not len(tag):
            return batch
        if len(self._last_ns) < len(self._table):
            more = len(self._table) - len(self._last_ns)
            self._last_ns = np.concatenate([self._last_ns, np.full(more, _NEVER_NS)])
            self._scratch = np.zeros(len(self._table), np.int32)
        rows = np.arange(len(tag), dtype=np.int32)
        self._scratch[tag] = rows
        unique = bool((self._scratch[tag] == rows).all())
        repeated = self._last_ns[tag] == time_ns if unique else self._repeated_by_tag(tag, time_ns)
        self._last_ns[tag] = time_ns
        return batch.take(np.flatnonzero(~repeated)) if repeated.any() else batch

    def _repeated_by_tag(self, tag: npt.NDArray[np.int32], time_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Of a tag that occurs more than once, each row is compared with the one before it."""
        order = np.argsort(tag, kind="stable")
        sorted_tag, sorted_ns = tag[order], time_ns[order]
        before_ns = self._last_ns[sorted_tag]
        same = sorted_tag[1:] == sorted_tag[:-1]
        before_ns[1:][same] = sorted_ns[:-1][same]
        repeated = np.empty(len(tag), np.bool_)
        repeated[order] = before_ns == sorted_ns
        return repeated

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep_until(min(pulse.due_mono_ns for pulse in self._pulses.values()))
            now_ns = self._clock.mono_ns()
            for pulse in self._pulses.values():
                if now_ns >= pulse.due_mono_ns:
                    self._speak_for(pulse, now_ns)

    def _speak_for(self, pulse: _Pulse, now_ns: int) -> None:
        period_ns = max(round(pulse.group.period_s * NS_PER_S), 1)
        pulse.due_mono_ns += ((now_ns - pulse.due_mono_ns) // period_ns + 1) * period_ns
        if not pulse.silent:
            self._note(pulse, silent=True)
        if pulse.up_to_ns is None and not self._borrow_time(pulse):
            return
        assert pulse.up_to_ns is not None  # noqa: S101 - known or just borrowed
        up_to_ns = pulse.up_to_ns + now_ns - pulse.at_mono_ns
        if pulse.group.domain == _GATEWAY_DOMAIN:
            # A poll's watermark runs ahead of it; what is read next is stamped now, and must not be late.
            up_to_ns = min(up_to_ns, self._clock.wall_ns())
        pulse.sent_ns = max(pulse.sent_ns, up_to_ns)
        self._marks.produced += 1
        self._fanout.put(Watermark(pulse.group.id, pulse.sent_ns, alive=False))

    def _borrow_time(self, pulse: _Pulse) -> bool:
        """A group that never spoke takes the time of its domain from a group that did."""
        known = [p for p in self._pulses.values() if p.group.domain == pulse.group.domain and p.up_to_ns is not None]
        if not known:
            return False
        newest = max(known, key=lambda p: p.at_mono_ns)
        pulse.up_to_ns, pulse.at_mono_ns = newest.up_to_ns, newest.at_mono_ns
        return True

    def _note(self, pulse: _Pulse, *, silent: bool) -> None:
        pulse.silent = silent
        group = pulse.group
        text = f"nothing heard for {group.silence_limit_s:g} s" if silent else "speaks again"
        log.log(30 if silent else 20, "group silent" if silent else "group speaks again", group=group.name)
        self._on_condition(
            Condition(
                group.name,
                "silent",
                silent,
                Priority.MEDIUM,
                text,
                "check the device and the way to it" if silent else "",
                Ne107.FAILURE,
                self._clock.wall_ns(),
            )
        )
