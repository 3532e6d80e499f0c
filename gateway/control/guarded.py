"""One write target under guard: judged, audited, written, read back; its faults stay its own."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import structlog

from gateway.control.audit import Audit
from gateway.control.complaints import HEARTBEAT_FAILED, NO_PREDICTIONS, WRITE_FAILED, WRITE_REFUSED, Complaints
from gateway.control.limits import TargetRules
from gateway.control.state import GuardState, Past
from gateway.core.clock import NS_PER_MS, NS_PER_S, Clock
from gateway.core.condition import Condition
from gateway.core.errors import DataError, LinesideError, PermanentError, TransientError
from gateway.core.prediction import OutputSpec, Prediction, Trace
from gateway.core.protocols import Target
from gateway.core.quality import Code, Level, Ne107, code, combine, level
from gateway.core.snapshot import TargetStatus

log = structlog.get_logger(__name__)

T = TypeVar("T")
_PATIENCE_NS = NS_PER_S  # beyond its own deadline a call is taken for hung
_LARGEST_AGE_MS = 4e9  # what 32 bits hold


class _StoppedError(TransientError):
    """The state changed while a call was under way."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a guarded target lives among.

    Attributes:
        clock: For ages and stamps.
        audit: Written before each write.
        on_condition: Told of failure and recovery.
        on_closed: Told the closed trace of each written prediction.
        stop_all: Ends all writing, with the reason; called when the audit is lost.
    """

    clock: Clock
    audit: Audit
    on_condition: Callable[[Condition], None]
    on_closed: Callable[[Prediction, Trace], None]
    stop_all: Callable[[str], None]


class GuardedTarget:
    """A target with its rules, its state and what was last done with it.

    Args:
        target: Where to write.
        model: Whose predictions.
        asset: Of which asset.
        outputs: In the order of the predictions' columns.
        rules: How it is guarded.
        around: What it lives among.

    Raises:
        ConfigError: An output has no limit, or a hold value lies outside its own.
    """

    def __init__(
        self, target: Target, *, model: str, asset: str, outputs: Sequence[OutputSpec], rules: TargetRules, around: Surroundings
    ) -> None:
        rules.check(target.name, [spec.name for spec in outputs])
        self.target, self.model, self.asset, self.outputs, self.rules = target, model, asset, tuple(outputs), rules
        self.state, self.reason = GuardState.OFF, "not armed"
        self.sequence = self.beat = 0
        self._around, self._clock = around, around.clock
        self._waiting: Prediction | None = None
        self._wake = asyncio.Event()
        self._writing: asyncio.Task[Any] | None = None
        self._beating: asyncio.Task[Any] | None = None
        self._offered_ns = self._offer_gap_ns = 0
        self._stale_due = self._hold_stands = False
        self.past = Past()
        self.complaints = Complaints(target.name, around.clock, around.on_condition)

    def resume(self, known: "GuardedTarget", *, same_place: bool) -> None:
        """Go on where the same target of an earlier configuration was; with other rules, outputs or another place it is OFF."""
        self.sequence, self.beat, self.complaints = known.sequence, known.beat, known.complaints
        alike = (known.model, known.asset, known.outputs, known.rules) == (self.model, self.asset, self.outputs, self.rules)
        if alike and same_place:
            self.state, self.reason, self.past = known.state, known.reason, known.past
            self._wake.set()
        elif known.state is not GuardState.OFF:
            self.set_state(GuardState.OFF, "its configuration changed; arm it again")

    def set_state(self, state: GuardState, reason: str) -> None:
        """Change state at once; a write under way is broken off, and what waits is forgotten."""
        if self._writing is not None and state is not self.state:
            self._writing.cancel()
        if self._beating is not None and state is GuardState.OFF:
            self._beating.cancel()
        if self.state is GuardState.OFF and state is GuardState.ARMED:
            # Nobody knows what was written there meanwhile, so the first step is not judged.
            self.past.values, self.past.values_ns, self.past.loop_ms = {}, 0, 0.0
        if state is not self.state:
            self._offered_ns = self._offer_gap_ns = 0
        if state is GuardState.OFF:
            self.complaints.end()
        self.state, self.reason, self._waiting = state, reason, None
        self._stale_due = self._hold_stands = False
        self._wake.set()

    async def quiet(self) -> None:
        """Return once no call begun under an earlier state is under way."""
        calls = {call for call in (self._writing, self._beating) if call is not None and call.cancelling()}
        if calls:
            await asyncio.wait(calls)

    def offer(self, prediction: Prediction) -> None:
        """Take a prediction; of several that wait the newest wins."""
        if self.state is GuardState.OFF:
            return
        now_ns = self._clock.mono_ns()
        if self._offered_ns and NO_PREDICTIONS not in self.complaints:
            self._offer_gap_ns = now_ns - self._offered_ns
        self._offered_ns = now_ns
        self.complaints.end(NO_PREDICTIONS)
        if self._waiting is not None:
            self._count("superseded")
        self._waiting, self._stale_due = prediction, False
        self._wake.set()

    async def run(self) -> None:
        """Write until cancelled."""
        name = self.target.name
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat_for_ever(), name=f"heartbeat {name}")
            tasks.create_task(self._write_for_ever(), name=f"writes {name}")

    async def _write_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            await self._clock.sleep_until(self.past.write_ns + round(self.rules.min_interval_ms * NS_PER_MS))
            self._wake.clear()
            prediction, self._waiting = self._waiting, None
            if self.state is GuardState.HELD:
                await self._write_hold()
            elif self.state is GuardState.ARMED and prediction is not None:
                await self._write(prediction)
            elif self.state is GuardState.ARMED and self._stale_due:
                self._stale_due = False
                await self._put(self._fields(Code.BAD_STALE, {}, self._age_ms(), self._age_ms()), self._deadline_ns())

    async def _write(self, prediction: Prediction) -> None:
        """One prediction, from the checks to the closed trace."""
        now_ns = self._clock.mono_ns()
        made_ns = prediction.trace.inference_end_ns or prediction.trace.window_ready_ns or now_ns
        quality, values = self._judge(prediction, now_ns, made_ns)
        # A failed model leaves no trace of its window; what is written then is at least new itself.
        received_ns = prediction.trace.received_ns or now_ns
        fields = self._fields(quality, values, prediction.oldest_age_ns(now_ns) / NS_PER_MS, (now_ns - received_ns) / NS_PER_MS)
        until_ns = made_ns + round(self.rules.valid_for_ms * NS_PER_MS) if values else self._deadline_ns()
        self.past.inputs_ns = now_ns - prediction.oldest_age_ns(now_ns) if values else self.past.inputs_ns
        read_back_ns = await self._put(fields, until_ns)
        if read_back_ns is None:
            return
        self._describe(quality, values)
        written_ns = self.past.write_ns
        trace = replace(prediction.trace, written_ns=written_ns, read_back_ns=read_back_ns, written_sequence=self.sequence)
        if trace.requested_ns:
            self.past.loop_ms = ((read_back_ns or written_ns) - trace.requested_ns) / NS_PER_MS
        if not self.rules.dry_run:
            self._around.on_closed(prediction, trace)

    async def _write_hold(self) -> None:
        """The declared value, else the one written last; with it the word that says so."""
        values = {**self.past.values, **(self.rules.hold or {})}
        if await self._put(self._fields(Code.BAD_HELD, values, self._age_ms(), self._age_ms()), self._deadline_ns()) is not None:
            self._hold_stands = True
            self._describe(Code.BAD_HELD, values)

    def _judge(self, prediction: Prediction, now_ns: int, made_ns: int) -> tuple[int, dict[str, float]]:
        """The quality word to write, and the values that may go with it: all of them or none."""
        if now_ns - made_ns > self.rules.valid_for_ms * NS_PER_MS:
            self._refuse("stale", f"result {(now_ns - made_ns) / NS_PER_MS:.0f} ms old")
            return combine(prediction.quality, Code.BAD_STALE), {}
        if level(prediction.quality) is Level.BAD:
            self._refuse("bad quality", prediction.outcome.value)
            return prediction.quality, {}
        if len(prediction.outputs) != len(self.outputs):
            self._refuse("outputs", f"{len(prediction.outputs)} values for {len(self.outputs)} outputs")
            return combine(prediction.quality, Code.BAD_CONFIGURATION), {}
        if not np.isfinite(prediction.outputs).all():
            self._refuse("not a number", self.outputs[int(np.argmin(np.isfinite(prediction.outputs)))].name)
            return combine(prediction.quality, Code.BAD_NOT_A_NUMBER), {}
        values = {spec.name: value for spec, value in zip(self.outputs, prediction.outputs.tolist(), strict=True)}
        for name, value in values.items():
            objection = self.rules.limits[name].objection(value, self.past.values.get(name), now_ns - self.past.values_ns)
            if objection:
                self._refuse("limit", f"{name}: {objection}")
                self.complaints.begin(
                    WRITE_REFUSED, f"{name}: {objection}", "look at the model and the machine; arming again accepts the step"
                )
                return combine(prediction.quality, Code.BAD_OUT_OF_RANGE), {}
        self.complaints.end(WRITE_REFUSED)
        return prediction.quality, values

    def _fields(self, quality: int, values: Mapping[str, float], age_ms: float, latency_ms: float) -> dict[str, float]:
        self.sequence = self.sequence % 0xFFFFFFFF + 1
        return {
            "quality": float(quality),
            "sequence": float(self.sequence),
            "age_ms": min(age_ms, _LARGEST_AGE_MS),
            "latency_ms": latency_ms,
            "loop_ms": self.past.loop_ms,
            **{f"value:{name}": value for name, value in values.items()},
        }

    def _age_ms(self) -> float:
        """Age of the inputs of what was written last."""
        return (self._clock.mono_ns() - self.past.inputs_ns) / NS_PER_MS if self.past.inputs_ns else 0.0

    def _deadline_ns(self) -> int:
        return self._clock.mono_ns() + round(self.rules.valid_for_ms * NS_PER_MS)

    async def _put(self, fields: Mapping[str, float], until_ns: int) -> int | None:
        """Audit, write, read back.

        Returns:
            Instant of an equal read-back, 0 if none was asked for, None if the device is not known to hold the fields.
        """
        dry_run, places = self.rules.dry_run, self.target.fields
        try:
            words = self.target.encode({name: value for name, value in fields.items() if name in places})
            self._around.audit.append("dry run" if dry_run else "write", {"target": self.target.name, "fields": dict(fields)})
            if not dry_run:
                await self._call("_writing", self.target.write(words, until_ns), until_ns)
                self.past.written += 1
            self.past.write_ns = self._clock.mono_ns()
            self._note_values(fields)
            read_back_ns = await self._read_back(words, until_ns) if self.rules.read_back and not dry_run else 0
        except _StoppedError as error:
            self._refuse("not written", error.text)
        except Exception as error:  # noqa: BLE001 - whatever a target does, it must not stop the others or itself
            self._fail(WRITE_FAILED, error)
        else:
            self.complaints.end(WRITE_FAILED)
            return read_back_ns
        return None

    def _note_values(self, fields: Mapping[str, float]) -> None:
        values = {name.removeprefix("value:"): value for name, value in fields.items() if name.startswith("value:")}
        if values:
            self.past.values, self.past.values_ns = values, self.past.write_ns

    async def _read_back(self, words: Mapping[str, tuple[int, ...]], until_ns: int) -> int:
        """Compare raw words.

        Raises:
            DataError: The device holds something else.
        """
        patience_ns = max(until_ns, self.past.write_ns + NS_PER_S)
        seen = await self._call("_writing", self.target.read_back(list(words), patience_ns), patience_ns)
        differing = [name for name, value in words.items() if seen.get(name) != value]
        if differing:
            text = f"{differing[0]} reads back otherwise than written"
            raise DataError(text, remedy="look for another writer of these registers")
        self.past.verified += 1
        return self._clock.mono_ns()

    async def _call(self, slot: str, work: Coroutine[Any, Any, T], until_ns: int) -> T:
        """One call of the target, which a change of state ends, and which may not outlive its own deadline by much.

        Raises:
            TransientError: It was ended.
        """
        call = asyncio.create_task(work, name=f"call {self.target.name}")
        timer = asyncio.create_task(self._clock.sleep_until(until_ns + _PATIENCE_NS), name=f"patience {self.target.name}")
        setattr(self, slot, call)
        try:
            await asyncio.wait((call, timer), return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                raise TransientError("the target did not keep its deadline", remedy="look at the load of the line")
            if call.cancelled():
                raise _StoppedError(f"broken off: {self.reason}")
            return call.result()
        finally:
            timer.cancel()
            call.cancel()
            await asyncio.wait((call, timer))
            setattr(self, slot, None)

    async def _beat_for_ever(self) -> None:
        """The heartbeat runs while armed or held, whatever the model does; only the loss of the gateway stops it."""
        period_ns = round(self.rules.heartbeat_s * NS_PER_S)
        beats, due_ns = False, self._clock.mono_ns()
        while True:
            due_ns = max(due_ns + period_ns, self._clock.mono_ns())
            await self._clock.sleep_until(due_ns)
            if self.state is GuardState.OFF:
                beats = False
                continue
            self._watch()
            if self._around.audit.broken:
                self._around.stop_all(self._around.audit.broken)
            elif not self.rules.dry_run and "heartbeat" in self.target.fields:
                await self._beat(first=not beats)
                beats = True

    async def _beat(self, *, first: bool) -> None:
        self.beat = (self.beat + 1) % 0x10000
        until_ns = self._clock.mono_ns() + round(self.rules.heartbeat_s * NS_PER_S)
        try:
            words = self.target.encode({"heartbeat": float(self.beat)})
            if first:
                # A record per beat would bury the others; one stands for all until it ends.
                self._around.audit.append("heartbeat", {"target": self.target.name, "from": self.beat, "state": self.state.value})
            await self._call("_beating", self.target.write(words, until_ns), until_ns)
        except _StoppedError:
            return
        except Exception as error:  # noqa: BLE001 - the next beat must come, whatever the target does
            self._fail(HEARTBEAT_FAILED, error)
        else:
            self.complaints.end(HEARTBEAT_FAILED)

    def _watch(self) -> None:
        """Ask for what nobody else would: the hold value until it stands, and the word that the last result is old."""
        if self.state is GuardState.HELD and not self._hold_stands:
            self._wake.set()
        usual_ns = max(self._offer_gap_ns, round(self.rules.valid_for_ms * NS_PER_MS), round(self.rules.heartbeat_s * NS_PER_S))
        silent_ns = self._clock.mono_ns() - self._offered_ns
        if self.state is not GuardState.ARMED or not self._offer_gap_ns or silent_ns <= 3 * usual_ns:
            return
        if NO_PREDICTIONS not in self.complaints:
            text = f"no prediction for {silent_ns / NS_PER_S:.0f} s"
            self.complaints.begin(NO_PREDICTIONS, text, "look at the model and its sources")
            self._refuse("stale", "no new prediction")
            self._stale_due = True
            self._wake.set()

    def _describe(self, quality: int, values: Mapping[str, float]) -> None:
        shown = ", ".join(f"{name} {value:.4g}" for name, value in list(values.items())[:3]) or "quality only"
        proof = "dry run" if self.rules.dry_run else "read back equal" if self.rules.read_back else "not read back"
        self.past.last_written = f"#{self.sequence} {shown}, quality {code(quality)}, {proof}"

    def _count(self, reason: str) -> None:
        self.past.refused[reason] = self.past.refused.get(reason, 0) + 1

    def _refuse(self, reason: str, detail: str) -> None:
        self._count(reason)
        self.past.last_refusal = f"{reason}: {detail}"

    def _fail(self, kind: str, error: Exception) -> None:
        if isinstance(error, LinesideError):
            text, remedy = error.text, error.remedy
        else:
            text, remedy = f"internal error ({type(error).__name__}: {error})", "see the log; report it if it stays"
            if self.complaints.text(kind) != text:
                log.error("target.fault", target=self.target.name, exc_info=error)
        self._refuse("not written", text)
        self.complaints.begin(kind, text, remedy)
        if isinstance(error, PermanentError) and self._around.audit.broken:
            self._around.stop_all(error.text)

    def status(self) -> TargetStatus:
        """Its state in the operator's words."""
        kind = type(self.target).__name__.removesuffix("Target").lower()
        shown = self.state.value + (" (dry run)" if self.rules.dry_run else "")
        wrong, word = self.complaints.worst()
        if self.state is GuardState.HELD:
            word = max(word, Ne107.FUNCTION_CHECK)
        past = self.past
        return TargetStatus(
            *(self.target.name, kind, shown, wrong or self.reason, word, past.written, past.verified),
            refused=dict(past.refused),
            last_written=past.last_written,
            last_refusal=past.last_refusal,
        )
