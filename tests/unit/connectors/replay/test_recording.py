"""CSV recordings: whatever its dialect a file gives the same columns, and a fault is named by file and line."""

import gzip
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.replay.recording import feed, parse_time, read_recording
from gateway.core.batch import Batch, Watermark
from gateway.core.clock import NS_PER_S
from gateway.core.errors import ConfigError
from gateway.core.quality import Code
from gateway.core.tags import DataType, Tag, TagTable

START_NS = 1_583_754_930 * NS_PER_S  # 2020-03-09 11:55:30 UTC
PLAIN = "time,a,b\n2020-03-09 11:55:30,1.5,2\n2020-03-09 11:55:31,,-3e2\n"


def written(folder: Path, text: str | bytes, name: str = "r.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(PLAIN.encode(), id="commas"),
        pytest.param(PLAIN.replace(",", ";").encode(), id="semicolons"),
        pytest.param(PLAIN.replace(",", "\t").encode(), id="tabs"),
        pytest.param(b"\xef\xbb\xbf" + PLAIN.encode(), id="byte order mark"),
        pytest.param(PLAIN.replace("\n", "\r\n").encode(), id="Windows line ends"),
        pytest.param(PLAIN.replace("\n", "\r").encode(), id="old Mac line ends"),
        pytest.param(PLAIN.replace("a,b", ' a ,"b"').encode(), id="quotes and blanks"),
        pytest.param(PLAIN.rstrip().encode(), id="no newline at the end"),
        pytest.param(PLAIN.replace("11:55:31,", "\n\n2020-03-09 11:55:31,", 0).encode() + b"\n,,\n", id="empty lines"),
        pytest.param(PLAIN.replace(",,", ",NaN,").encode(), id="NaN written out"),
        pytest.param(PLAIN.replace("2020-03-09 11:55:3", "158375493").encode(), id="unix seconds"),
        pytest.param(
            PLAIN.replace("2020-03-09 11:55:30", "1583754930000").replace("2020-03-09 11:55:31", "1583754931000").encode(), id="ms"
        ),
        pytest.param(PLAIN.replace(":30,", ":30Z,").replace(":31,", ":31+00:00,").encode(), id="zones"),
    ],
)
def test_every_dialect_gives_the_same_columns(tmp_path: Path, content: bytes) -> None:
    recording = read_recording(written(tmp_path, content))
    assert recording.names == ("a", "b")
    assert recording.time_ns.tolist() == [START_NS, START_NS + NS_PER_S]
    np.testing.assert_array_equal(recording.values, [[1.5, 2.0], [np.nan, -300.0]])
    assert (recording.period_s, recording.dropped) == (1.0, 0)


def test_a_compressed_file_reads_like_a_plain_one(tmp_path: Path) -> None:
    recording = read_recording(written(tmp_path, gzip.compress(PLAIN.encode()), "r.csv.gz"))
    assert recording.names == ("a", "b")


def test_the_time_column_may_stand_anywhere(tmp_path: Path) -> None:
    recording = read_recording(written(tmp_path, "a,when,b\n1,10,2\n3,11,4\n"), "when")
    assert recording.names == ("a", "b")
    assert recording.time_ns.tolist() == [10 * NS_PER_S, 11 * NS_PER_S]
    assert recording.values.tolist() == [[1, 2], [3, 4]]


def test_rows_whose_time_repeats_or_goes_back_are_left_out_and_counted(tmp_path: Path) -> None:
    recording = read_recording(written(tmp_path, "t,a\n10,1\n10,2\n9,3\n11,4\n"))
    assert recording.values.ravel().tolist() == [1, 4]
    assert recording.dropped == 2


def test_a_row_with_too_few_cells_has_holes(tmp_path: Path) -> None:
    recording = read_recording(written(tmp_path, "t,a,b\n10,1\n"))
    np.testing.assert_array_equal(recording.values, [[1, np.nan]])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param("t,a\n10,1\n11,x\n", ":3: 'x' is no number", id="number"),
        pytest.param("t,a\n10,1\nnoon,1\n", ":3: 'noon' is no time", id="time"),
        pytest.param("t,a\nnan,1\n", ":2: 'nan' is no time", id="time that is not a number"),
        pytest.param("t;a\n10;1,5\n", ":2: '1,5' is no number", id="decimal comma"),
        pytest.param('t,a,b\n10,"\n",1\n11,1,x\n', ":4: 'x' is no number", id="a cell over two lines"),
        pytest.param("t,a\n", "no rows", id="header only"),
        pytest.param("", "empty", id="empty"),
        pytest.param(b"t,a\n10,\xff\n", "byte 7 is not UTF-8", id="other encoding"),
        pytest.param('t,a\n10,"' + "1" * 200_000 + "\n", ":2: ", id="a quote that never ends"),
    ],
)
def test_a_fault_is_named_by_file_and_line(tmp_path: Path, content: str | bytes, said: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ConfigError) as caught:
        read_recording(path)
    assert str(path) in caught.value.text
    assert said in caught.value.text
    assert caught.value.remedy


def test_many_faults_are_told_at_once_and_then_counted(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_recording(written(tmp_path, "t,a\n" + "".join(f"{n},x\n" for n in range(25))))
    assert caught.value.text.count("is no number") == 20
    assert caught.value.text.endswith("... and 5 more")


@pytest.mark.parametrize("content", [b"no gzip", gzip.compress(PLAIN.encode())[:-12], gzip.compress(PLAIN.encode())[:12] + b"\xff" * 30])
def test_a_damaged_compressed_file_is_the_users_to_replace(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path, content, "r.csv.gz")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_recording(path)


def test_a_file_or_column_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        read_recording(tmp_path / "none.csv")
    path = written(tmp_path, PLAIN)
    attempts: list[Callable[[], object]] = [lambda: read_recording(path, "x"), lambda: read_recording(path).only(["x"])]
    for attempt in attempts:
        with pytest.raises(ConfigError, match=r":1: no column 'x' -> the file has: ") as caught:
            attempt()
        assert "a, b" in str(caught.value)


def test_columns_can_be_chosen_in_any_order(tmp_path: Path) -> None:
    recording = read_recording(written(tmp_path, PLAIN)).only(["b", "a"])
    assert recording.names == ("b", "a")
    np.testing.assert_array_equal(recording.values, [[2.0, 1.5], [-300.0, np.nan]])


@given(st.integers(min_value=0, max_value=4_000_000_000_000))
def test_a_time_of_any_millisecond_reads_the_same_in_iso_and_in_unix_seconds(ms: int) -> None:
    text = datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000).isoformat()
    assert parse_time(text) == ms * 1_000_000
    assert parse_time(f"{ms / 1000:.3f}") == ms * 1_000_000


def test_a_recording_is_fed_as_a_source_would_give_it(tmp_path: Path) -> None:
    table = TagTable()
    group = table.add_group("s/g", "s", 1.0)
    numbers = [table.add(Tag(name, "1", DataType.FLOAT64, group.id)) for name in ("A", "B")]
    items = list(feed(read_recording(written(tmp_path, PLAIN)), [("b", "B"), ("a", "A")], table))
    batches = [item for item in items if isinstance(item, Batch)]
    assert items[1::2] == [Watermark(group.id, START_NS), Watermark(group.id, START_NS + NS_PER_S)]
    assert [batch.tag.tolist() for batch in batches] == [numbers[::-1]] * 2
    assert batches[1].quality.tolist() == [Code.GOOD, Code.BAD_NOT_A_NUMBER]
    assert batches[1].source_time_ns.tolist() == [START_NS + NS_PER_S] * 2
