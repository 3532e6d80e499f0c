"""History gives back what it was given, as long as it promises to, whatever the disk does."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import gateway.store.history as history_module
from gateway.core.batch import Batch, Watermark
from gateway.core.clock import NS_PER_S
from gateway.core.errors import TransientError
from gateway.core.quality import Code
from gateway.core.tags import DataType, Tag
from gateway.store.database import Database
from gateway.store.history import History
from tests.unit.store.shelf import batch, bits, count, fill_disk, prediction, table_of
from tests.virtual_clock import VirtualClock

_TIME = st.integers(0, 10**9)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    n = draw(st.integers(1, 6))
    rows = st.lists(st.integers(0, n - 1), unique=True).map(sorted)
    wide_pos, text_pos = draw(rows), draw(rows)
    return Batch(
        0,
        draw(st.integers(0, 2**40)),
        0,
        0,
        draw(_TIME),
        draw(arrays.arrays(np.int32, n, elements=st.integers(0, 1))),
        draw(arrays.arrays(np.uint64, n)).view(np.float64),
        draw(arrays.arrays(np.uint16, n)),
        draw(arrays.arrays(np.int64, n, elements=_TIME)),
        np.array(wide_pos, np.int32),
        draw(arrays.arrays(np.uint64, len(wide_pos))),
        np.array(text_pos, np.int32),
        tuple(draw(st.lists(st.text(st.characters(codec="utf-8")), min_size=len(text_pos), max_size=len(text_pos)))),
    )


@settings(deadline=None, max_examples=40)
@given(st.lists(batches() | st.builds(Watermark, st.just(0), _TIME, st.booleans()), max_size=8), st.integers(0, 8))
def test_every_bit_comes_back_from_the_disk_and_from_the_open_block_alike(
    tmp_path_factory: pytest.TempPathFactory, items: list[Batch | Watermark], flushed: int
) -> None:
    async def keep() -> list[Batch | Watermark]:
        clock = VirtualClock()
        async with Database(tmp_path_factory.mktemp("store") / "h.db", clock) as database:
            history = History(database, table_of(), clock)
            await history.take(items[:flushed])
            await history.flush()
            await history.take(items[flushed:])
            return await history.recent(["s/fast"], 1e6)

    assert [bits(item) for item in asyncio.run(keep())] == [bits(item) for item in items]


async def test_another_run_with_other_numbers_reads_the_same_tags(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Database(tmp_path / "h.db", clock) as database:
        history = History(database, table_of(), clock)
        await history.take([batch([0, 1], [1.0, 2.0], 5), Watermark(0, 6)])
        await history.close()
    table = table_of()
    number = table.add(Tag("b", "1", DataType.FLOAT64, 0, high=9.0))
    async with Database(tmp_path / "h.db", clock) as database:
        kept, mark = await History(database, table, clock).recent(["s/fast"], 60)
    assert isinstance(kept, Batch)
    assert (kept.tag.tolist(), kept.value.tolist(), mark) == ([0, number], [1.0, 2.0], Watermark(0, 6))


async def test_tags_and_groups_that_are_gone_are_left_out_of_a_refill(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Database(tmp_path / "h.db", clock) as database:
        before = table_of()
        before.add(Tag("gone", "1", DataType.FLOAT64, 0))
        history = History(database, before, clock)
        await history.take([batch([3, 0], [7.0, 1.0], 5)])
        await history.flush()
        (kept,) = await History(database, table_of(), clock).recent(["s/fast", "s/none"], 60)
    assert isinstance(kept, Batch)
    assert kept.value.tolist() == [1.0]


async def test_a_refill_goes_back_as_far_as_asked_in_the_groups_own_time(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Database(tmp_path / "h.db", clock) as database:
        history = History(database, table_of(), clock)
        for second in range(0, 100, 10):
            await history.take([batch([0], [second], second * NS_PER_S)])
            await history.flush()
        found = await history.recent(["s/fast"], 30)
    assert [int(item.value[0]) for item in found if isinstance(item, Batch)] == [60, 70, 80, 90]


async def test_a_block_is_written_when_its_time_is_over_and_also_when_the_clock_was_set_back(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Database(tmp_path / "h.db", clock) as database:
        history = History(database, table_of(), clock, block_s=10)
        await history.take([batch([0], [1], 0)])
        await clock.advance(9)
        await history.take([batch([0], [2], 1)])
        assert await count(database, "blocks") == 0
        await clock.advance(2)
        await history.take([batch([0], [3], 2)])
        assert await count(database, "blocks") == 1
        await history.take([batch([0], [4], 3)])
        clock.step_wall(-3600)
        await history.take([batch([0], [5], 4)])
        assert await count(database, "blocks") == 2
        assert [row.value for row in await history.rows("a", 0, 10)] == [1, 2, 3, 4, 5]


async def test_what_moves_within_the_dead_band_is_left_out_unless_its_quality_changes_or_a_model_needs_it(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Database(tmp_path / "h.db", clock) as database:
        history = History(database, table_of(dead_band=1.0), clock)
        history.keep_exact([1])
        for at, value in enumerate((0.0, 0.9, -0.9, 1.0, 1.5)):
            await history.take([batch([0, 1], [value, value], at)])
        await history.take([batch([0], [1.5], 5, quality=Code.UNCERTAIN)])
        await history.take([batch([0], [np.nan], 6, quality=Code.UNCERTAIN), Watermark(0, 9)])
        thin, whole = await history.rows("a", 0, 10), await history.rows("b", 0, 10)
        assert [(row.source_time_ns, row.value) for row in thin] == [(0, 0.0), (3, 1.0), (5, 1.5), (6, None)]
        assert [row.value for row in whole] == [0.0, 0.9, -0.9, 1.0, 1.5]
        assert (await history.recent(["s/fast"], 1))[-1] == Watermark(0, 9)


async def test_rows_are_those_of_the_time_asked_for_the_newest_if_too_many(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Database(tmp_path / "h.db", clock) as database:
        history = History(database, table_of(), clock)
        for at in range(6):
            await history.take([batch([0, 1], [at, -at], at)])
            if at % 2:
                await history.flush()
        assert [row.value for row in await history.rows("a", 1, 4)] == [1, 2, 3, 4]
        assert [row.value for row in await history.rows("a", 0, 9, limit=2)] == [4, 5]
        assert await history.rows("nothing", 0, 9) == []


async def test_what_is_older_than_its_retention_goes(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Database(tmp_path / "h.db", clock) as database:
        history = History(database, table_of(), clock, retention_h=1)
        await history.take([batch([0], [1], 1)])
        await history.flush()
        await clock.advance(3700)
        await history.take([batch([0], [2], 2)])
        await history.flush()
        assert [row.value for row in await history.rows("a", 0, 9)] == [2]


async def test_beyond_its_size_the_oldest_blocks_go(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Database(tmp_path / "h.db", clock) as database:
        history = History(database, table_of(), clock, max_mb=0.5)
        for at in range(120):
            await history.take([batch([0] * 1000, [at] * 1000, at)])
            await history.flush()
        kept = {row.value for row in await history.rows("a", 0, 999, limit=1_000_000)}
        assert max(v for v in kept if v is not None) == 119
        assert 0 < len(kept) < 120
        assert min(v for v in kept if v is not None) == 120 - len(kept)


async def test_predictions_come_back_with_all_their_digits(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Database(tmp_path / "h.db", clock) as database:
        history = History(database, table_of(), clock)
        await history.take([prediction(1), prediction(2)])
        await history.flush()
        newest, older = await history.predictions("m", "pump")
    assert (newest["sequence"], older["sequence"]) == (2, 1)
    np.testing.assert_array_equal(newest["outputs"], [0.1, np.nan])
    assert newest["trace"]["inference_end_ns"] == 5


async def test_a_full_disk_loses_nothing_that_was_open(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Database(tmp_path / "h.db", clock) as database:
        history = History(database, table_of(), clock, block_s=1)
        await fill_disk(database, full=True)
        await history.take([batch([0] * 5000, range(5000), 1), prediction(1)])
        await clock.advance(2)
        with pytest.raises(TransientError, match="full"):
            await history.take([batch([0], [-1], 2)])
        assert len(await history.rows("a", 0, 9)) == 5001
        await fill_disk(database, full=False)
        await history.take([batch([0], [-2], 3)])
        assert await count(database, "blocks") == 1
        assert len(await history.rows("a", 0, 9)) == 5002
        assert len(await history.predictions("m", "pump")) == 1


async def test_a_disk_that_stays_full_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "_OPEN_LIMIT", 20_000)
    clock = VirtualClock()
    async with Database(tmp_path / "h.db", clock) as database:
        history = History(database, table_of(), clock, block_s=1)
        await fill_disk(database, full=True)
        for at in range(60):
            try:
                await history.take([batch([0] * 1000, [at] * 1000, at)])
            except TransientError:
                await clock.advance(2)
            await clock.advance(0.5)
        rows = await history.rows("a", 0, 99, limit=1_000_000)
        assert len(rows) <= 20_000
        assert rows[-1].value == 59
        assert len(rows) + history.lost_samples == 60_000


async def test_a_flush_that_is_cancelled_is_not_written_twice(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Database(tmp_path / "h.db", clock) as database:
        history = History(database, table_of(), clock)
        await history.take([batch([0], [1], 1), prediction(1)])
        flushing = asyncio.create_task(history.flush())
        await asyncio.sleep(0)
        flushing.cancel()
        await asyncio.wait((flushing,))
        assert flushing.cancelled()
        await history.close()
        assert (await count(database, "blocks"), await count(database, "predictions")) == (1, 1)
