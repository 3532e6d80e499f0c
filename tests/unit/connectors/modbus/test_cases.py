"""Every folder under tests/cases/modbus: a configuration, what stands in the device, and what must come of one poll."""

import json
import math
from pathlib import Path

import pytest
import yaml

from connectors.modbus.connector import ModbusConnector
from gateway.core.clock import NS_PER_S
from gateway.core.quality import Code
from tests.unit.connectors.modbus.plc import Plc, Reader, Unit, settings_of, table_of
from tests.virtual_clock import VirtualClock

CASES = sorted(path.parent for path in (Path(__file__).parents[3] / "cases" / "modbus").glob("*/config.yaml"))


def unit_of(contents: dict[str, dict[str, list[int] | int]]) -> Unit:
    """`{"holding": {"100": [words]}, "refused": {"holding 7": code}}`."""
    unit = Unit()
    for table, blocks in contents.items():
        for address, content in blocks.items():
            if isinstance(content, int):
                name, number = address.split()
                unit.refused[name, int(number)] = content
            else:
                unit.put(table, int(address), content)
    return unit


def test_there_are_cases() -> None:
    assert len(CASES) >= 14


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
async def test_one_poll_gives_what_the_case_expects(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text())
    raw = yaml.safe_load((folder / "config.yaml").read_text())
    clock = VirtualClock()
    async with Plc() as plc, ModbusConnector(clock) as connector:
        contents = json.loads((folder / "registers.json").read_text())
        plc.units = {int(number): unit_of(unit) for number, unit in contents.items()}
        settings = settings_of(plc.port, **raw)
        table = table_of(settings)
        async with connector.source(settings, table) as source:
            reader = Reader(source.items(), table)
            await clock.advance(0.5)
            await reader.cycle()
            values = {name: pytest.approx(math.nan if value is None else value, nan_ok=True) for name, value in expected["values"].items()}
            assert {n: v if math.isfinite(v) else math.nan for n, v in reader.values.items()} == values
            words = {name: Code(quality).name for name, quality in reader.quality.items()}
            assert words == dict.fromkeys(values, "GOOD") | expected.get("quality", {})
            assert [list(asked.span) for asked in plc.asked] == expected["requests"]
            assert reader.marks[0].alive is expected.get("alive", True)
            assert reader.marks[0].up_to_ns == expected.get("watermark_ns", clock.wall_ns() + NS_PER_S - 1)
            times = {int(time) for batch in reader.batches for time in batch.source_time_ns}
            assert times == {expected.get("source_time_ns", clock.wall_ns())}
            active = [(c.text, c.remedy) for c in source.conditions() if c.active]
            assert active == ([(expected["condition"], expected["remedy"])] if "condition" in expected else [])
