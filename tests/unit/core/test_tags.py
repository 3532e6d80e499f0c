"""Tags are numbered for good; units have one spelling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import ConfigError
from gateway.core.tags import DataType, Tag, TagTable
from gateway.core.units import UNITS, conversion, unit


def test_a_changed_tag_gets_a_new_number_and_the_old_one_stays_readable() -> None:
    table = TagTable()
    group = table.add_group("plc/fast", "plc", 1.0)
    first = table.add(Tag("flow", "l/min", DataType.FLOAT32, group.id))
    again = table.add(Tag("flow", "l/min", DataType.FLOAT32, group.id))
    changed = table.add(Tag("flow", "m³/h", DataType.FLOAT32, group.id))

    assert (first, again, changed) == (0, 0, 1)
    assert table[first].unit == "l/min"
    assert table[table.number("flow")].unit == "m3/h"
    assert table.tags_of(group.id) == [1]
    assert [tag.name for tag in table] == ["flow"]


def test_a_changed_group_gets_a_new_number() -> None:
    table = TagTable()
    slow = table.add_group("plc/g", "plc", 1.0)
    same = table.add_group("plc/g", "plc", 1.0)
    fast = table.add_group("plc/g", "plc", 0.1)

    assert slow is same
    assert (slow.id, fast.id) == (0, 1)
    assert table.groups() == (fast,)
    assert table.group(0).period_s == 1.0


@pytest.mark.parametrize(("written", "symbol"), [("°C", "degC"), ("degC", "degC"), ("m³/h", "m3/h"), ("", "1"), ("lpm", "l/min")])
def test_aliases_become_one_symbol(written: str, symbol: str) -> None:
    assert unit(written).symbol == symbol


def test_an_unknown_unit_names_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="did you mean 'mbar'"):
        unit("mbarr")


@given(st.sampled_from(sorted(UNITS)), st.sampled_from(sorted(UNITS)), st.floats(-1e3, 1e3))
def test_conversion_there_and_back_is_the_identity(source: str, target: str, value: float) -> None:
    if unit(source).dimension != unit(target).dimension:
        with pytest.raises(ConfigError, match="use a unit of"):
            conversion(source, target)
        return
    factor, offset = conversion(source, target)
    back_factor, back_offset = conversion(target, source)

    assert (value * factor + offset) * back_factor + back_offset == pytest.approx(value, abs=1e-6)


def test_known_conversions_are_right() -> None:
    factor, offset = conversion("degF", "degC")
    assert 212 * factor + offset == pytest.approx(100)
    factor, offset = conversion("m3/h", "l/min")
    assert 6 * factor + offset == pytest.approx(100)
