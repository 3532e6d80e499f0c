"""Large files, tag sheets, and mistakes that must not hide each other."""

import time
from pathlib import Path

import pytest

from gateway.config.load import ConfigProblemsError, load
from gateway.config.plan import tag_table
from gateway.core.errors import ConfigError

HEAD = "gateway: {name: A}\nsources:\n  - name: p\n    type: modbus\n    host: h\n    groups:\n      - name: g\n"


def sheet(tmp_path: Path, rows: list[str], header: str = "name,address,type,unit") -> Path:
    (tmp_path / "tags.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    file = tmp_path / "gateway.yaml"
    file.write_text(HEAD + "        tag_sheet: tags.csv\n")
    return file


def test_a_tag_sheet_is_read_as_if_it_stood_in_the_file(tmp_path: Path) -> None:
    file = sheet(tmp_path, ["a,input 0,float32,degC", "b,input 2,int16,bar"])
    tags = {tag.name: tag for tag in tag_table(load(file).settings)}

    assert set(tags) == {"a", "b"}
    assert tags["b"].unit == "bar"


def test_a_spreadsheet_with_semicolons_decimal_commas_and_a_byte_order_mark_is_understood(tmp_path: Path) -> None:
    file = sheet(tmp_path, ["a;input 0;int16;degC;0,1"], header="\ufeffname;address;type;unit;scale")

    assert load(file).settings.sources[0].groups[0].tags[0].scale == 0.1


def test_five_thousand_rows_with_three_hundred_mistakes_are_all_reported_by_row(tmp_path: Path) -> None:
    rows = [f"tag{i},input {2 * i},float32,degC" for i in range(5000)]
    for i in range(0, 3000, 10):
        rows[i] = rows[i].replace("degC", "degX") if i % 20 else rows[i].replace("float32", "float31")
    file = sheet(tmp_path, rows)
    started = time.monotonic()
    with pytest.raises(ConfigProblemsError) as raised:
        load(file)

    assert len(raised.value.problems) == 300
    assert {problem.place.line for problem in raised.value.problems} == {i + 2 for i in range(0, 3000, 10)}
    assert time.monotonic() - started < 30  # a hang is a failure; speed is measured in the bench


def test_a_sheet_that_is_not_there_is_named_at_its_place(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(HEAD + "        tag_sheet: nowhere.csv\n")

    with pytest.raises(ConfigError, match=r"gateway.yaml:8:20: tag sheet .*nowhere.csv: No such file"):
        load(file)


def test_a_file_of_fifty_megabytes_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "big.yaml"
    with file.open("wb") as out:
        out.truncate(50_000_000)

    with pytest.raises(ConfigError, match="50 MB is too large"):
        load(file)
