"""Recordings a user got from somebody else: quotes that do not end, cells over two lines, damaged archives."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from connectors.replay.recording import read_recording
from gateway.core.errors import ConfigError

PLAIN = b"time,a,b\n2020-03-09 11:55:30,1.5,2\n2020-03-09 11:55:31,,-3e2\n"


def written(folder: Path, text: str | bytes, name: str = "r.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


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


@pytest.mark.parametrize("content", [b"no gzip", gzip.compress(PLAIN)[:-12], gzip.compress(PLAIN)[:12] + b"\xff" * 30])
def test_a_damaged_compressed_file_is_the_users_to_replace(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path, content, "r.csv.gz")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_recording(path)
