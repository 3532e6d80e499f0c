"""Nothing is written that should not be, and what should be is."""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from gateway.control.audit import Audit, read
from gateway.control.guard import Guard, GuardState
from gateway.control.limits import Limit, TargetRules
from gateway.core.command import Command, CommandKind, CommandResult, Verdict
from gateway.core.condition import Condition
from gateway.core.errors import ConfigError, PermanentError, TransientError
from gateway.core.prediction import Outcome, Prediction, Trace
from gateway.core.quality import Code
from tests.unit.control.machine import OUTPUTS, RULES, Machine, prediction
from tests.virtual_clock import VirtualClock, settle


@dataclass
class Bench:
    """A guard, its machines, and what it said."""

    clock: VirtualClock
    audit: Audit
    guard: Guard
    conditions: list[Condition]
    closed: list[tuple[Prediction, Trace]]
    running: list[asyncio.Task[None]] = field(default_factory=list)

    def add(self, machine: Machine, rules: TargetRules = RULES, asset: str = "pump1") -> None:
        """Guard a machine and let it run."""
        self.guard.add(machine, model="bearing", asset=asset, outputs=OUTPUTS, rules=rules)
        self.running.append(asyncio.create_task(self.guard.run_target(machine.name)))

    async def command(self, kind: CommandKind, target: str = "pump1-out", **more: Any) -> CommandResult:  # noqa: ANN401 - fields of a Command
        """Ask the guard for something."""
        return await self.guard.handle(Command("1", "anna", kind, target, **more))

    async def offer(self, values: tuple[float, ...] = (50.0, 20.0), **more: Any) -> None:  # noqa: ANN401 - fields of a Prediction
        """Offer a prediction and let it be written."""
        self.guard.offer(prediction(self.clock, values, **more))
        await settle()

    def active(self, kind: str) -> bool:
        """Whether a condition is active."""
        return next((c.active for c in reversed(self.conditions) if c.kind == kind), False)


@asynccontextmanager
async def bench(path: Path, *machines: Machine, rules: TargetRules = RULES) -> AsyncIterator[Bench]:
    """A bench with machines that run until the end."""
    clock = VirtualClock()
    conditions: list[Condition] = []
    closed: list[tuple[Prediction, Trace]] = []
    audit = Audit(path / "audit.jsonl", clock)
    guard = Guard(clock, audit, conditions.append, lambda p, t: closed.append((p, t)))
    made = Bench(clock, audit, guard, conditions, closed)
    for machine in machines:
        made.add(machine, rules)
    await settle()
    try:
        yield made
    finally:
        for task in made.running:
            task.cancel()
        await asyncio.gather(*made.running, return_exceptions=True)
        audit.close()


async def test_nothing_is_written_before_arming_nor_after_disarming(tmp_path: Path) -> None:
    machine = Machine()
    async with bench(tmp_path, machine) as b:
        await b.offer()
        await b.clock.advance(5)
        assert not machine.writes
        assert not machine.beats

        assert (await b.command(CommandKind.ARM)).verdict is Verdict.ACCEPTED
        await b.offer()
        await b.clock.advance(2)
        assert len(machine.writes) == 1
        assert len(machine.beats) >= 2

        await b.command(CommandKind.DISARM)
        beats = len(machine.beats)
        await b.offer()
        await b.clock.advance(5)
        assert len(machine.writes) == 1
        assert len(machine.beats) == beats


async def test_a_write_that_waits_for_the_line_is_broken_off_by_disarming(tmp_path: Path) -> None:
    machine = Machine(gate=asyncio.Event())
    async with bench(tmp_path, machine) as b:
        await b.command(CommandKind.ARM)
        await b.offer()
        await b.command(CommandKind.DISARM)
        assert machine.gate is not None
        machine.gate.set()
        await settle()
        await b.clock.advance(1)
        assert not machine.writes
        assert b.guard.status()[0].refused == {"not written": 1}


async def test_value_quality_age_latency_and_sequence_go_out_together_and_close_the_trace(tmp_path: Path) -> None:
    machine = Machine()
    async with bench(tmp_path, machine) as b:
        await b.command(CommandKind.ARM)
        await b.offer((50.0, 20.0), made_ago_s=0.1)
        await b.offer((51.0, 21.0), sequence=2)

        first, second = machine.writes
        assert (first["value:flow"], first["value:temp"], first["quality"], first["sequence"]) == (50.0, 20.0, Code.GOOD, 1)
        assert first["age_ms"] == pytest.approx(500)
        assert first["latency_ms"] == pytest.approx(500)
        assert first["loop_ms"] == 0
        assert second["loop_ms"] == pytest.approx(600)
        assert second["sequence"] == 2
        assert [p.sequence for p, _ in b.closed] == [1, 2]
        trace = b.closed[0][1]
        assert trace.written_ns
        assert trace.read_back_ns >= trace.written_ns
        status = b.guard.status()[0]
        assert (status.written, status.verified, status.state) == (2, 2, "ARMED")


async def test_the_newest_of_several_that_wait_is_written_and_no_other(tmp_path: Path) -> None:
    machine = Machine()
    async with bench(tmp_path, machine) as b:
        await b.command(CommandKind.ARM)
        for sequence in range(1, 6):
            b.guard.offer(prediction(b.clock, (float(sequence), 0.0), sequence=sequence))
        await settle()
        assert [write["value:flow"] for write in machine.writes] == [5.0]
        assert b.guard.status()[0].refused == {"superseded": 4}


async def test_a_caught_up_step_and_another_asset_are_not_for_the_target(tmp_path: Path) -> None:
    machine = Machine()
    async with bench(tmp_path, machine) as b:
        await b.command(CommandKind.ARM)
        await b.offer(outcome=Outcome.CAUGHT_UP)
        await b.offer(asset="pump2")
        assert not machine.writes


@pytest.mark.parametrize(
    ("values", "more", "quality", "reason"),
    [
        ((50.0, 20.0), {"made_ago_s": 1.5}, Code.BAD_STALE, "stale"),
        ((101.0, 20.0), {}, Code.BAD_OUT_OF_RANGE, "limit"),
        ((50.0, -41.0), {}, Code.BAD_OUT_OF_RANGE, "limit"),
        ((math.nan, 20.0), {}, Code.BAD_NOT_A_NUMBER, "not a number"),
        ((50.0, math.inf), {}, Code.BAD_NOT_A_NUMBER, "not a number"),
        ((50.0,), {}, Code.BAD_CONFIGURATION, "outputs"),
        ((50.0, 20.0), {"quality": Code.BAD_NO_BACKEND, "outcome": Outcome.NO_BACKEND}, Code.BAD_NO_BACKEND, "bad quality"),
    ],
)
async def test_what_may_not_be_written_changes_the_quality_word_only(
    tmp_path: Path, values: tuple[float, ...], more: Mapping[str, Any], quality: Code, reason: str
) -> None:
    machine = Machine()
    async with bench(tmp_path, machine) as b:
        await b.command(CommandKind.ARM)
        await b.offer(values, **more)
        assert machine.writes[0]["quality"] == quality
        assert not any(name.startswith("value:") for name in machine.writes[0])
        assert b.guard.status()[0].refused == {reason: 1}


async def test_a_step_or_a_rate_beyond_its_limit_is_refused_and_said_until_it_is_over(tmp_path: Path) -> None:
    machine = Machine()
    rules = replace(RULES, limits={"flow": Limit(0, 100, max_step=30, max_rate_per_s=10), "temp": Limit(-40, 150)})
    async with bench(tmp_path, machine, rules=rules) as b:
        await b.command(CommandKind.ARM)
        await b.offer((50.0, 20.0))
        await b.clock.advance(1)
        await b.offer((65.0, 20.0))
        assert "faster" in b.guard.status()[0].last_refusal
        assert b.active("write refused")
        await b.clock.advance(1)
        await b.offer((65.0, 20.0))
        assert machine.writes[-1]["value:flow"] == 65.0
        assert not b.active("write refused")
        await b.clock.advance(60)
        await b.offer((96.0, 20.0))
        assert "step" in b.guard.status()[0].last_refusal

        await b.command(CommandKind.DISARM)
        await b.command(CommandKind.ARM)
        await b.offer((96.0, 20.0))
        assert machine.writes[-1]["value:flow"] == 96.0


async def test_held_writes_the_last_value_at_once_without_any_prediction_and_the_heartbeat_goes_on(tmp_path: Path) -> None:
    machine = Machine()
    async with bench(tmp_path, machine) as b:
        await b.command(CommandKind.ARM)
        await b.offer((50.0, 20.0))
        await b.command(CommandKind.HOLD)
        await settle()
        held = machine.writes[-1]
        assert (held["value:flow"], held["value:temp"], held["quality"], held["sequence"]) == (50.0, 20.0, Code.BAD_HELD, 2)
        await b.offer((70.0, 30.0))
        assert machine.writes[-1]["value:flow"] == 50.0
        beats = len(machine.beats)
        await b.clock.advance(3)
        assert len(machine.beats) == beats + 3
        assert len(b.closed) == 1

        await b.command(CommandKind.RELEASE)
        await b.offer((70.0, 30.0))
        assert (machine.writes[-1]["value:flow"], machine.writes[-1]["quality"]) == (70.0, Code.GOOD)


async def test_held_writes_the_declared_value_and_tries_again_until_it_stands(tmp_path: Path) -> None:
    machine = Machine()
    async with bench(tmp_path, machine, rules=replace(RULES, hold={"flow": 5.0})) as b:
        await b.command(CommandKind.ARM)
        await b.offer((50.0, 20.0))
        machine.fault = TransientError("no answer")
        await b.command(CommandKind.HOLD)
        await b.clock.advance(2)
        assert machine.writes[-1]["value:flow"] == 50.0
        machine.fault = None
        await b.clock.advance(1)
        assert (machine.writes[-1]["value:flow"], machine.writes[-1]["value:temp"]) == (5.0, 20.0)
        count = len(machine.writes)
        await b.clock.advance(5)
        assert len(machine.writes) == count


async def test_a_value_under_way_when_held_does_not_come_after_the_hold_value(tmp_path: Path) -> None:
    machine = Machine()
    async with bench(tmp_path, machine) as b:
        await b.command(CommandKind.ARM)
        await b.offer((50.0, 20.0))
        machine.gate = asyncio.Event()
        await b.offer((60.0, 20.0))
        await b.command(CommandKind.HOLD)
        machine.gate.set()
        await settle()
        assert [write["value:flow"] for write in machine.writes] == [50.0, 50.0]
        assert machine.writes[-1]["quality"] == Code.BAD_HELD


async def test_a_hold_value_under_way_does_not_come_after_the_release(tmp_path: Path) -> None:
    machine = Machine()
    async with bench(tmp_path, machine) as b:
        await b.command(CommandKind.ARM)
        await b.offer((50.0, 20.0))
        machine.gate = asyncio.Event()
        await b.command(CommandKind.HOLD)
        await settle()
        await b.command(CommandKind.RELEASE)
        machine.gate.set()
        await settle()
        assert [write["quality"] for write in machine.writes] == [Code.GOOD]


async def test_a_model_that_falls_silent_is_told_to_the_machine(tmp_path: Path) -> None:
    machine = Machine()
    async with bench(tmp_path, machine) as b:
        await b.command(CommandKind.ARM)
        for _ in range(3):
            await b.offer()
            await b.clock.advance(1)
        count = len(machine.writes)
        await b.clock.advance(5)
        assert len(machine.writes) == count + 1
        assert machine.writes[-1]["quality"] == Code.BAD_STALE
        assert "value:flow" not in machine.writes[-1]
        assert b.active("no predictions")
        await b.offer()
        assert machine.writes[-1]["quality"] == Code.GOOD
        assert not b.active("no predictions")


async def test_a_failing_target_says_so_once_recovers_and_leaves_the_others_alone(tmp_path: Path) -> None:
    well, ill = Machine(name="well"), Machine(name="ill", fault=RuntimeError("bug"))
    async with bench(tmp_path, well, ill) as b:
        await b.command(CommandKind.ARM, "")
        for _ in range(4):
            await b.offer()
            await b.clock.advance(1)
        assert len(well.writes) == 4
        assert not ill.writes
        assert not any(task.done() for task in b.running)
        assert [c.active for c in b.conditions if c.component == "ill" and c.kind == "write failed"] == [True]
        ill.fault = None
        await b.offer()
        await b.clock.advance(1)
        assert len(ill.writes) == 1
        assert not b.active("write failed")
        assert not b.active("heartbeat failed")


async def test_a_target_that_never_answers_is_given_up_after_its_deadline(tmp_path: Path) -> None:
    machine = Machine()
    async with bench(tmp_path, machine) as b:
        await b.command(CommandKind.ARM)
        machine.gate = asyncio.Event()
        await b.offer()
        await b.clock.advance(4)
        assert b.active("write failed")
        machine.gate = None
        await b.clock.advance(3)
        await b.offer()
        assert machine.writes


async def test_a_read_back_that_differs_is_a_failure_and_closes_no_trace(tmp_path: Path) -> None:
    machine = Machine(corrupt="value:temp")
    async with bench(tmp_path, machine) as b:
        await b.command(CommandKind.ARM)
        await b.offer()
        assert b.active("write failed")
        assert not b.closed
        assert (b.guard.status()[0].written, b.guard.status()[0].verified) == (1, 0)


async def test_a_dry_run_does_everything_but_write(tmp_path: Path) -> None:
    machine = Machine()
    async with bench(tmp_path, machine, rules=replace(RULES, dry_run=True)) as b:
        await b.command(CommandKind.ARM)
        await b.offer()
        await b.clock.advance(3)
        assert not machine.words
        assert "dry run" in b.guard.status()[0].last_written
        assert [record["kind"] for record in read(b.audit.path)] == ["dry run"]


async def test_writes_keep_their_shortest_interval_and_the_newest_waits_for_it(tmp_path: Path) -> None:
    machine = Machine()
    async with bench(tmp_path, machine, rules=replace(RULES, min_interval_ms=500)) as b:
        await b.command(CommandKind.ARM)
        for i in range(10):
            await b.offer((float(i), 20.0))
            await b.clock.advance(0.1)
        assert [write["value:flow"] for write in machine.writes] == [0.0, 4.0, 9.0]


async def test_a_lost_audit_ends_all_writing_and_only_disarming_is_left(tmp_path: Path) -> None:
    machine, other = Machine(), Machine(name="other")
    async with bench(tmp_path, machine, other) as b:
        await b.command(CommandKind.ARM, "")
        b.audit.broken = "audit file: no space left"
        await b.offer()
        await b.clock.advance(3)
        assert not machine.words
        assert not other.words
        assert {status.state for status in b.guard.status()} == {"OFF"}
        assert b.active("writing stopped")
        assert (await b.command(CommandKind.ARM)).verdict is Verdict.REFUSED
        assert (await b.command(CommandKind.DISARM)).verdict is Verdict.ACCEPTED


@pytest.mark.parametrize(
    ("state", "kind", "expected", "reason"),
    [
        (GuardState.OFF, CommandKind.HOLD, "", "arm it first"),
        (GuardState.OFF, CommandKind.RELEASE, "", "nothing to release"),
        (GuardState.HELD, CommandKind.ARM, "", "release it"),
        (GuardState.OFF, CommandKind.ARM, "ARMED", "is OFF, not ARMED"),
        (GuardState.OFF, CommandKind.SWAP, "", "cannot be asked"),
    ],
)
async def test_a_command_that_does_not_fit_the_state_is_refused_with_its_reason(
    tmp_path: Path, state: GuardState, kind: CommandKind, expected: str, reason: str
) -> None:
    async with bench(tmp_path, Machine()) as b:
        b.guard.set_state("pump1-out", state, "test")
        result = await b.command(kind, expected=expected)
        assert result.verdict is Verdict.REFUSED
        assert reason in result.reason


async def test_an_unknown_target_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    async with bench(tmp_path, Machine()) as b:
        result = await b.command(CommandKind.ARM, "pump9")
        assert (result.verdict, result.reason) == (Verdict.REFUSED, "no target 'pump9'; known: pump1-out")


@pytest.mark.parametrize(("rules", "place", "state"), [(RULES, 7, "ARMED"), (replace(RULES, heartbeat_s=2), 7, "OFF"), (RULES, 8, "OFF")])
async def test_after_a_reload_only_an_unchanged_target_stays_armed(tmp_path: Path, rules: TargetRules, place: int, state: str) -> None:
    async with bench(tmp_path) as b:
        b.guard.add(Machine(), model="bearing", asset="pump1", outputs=OUTPUTS, rules=RULES, place=7)
        await b.command(CommandKind.ARM)
        b.guard.add(Machine(), model="bearing", asset="pump1", outputs=OUTPUTS, rules=rules, place=place)
        assert b.guard.status()[0].state == state


def test_a_target_without_limits_or_with_a_hold_value_outside_them_is_refused(tmp_path: Path) -> None:
    clock = VirtualClock()
    audit = Audit(tmp_path / "audit.jsonl", clock)
    guard = Guard(clock, audit, lambda _condition: None, lambda _prediction, _trace: None)
    for rules, words in ((TargetRules({"flow": Limit(0, 1)}), "no limits for temp"), (replace(RULES, hold={"flow": 101.0}), "outside")):
        with pytest.raises(ConfigError, match=words):
            guard.add(Machine(), model="bearing", asset="pump1", outputs=OUTPUTS, rules=rules)
    audit.close()


_FAULTS = (None, None, None, None, TransientError("no answer"), PermanentError("illegal address"), RuntimeError("bug"))
_good = st.floats(0, 100)
_values = st.one_of(_good, _good, _good, st.sampled_from([math.nan, math.inf, -math.inf, -0.001, 100.001, 1e300]))
_offers = st.tuples(st.just("offer"), _values, st.sampled_from([0, 0, 0, 64, 128]), st.sampled_from([0.0, 0.0, 0.3, 1.4]))
_commands = st.sampled_from([*[CommandKind.ARM, CommandKind.RELEASE] * 3, CommandKind.HOLD, CommandKind.HOLD, CommandKind.DISARM])
_happenings = st.one_of(
    st.tuples(st.just("advance"), st.floats(0.01, 2.5)),
    st.tuples(st.just("fault"), st.integers(0, len(_FAULTS) - 1)),
    st.tuples(st.just("gate"), st.sampled_from([True, False, False])),
)
# Mostly offers that are seen through to the machine, for a guard that is never armed keeps its promises easily.
_event = st.tuples(st.one_of(_offers, _offers, _commands, _happenings), st.sampled_from([True, True, False]))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(_event, min_size=15, max_size=40))
def test_the_guard_keeps_its_promises_whatever_happens(tmp_path_factory: pytest.TempPathFactory, events: list[Any]) -> None:
    """OFF writes nothing; every write has its audit record before it; only fresh, finite, allowed values arrive; HELD holds."""
    with capture_logs():
        asyncio.run(_play(tmp_path_factory.mktemp("guard"), events))


async def _play(path: Path, events: list[Any]) -> None:
    machine = Machine()
    async with bench(path, machine, rules=replace(RULES, hold={"flow": 7.0, "temp": 8.0})) as b:
        offered: dict[float, int] = {}
        sequences: list[float] = []
        broken: list[AssertionError] = []

        def judge(values: Mapping[str, float]) -> None:
            state = b.guard.status()[0].state
            assert state != "OFF"
            if "heartbeat" in values:
                assert any(r["kind"] == "heartbeat" for r in read(b.audit.path))
                return
            records = [r for r in read(b.audit.path) if r["kind"] == "write"]
            assert records
            assert records[-1]["body"]["fields"]["sequence"] == values["sequence"]
            assert not sequences or values["sequence"] > sequences[-1]
            sequences.append(values["sequence"])
            if state == "HELD":
                assert (values["quality"], values["value:flow"], values["value:temp"]) == (Code.BAD_HELD, 7.0, 8.0)
            elif "value:flow" in values:
                assert 0 <= values["value:flow"] <= 100
                assert values["quality"] < Code.BAD
                assert values["value:flow"] == max(offered, key=lambda value: (offered[value] >> 64, value)) or machine.gate is not None
                assert b.clock.mono_ns() - (offered[values["value:flow"]] & (2**64 - 1)) <= 1_000_000_000 or machine.gate is not None
            else:
                assert values["quality"] >= Code.BAD

        def watch(values: Mapping[str, float]) -> None:
            # The guard takes whatever a target raises for the target's fault, so a broken promise must not be raised here.
            try:
                judge(values)
            except AssertionError as error:
                broken.append(error)

        machine.hook = watch
        count = 0
        await b.command(CommandKind.ARM)
        for event, see_through in events:
            match event:
                case CommandKind():
                    await b.command(event)
                    if event is CommandKind.HOLD and b.guard.status()[0].state == "HELD" and machine.fault is None and machine.gate is None:
                        await settle()
                        assert machine.writes[-1]["quality"] == Code.BAD_HELD
                case ("offer", value, quality, ago_s):
                    count += 1
                    offered[value] = (count << 64) + b.clock.mono_ns() - round(ago_s * 1e9)
                    b.guard.offer(prediction(b.clock, (value, 20.0), quality=quality, made_ago_s=ago_s, sequence=count))
                case ("advance", seconds):
                    beats, state = len(machine.beats), b.guard.status()[0].state
                    await b.clock.advance(seconds)
                    if state != "OFF" and machine.fault is None and machine.gate is None:
                        assert len(machine.beats) - beats >= math.floor(seconds)
                    elif state == "OFF":
                        assert len(machine.beats) == beats
                case ("fault", index):
                    machine.fault = _FAULTS[index]
                case ("gate", True):
                    machine.gate = machine.gate or asyncio.Event()
                case ("gate", False):
                    if machine.gate is not None:
                        machine.gate.set()
                        await settle()
                        machine.gate = None
            if see_through:
                await settle()
            assert not broken, broken[0]
        assert not any(task.done() for task in b.running)
