"""What a source sends enters once, and time goes on when it sends nothing."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.batch import Batch, Watermark
from gateway.core.condition import Condition
from gateway.core.errors import TransientError
from gateway.core.protocols import Flowing
from gateway.core.quality import Ne107
from gateway.core.snapshot import SourceStatus
from gateway.core.tags import DataType, Group, Tag, TagTable
from gateway.pipeline.flow import Fanout
from gateway.pipeline.queue import FlowQueue
from gateway.pipeline.source_stage import SourceStage
from preprocess.derive import DerivedTags
from preprocess.spec import DerivedSpec
from tests.unit.pipeline.flowing import START_S, at_ns, batch, mark, table
from tests.virtual_clock import VirtualClock, settle

End = Exception | None


class ScriptedSource:
    """Sends what the test puts; an `Exception` is raised, `None` ends the recording."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.name = "plc"
        self.groups = groups
        self.script: asyncio.Queue[Batch | Watermark | End] = asyncio.Queue()
        self.entered = 0

    async def __aenter__(self) -> Self:
        self.entered += 1
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.entered -= 1

    async def items(self) -> AsyncIterator[Batch | Watermark]:
        while True:
            item = await self.script.get()
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item

    def conditions(self) -> Sequence[Condition]:
        return ()

    def status(self) -> SourceStatus:
        return SourceStatus("plc", "scripted", "here", Ne107.GOOD, "connected")

    def raw_status(self, tag: int) -> str:
        return "" if tag >= 0 else "unknown"


class Bench:
    """A source stage on a virtual clock with everything it put out."""

    def __init__(self, tags: TagTable, derived: dict[int, DerivedTags] | None = None) -> None:
        self.clock = VirtualClock(wall_ns=at_ns(0))
        self.source = ScriptedSource(tags.groups())
        self.out: list[Flowing] = []
        self.conditions: list[Condition] = []
        fanout = Fanout()
        fanout.tap(self.out.append)
        self.stage = SourceStage(self.source, tags, self.clock, fanout, derived=derived, on_condition=self.conditions.append)
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.stage.run(), name="plc")
        await settle()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def send(self, *items: Batch | Watermark | End) -> None:
        for item in items:
            self.source.script.put_nowait(item)
        await settle()

    def marks(self) -> list[Watermark]:
        return [item for item in self.out if isinstance(item, Watermark)]

    def values(self) -> list[float]:
        return [value for item in self.out if isinstance(item, Batch) for value in item.value.tolist()]


async def test_a_repeat_of_the_last_source_time_is_left_out_and_counted() -> None:
    async with Bench(table(("fast", 2))) as bench:
        await bench.send(batch(0, [0, 1], [1, 2], 1), batch(0, [0, 1], [3, 4], [1, 2]), batch(0, [0, 1], [5, 6], [1, 2]))

        assert bench.values() == [1, 2, 4]
        ledger = bench.stage.status().ledgers["values"]
        assert (ledger.received, ledger.consumed, ledger.rejected, ledger.produced) == (6, 3, 3, 3)
        assert ledger.balanced


async def test_repeats_within_one_batch_are_left_out_and_new_times_of_the_same_tag_are_kept() -> None:
    async with Bench(table(("fast", 2))) as bench:
        await bench.send(batch(0, [0, 1, 0, 0, 1], [1, 2, 3, 4, 5], [1, 1, 1, 2, 1]))

        assert bench.values() == [1, 2, 4]


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=6), max_size=8))
@settings(max_examples=80, deadline=None)
def test_repeats_are_found_as_by_looking_at_every_row_in_turn(script: list[list[tuple[int, int]]]) -> None:
    async def play() -> list[tuple[int, int]]:
        async with Bench(table(("fast", 4))) as bench:
            for rows in script:
                await bench.send(batch(0, [tag for tag, _ in rows], [0.0] * len(rows), [float(t) for _, t in rows]))
            assert all(ledger.balanced for ledger in bench.stage.status().ledgers.values())
            return [
                (tag, (ns - at_ns(0)) // 10**9)
                for item in bench.out
                if isinstance(item, Batch)
                for tag, ns in zip(item.tag.tolist(), item.source_time_ns.tolist(), strict=True)
            ]

    last: dict[int, int] = {}
    expected = []
    for tag, second in (row for rows in script for row in rows):
        if last.get(tag) != second:
            expected.append((tag, second))
        last[tag] = second

    assert asyncio.run(play()) == expected


async def test_derived_tags_follow_their_parents_in_the_same_batch() -> None:
    tags = table(("fast", 2))
    number = tags.add(Tag("dp", "bar", DataType.FLOAT64, 0))
    derived = DerivedTags(
        [DerivedSpec(name="dp", kind="difference", sources=("fast.0", "fast.1"))], {"fast.0": 0, "fast.1": 1, "dp": number}
    )
    async with Bench(tags, {0: derived}) as bench:
        await bench.send(batch(0, [0, 1], [5, 2], 1), mark(0, 1))

        first = bench.out[0]
        assert isinstance(first, Batch)
        assert first.tag.tolist() == [0, 1, number]
        assert first.value.tolist() == [5, 2, 3]
        assert bench.out[1] == mark(0, 1)


async def test_a_silent_group_gets_dead_watermarks_each_period_until_it_speaks_again() -> None:
    async with Bench(table(("fast", 1), domain="plc-clock", silence_limit_s=3)) as bench:
        await bench.clock.advance(1)
        await bench.send(mark(0, 50))
        await bench.clock.advance(2.9)
        assert bench.marks() == [mark(0, 50)]

        await bench.clock.advance(2.2)
        assert bench.marks()[1:] == [mark(0, 53, alive=False), mark(0, 54, alive=False), mark(0, 55, alive=False)]
        assert [condition.active for condition in bench.conditions] == [True]
        assert bench.stage.status().word is Ne107.FAILURE
        assert "plc/fast" in bench.stage.status().text

        await bench.send(mark(0, 55))
        assert [condition.active for condition in bench.conditions] == [True, False]
        assert bench.stage.status().word is Ne107.GOOD
        count = len(bench.marks())
        await bench.clock.advance(2.9)
        assert len(bench.marks()) == count
        assert all(ledger.balanced for ledger in bench.stage.status().ledgers.values())


async def test_watermarks_of_a_source_that_lost_its_device_do_not_end_the_silence() -> None:
    async with Bench(table(("fast", 1), domain="plc-clock", silence_limit_s=3)) as bench:
        await bench.send(mark(0, 50))
        for _ in range(5):
            await bench.clock.advance(1)
            await bench.send(mark(0, 50, alive=False))

        times = [item.up_to_ns for item in bench.marks() if not item.alive]
        assert at_ns(55) in times
        assert bench.conditions[0].active


async def test_a_dead_watermark_of_the_gateway_domain_does_not_run_ahead_of_the_clock() -> None:
    async with Bench(table(("fast", 1), silence_limit_s=3)) as bench:
        await bench.send(mark(0, 0.99))  # a poll vouches to just before its next request
        await bench.clock.advance(3.5)

        assert bench.marks()[1:] == [mark(0, 3, alive=False)]


async def test_a_group_that_never_spoke_takes_the_time_of_its_domain() -> None:
    async with Bench(table(("fast", 1), ("slow", 1), domain="plc-clock", silence_limit_s=3)) as bench:
        await bench.clock.advance(2)
        await bench.send(mark(0, 50))
        await bench.clock.advance(1)

        assert bench.marks() == [mark(0, 50), mark(1, 51, alive=False)]


async def test_a_group_of_an_unknown_clock_that_never_spoke_is_named_but_no_time_is_invented() -> None:
    async with Bench(table(("fast", 1), domain="plc-clock", silence_limit_s=3)) as bench:
        await bench.clock.advance(5)

        assert bench.marks() == []
        assert [condition.component for condition in bench.conditions] == ["plc/fast"]


async def test_a_source_silent_from_the_start_gives_time_in_the_gateway_domain() -> None:
    async with Bench(table(("fast", 1), silence_limit_s=3)) as bench:
        await bench.clock.advance(4.5)

        assert bench.marks() == [mark(0, 3, alive=False), mark(0, 4, alive=False)]


@given(st.lists(st.tuples(st.floats(0.1, 8), st.booleans()), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_time_never_stands_still_longer_than_the_limit_and_a_period(script: list[tuple[float, bool]]) -> None:
    async def run() -> None:
        clock = VirtualClock(wall_ns=at_ns(0))
        source = ScriptedSource(table(("fast", 1), silence_limit_s=3).groups())
        seen: list[tuple[int, Watermark]] = []
        fanout = Fanout()
        fanout.tap(lambda item: seen.append((clock.mono_ns(), item)) if isinstance(item, Watermark) else None)
        stage = SourceStage(source, table(("fast", 1), silence_limit_s=3), clock, fanout)
        task = asyncio.create_task(stage.run(), name="plc")
        await settle()
        at_mono_ns = clock.mono_ns()
        for pause_s, speaks in script:
            await clock.advance(pause_s)
            if speaks:
                source.script.put_nowait(Watermark(0, clock.wall_ns()))
                await settle()
        end_ns = clock.mono_ns()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for mono_ns, _ in seen:
            assert mono_ns - at_mono_ns <= 3_000_000_001
            at_mono_ns = mono_ns
        assert end_ns - at_mono_ns <= 3_000_000_001
        ups = [item.up_to_ns for _, item in seen]
        assert ups == sorted(ups)

    asyncio.run(run())


async def test_the_end_of_a_recording_ends_the_stage_and_its_watch() -> None:
    bench = Bench(table(("fast", 1)))
    await bench.send(batch(0, [0], [1], 1), mark(0, 1), None)
    await asyncio.wait_for(bench.stage.run(), 1)

    assert len(bench.out) == 2
    assert bench.source.entered == 0


async def test_an_error_of_the_source_leaves_it_closed_and_goes_to_the_supervisor() -> None:
    bench = Bench(table(("fast", 1)))
    await bench.send(TransientError("cut"))
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(bench.stage.run(), 1)

    assert isinstance(caught.value.exceptions[0], TransientError)
    assert bench.source.entered == 0


async def test_a_stuck_consumer_does_not_delay_what_the_source_sends() -> None:
    clock = VirtualClock(wall_ns=START_S * 10**9)
    tags = table(("fast", 1))
    source, fanout, stuck = ScriptedSource(tags.groups()), Fanout(), FlowQueue(10)
    fanout.outlet(stuck)
    stage = SourceStage(source, tags, clock, fanout)
    task = asyncio.create_task(stage.run(), name="plc")
    for second in range(200):
        source.script.put_nowait(batch(0, [0], [1.0], second))
        source.script.put_nowait(mark(0, second))
    await settle(20)
    assert source.script.empty()
    assert len(stuck) <= 10 + 11 * 2
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert all(ledger.balanced for ledger in stuck.ledgers().values())
    assert all(ledger.balanced for ledger in stage.status().ledgers.values())
