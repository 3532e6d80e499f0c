"""Tapes give back bit for bit what was put on them, as far as they go."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from connectors.replay.tape import TapeReader, header_frame, item_frame
from gateway.core.batch import Batch, Watermark
from gateway.core.errors import ConfigError
from gateway.core.tags import DataType, GroupMode, Tag, TagTable

_INT64 = st.integers(-(2**63), 2**63 - 1)


def table_of() -> TagTable:
    table = TagTable()
    table.add_group("s/fast", "s", 0.1)
    slow = table.add_group("s/slow", "s", 10.0, mode=GroupMode.ON_CHANGE, domain="plc", silence_limit_s=7.0)
    table.add(Tag("a", "bar", DataType.FLOAT64, 0, 0.0, 10.0, 0.1, "pressure"))
    table.add(Tag("a", "bar", DataType.FLOAT64, 0, 0.0, 16.0, 0.1, "pressure"))  # changed: a number of its own
    table.add(Tag("b", "1", DataType.TEXT, slow.id))
    return table


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    n = draw(st.integers(0, 8))
    rows = st.lists(st.integers(0, n - 1), unique=True).map(sorted) if n else st.just([])
    wide_pos, text_pos = draw(rows), draw(rows)
    return Batch(
        draw(st.integers(0, 1)),
        draw(st.integers(0, 2**40)),
        draw(_INT64),
        draw(_INT64),
        draw(_INT64),
        draw(arrays.arrays(np.int32, n)),
        draw(arrays.arrays(np.uint64, n)).view(np.float64),  # any NaN pattern, any subnormal
        draw(arrays.arrays(np.uint16, n)),
        draw(arrays.arrays(np.int64, n)),
        np.array(wide_pos, np.int32),
        draw(arrays.arrays(np.uint64, len(wide_pos))),
        np.array(text_pos, np.int32),
        tuple(draw(st.lists(st.text(st.characters(codec="utf-8")), min_size=len(text_pos), max_size=len(text_pos)))),
    )


def bits(item: Batch | Watermark) -> tuple[object, ...]:
    if isinstance(item, Watermark):
        return (item.group, item.up_to_ns, item.alive)
    columns = (item.tag, item.value, item.quality, item.source_time_ns, item.wide_pos, item.wide, item.text_pos)
    scalars = (item.group, item.cycle, item.requested_mono_ns, item.received_mono_ns, item.received_wall_ns)
    return (*scalars, *((column.dtype, column.tobytes()) for column in columns), item.text)


@given(st.lists(batches() | st.builds(Watermark, st.integers(0, 1), _INT64, st.booleans()), max_size=6), st.data())
def test_a_tape_gives_back_every_bit_and_a_cut_one_all_whole_items(
    tmp_path_factory: pytest.TempPathFactory, items: list[Batch | Watermark], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("tape") / "t.tape"
    frames = [header_frame(table_of(), "m"), *map(item_frame, items)]
    path.write_bytes(b"".join(frames))
    reader = TapeReader(path)
    assert [bits(item) for item in reader] == [bits(item) for item in items]
    assert not reader.truncated
    ends = np.cumsum([len(frame) for frame in frames]).tolist()
    cut = data.draw(st.integers(ends[0], ends[-1]))
    path.write_bytes(b"".join(frames)[:cut])
    reader = TapeReader(path)
    assert [bits(item) for item in reader] == [bits(item) for item, end in zip(items, ends[1:], strict=True) if end <= cut]
    assert reader.truncated == (cut not in ends)


def test_tags_and_groups_keep_their_numbers_superseded_ones_too(tmp_path: Path) -> None:
    path = tmp_path / "t.tape"
    table = table_of()
    path.write_bytes(header_frame(table, "pump"))
    reader = TapeReader(path)
    assert reader.model == "pump"
    assert [reader.table[n] for n in range(len(reader.table))] == [table[n] for n in range(len(table))]
    assert reader.table.groups() == table.groups()


@pytest.mark.parametrize(
    "content", [b"", b"abc", b"\x00\x00\x00\x01\x90", b"\x00\x00\x00\x05ab", item_frame(Watermark(0, 1)), b"time,a\n1,2\n"]
)
def test_what_is_no_tape_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.tape"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="not a Lineside tape"):
        TapeReader(path)


def test_a_tape_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        TapeReader(tmp_path / "none")


@pytest.mark.parametrize(
    "body", [b"\xc1", msgspec.msgpack.encode([1, 2]), msgspec.msgpack.encode("x"), item_frame(Watermark(0, 1))[4:] + b"!"]
)
def test_a_frame_that_is_damaged_inside_names_the_tape_and_its_place(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "t.tape"
    path.write_bytes(header_frame(table_of(), "m") + item_frame(Watermark(0, 1)) + len(body).to_bytes(4, "big") + body)
    items = iter(TapeReader(path))
    assert next(items) == Watermark(0, 1)
    with pytest.raises(ConfigError, match=r"t\.tape: item 2 is damaged"):
        next(items)
