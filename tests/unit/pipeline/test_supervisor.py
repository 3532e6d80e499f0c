"""Parts fail on their own, are started again with growing pauses, and say so."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.condition import Condition
from gateway.core.errors import ConfigError, DataError, PermanentError, TransientError
from gateway.pipeline.supervisor import Supervisor
from tests.virtual_clock import VirtualClock, settle


class Part:
    """Fails as its script says, one entry for each start; runs for ever after its end."""

    def __init__(self, *script: BaseException | float | None) -> None:
        self._script = list(script)
        self.starts_ns: list[int] = []
        self.running = False

    def of(self, clock: VirtualClock) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            self.starts_ns.append(clock.mono_ns())
            self.running = True
            try:
                entry = self._script.pop(0) if self._script else asyncio.Event()
                if isinstance(entry, float):
                    await clock.sleep_until(clock.mono_ns() + round(entry * 1e9))
                    raise TransientError("cut after a while")
                if isinstance(entry, asyncio.Event):
                    await entry.wait()
                if isinstance(entry, BaseException):
                    raise entry
            finally:
                self.running = False

        return run


def pauses_s(part: Part) -> list[float]:
    return [(b - a) / 1e9 for a, b in zip(part.starts_ns, part.starts_ns[1:], strict=False)]


async def test_a_transient_error_is_followed_by_restarts_with_growing_pauses_up_to_a_cap() -> None:
    clock, conditions, part = VirtualClock(), list[Condition](), Part(*[TransientError("no answer", remedy="check the link")] * 9)
    async with Supervisor(clock, conditions.append) as supervisor:
        supervisor.start("plc", part.of(clock))
        await clock.advance(300)

        assert pauses_s(part) == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
        assert supervisor.restarts("plc") == 9
        assert part.running
    assert (conditions[0].component, conditions[0].text, conditions[0].remedy) == ("plc", "no answer", "check the link")
    assert [condition.active for condition in conditions] == [True] * 9 + [False]


async def test_a_part_that_ran_well_for_long_starts_with_a_short_pause_again() -> None:
    clock, part = VirtualClock(), Part(TransientError("a"), TransientError("b"), 100.0, TransientError("c"))
    async with Supervisor(clock, lambda _: None) as supervisor:
        supervisor.start("plc", part.of(clock))
        await clock.advance(300)

        assert pauses_s(part) == [0.5, 1, 100.5, 1]


@pytest.mark.parametrize("error", [PermanentError("licence refused"), ConfigError("wrong file")])
async def test_what_no_retry_can_help_stops_the_part_and_its_condition_stays(error: Exception) -> None:
    clock, conditions, part = VirtualClock(), list[Condition](), Part(error)
    async with Supervisor(clock, conditions.append) as supervisor:
        supervisor.start("model", part.of(clock))
        await clock.advance(300)

        assert len(part.starts_ns) == 1
        assert supervisor.failed("model").endswith("; stopped")
    assert [condition.active for condition in conditions] == [True]


async def test_a_fault_of_ours_is_restarted_within_its_budget_and_then_given_up() -> None:
    clock, conditions, part = VirtualClock(), list[Condition](), Part(*[KeyError("nothing there")] * 50)
    async with Supervisor(clock, conditions.append) as supervisor:
        supervisor.start("stage", part.of(clock))
        await clock.advance(3000)

        assert len(part.starts_ns) == 6
        assert "KeyError" in supervisor.failed("stage")
    assert conditions[-1].active


async def test_no_part_takes_another_down() -> None:
    clock = VirtualClock()
    well, bad, worse = Part(), Part(PermanentError("lost")), Part(ValueError("bug"))
    async with Supervisor(clock, lambda _: None) as supervisor:
        for name, part in (("well", well), ("bad", bad), ("worse", worse)):
            supervisor.start(name, part.of(clock))
        await clock.advance(60)

        assert well.running
        assert len(well.starts_ns) == 1
        assert not bad.running
        assert worse.running


async def test_the_errors_of_a_task_group_are_judged_by_the_worst_of_them() -> None:
    clock = VirtualClock()
    lost = Part(ExceptionGroup("part", [TransientError("cut"), ExceptionGroup("inner", [PermanentError("lost")])]))
    cut = Part(ExceptionGroup("part", [TransientError("cut")]))
    async with Supervisor(clock, lambda _: None) as supervisor:
        supervisor.start("lost", lost.of(clock))
        supervisor.start("cut", cut.of(clock))
        await clock.advance(60)

        assert supervisor.failed("lost") == "lost; stopped"
        assert cut.running


async def test_a_part_that_cancels_itself_is_started_again() -> None:
    clock, conditions, part = VirtualClock(), list[Condition](), Part(asyncio.CancelledError("stray"))
    async with Supervisor(clock, conditions.append) as supervisor:
        supervisor.start("stage", part.of(clock))
        await clock.advance(30)

        assert part.running
    assert "stray" in conditions[0].text


async def test_a_part_that_ends_by_itself_is_not_started_again_and_its_trouble_is_over() -> None:
    clock, conditions, part = VirtualClock(), list[Condition](), Part(TransientError("cut"), None)
    async with Supervisor(clock, conditions.append) as supervisor:
        supervisor.start("recording", part.of(clock))
        await clock.advance(60)

        assert len(part.starts_ns) == 2
        assert [condition.active for condition in conditions] == [True, False]
        supervisor.start("recording", part.of(clock))
        await settle()
        assert part.running


async def test_a_part_stopped_in_its_pause_stays_stopped_and_its_name_is_free() -> None:
    clock, part = VirtualClock(), Part(TransientError("cut"))
    async with Supervisor(clock, lambda _: None) as supervisor:
        supervisor.start("plc", part.of(clock))
        await clock.advance(0.1)
        await supervisor.stop("plc", "nobody")
        await clock.advance(60)
        assert len(part.starts_ns) == 1

        supervisor.start("plc", part.of(clock))
        with pytest.raises(ValueError, match="already running"):
            supervisor.start("plc", part.of(clock))


async def test_an_error_while_a_part_is_being_stopped_is_nobodys_trouble() -> None:
    clock, conditions = VirtualClock(), list[Condition]()

    async def run() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise TransientError("the socket was gone when it was closed")

    async with Supervisor(clock, conditions.append) as supervisor:
        supervisor.start("plc", run)
        await settle()
        await supervisor.stop("plc")
        await clock.advance(60)

    assert conditions == []


_ERRORS = st.one_of(
    st.sampled_from([TransientError("t"), DataError("d"), PermanentError("p"), ConfigError("c")]),
    st.sampled_from([KeyError("k"), asyncio.CancelledError("x"), ExceptionGroup("g", [TransientError("t")])]),
    st.floats(1, 120),
    st.none(),
)


@given(st.lists(_ERRORS, max_size=10), st.lists(st.floats(0.1, 50), max_size=10))
@settings(max_examples=60, deadline=None)
def test_whatever_happens_the_last_condition_tells_the_truth(script: list[BaseException | float | None], waits: list[float]) -> None:
    async def play() -> None:
        clock, conditions, part = VirtualClock(), list[Condition](), Part(*script)
        async with Supervisor(clock, conditions.append) as supervisor:
            supervisor.start("part", part.of(clock))
            for wait_s in waits:
                await clock.advance(wait_s)
                if supervisor.failed("part"):
                    assert conditions[-1].active
                    assert not part.running
            await clock.advance(2000)
            last = conditions[-1] if conditions else None
            assert (last is not None and last.active) == bool(supervisor.failed("part"))
            assert all(gap >= 0.5 for gap in pauses_s(part))
        assert not part.running

    asyncio.run(play())
