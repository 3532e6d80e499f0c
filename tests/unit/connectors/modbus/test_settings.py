"""What a user may write, and what is said when it is wrong."""

from typing import Any

import pytest
from pydantic import ValidationError

from connectors.modbus.settings import ModbusTargetSettings, Table, parse_address
from tests.unit.connectors.modbus.plc import settings_of


def test_an_address_is_a_table_and_a_zero_based_number() -> None:
    assert parse_address("holding 100") == (Table.HOLDING, 100)
    assert parse_address("discrete  7") == (Table.DISCRETE, 7)


@pytest.mark.parametrize("text", ["40001", "400001", "holding", "holding -1", "holding 1.5", "register 3", ""])
def test_an_ambiguous_or_misspelt_address_is_refused_with_the_right_spelling(text: str) -> None:
    with pytest.raises(ValueError, match="holding 100"):
        parse_address(text)


def test_a_number_that_could_mean_several_registers_is_named_so() -> None:
    with pytest.raises(ValueError, match="could mean several registers"):
        parse_address("40001")


@pytest.mark.parametrize(
    ("tag", "source", "said"),
    [
        ({"address": "holding 65535", "type": "float32"}, {}, "reaches beyond 65535"),
        ({"address": "holding 70000"}, {}, "beyond 65535"),
        ({"address": "holding 1", "scale": 0}, {}, "scale 0"),
        ({"address": "holding 1", "type": "float32"}, {"max_registers": 1}, "max_registers 1"),
    ],
)
def test_what_cannot_be_read_is_refused_before_anything_is_opened(tag: dict[str, Any], source: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        settings_of(502, [{"name": "g", "tags": [{"name": "t", **tag}]}], **source)


def test_a_target_is_a_block_of_holding_registers() -> None:
    with pytest.raises(ValidationError, match="holding N"):
        ModbusTargetSettings(type="modbus", source="plc", address="input 4")
