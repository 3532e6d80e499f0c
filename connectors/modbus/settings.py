"""What a user may set for a Modbus source or target."""

import re
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

_ADDRESS = re.compile(r"^(holding|input|coil|discrete) +(\d{1,5})$")


class Table(StrEnum):
    """The four tables of a Modbus server."""

    COIL = "coil"
    DISCRETE = "discrete"
    HOLDING = "holding"
    INPUT = "input"


class WireType(StrEnum):
    """How a value lies in registers or bits."""

    BOOL = "bool"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"
    FLOAT32 = "float32"

    @property
    def words(self) -> int:
        """Registers (or bits) it takes."""
        return 2 if self in (WireType.INT32, WireType.UINT32, WireType.FLOAT32) else 1


Order = Literal["ABCD", "CDAB", "BADC", "DCBA"]


def parse_address(text: str) -> tuple[Table, int]:
    """`holding 100` -> the table and the zero-based address.

    Raises:
        ValueError: It is spelt otherwise; the text shows the right spelling.
    """
    match = _ADDRESS.match(text.strip())
    if match is None:
        digits = re.fullmatch(r"[0134]?(\d{4,5})", text.strip())
        hint = f"; '{text}' could mean several registers, write the table's name and the zero-based address" if digits else ""
        raise ValueError(f"address '{text}' is not understood: write 'holding 100', 'input 100', 'coil 3' or 'discrete 7'{hint}")
    if int(match[2]) > 65535:
        raise ValueError(f"address '{text}' is beyond 65535")
    return Table(match[1]), int(match[2])


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _as_text(value: object) -> object:
    """A bare number is no address, but the message about it must be the one about addresses."""
    return str(value) if isinstance(value, int) else value


Address = Annotated[
    str, BeforeValidator(_as_text), Field(description="Table and zero-based address: `holding 100`, `input 100`, `coil 3`, `discrete 7`.")
]


class ModbusTagSettings(_Settings):
    """One tag of a Modbus group."""

    name: str = Field(min_length=1, description="Unique name of the tag.")
    address: Address
    type: WireType = Field(WireType.UINT16, description="How the value lies in the registers.")
    unit: str = Field("1", description="Engineering unit, after scale and offset.")
    order: Order | None = Field(None, description="Byte order of this tag; the source's if left out.")
    scale: float = Field(1.0, description="Factor on the raw value.")
    offset: float = Field(0.0, description="Added after the factor.")
    low: float | None = Field(None, description="Lower end of the engineering range.")
    high: float | None = Field(None, description="Upper end of the engineering range.")
    dead_band: float = Field(0.0, ge=0, description="Change below which history may leave a sample out.")
    description: str = Field("", description="Your words.")

    @field_validator("address")
    @classmethod
    def _spelt(cls, text: str) -> str:
        parse_address(text)
        return text

    @model_validator(mode="after")
    def _within(self) -> Self:
        table, address = parse_address(self.address)
        if table in (Table.HOLDING, Table.INPUT) and address + self.type.words > 65536:
            raise ValueError(f"{self.type} at '{self.address}' reaches beyond 65535")
        if self.scale == 0:
            raise ValueError("scale 0 makes every value the same: leave scale out or give a factor")
        return self


class StampSettings(_Settings):
    """A register that holds the source's own time."""

    name: str = Field(min_length=1, description="Name of the source clock; groups of one model share one.")
    address: Address
    type: Literal["uint32"] = Field("uint32", description="How the stamp lies in the registers.")
    unit: Literal["s", "ms"] = Field("s", description="`s`: seconds since 1970. `ms`: milliseconds, which roll over with the type.")
    order: Order | None = Field(None, description="Byte order; the source's if left out.")

    @field_validator("address")
    @classmethod
    def _spelt(cls, text: str) -> str:
        parse_address(text)
        return text


class ModbusGroupSettings(_Settings):
    """Tags read together at one period."""

    name: str = Field(min_length=1, description="Name of the group, unique in its source.")
    period_s: float = Field(1.0, ge=0.01, le=86400, description="Poll period.")
    silence_limit_s: float | None = Field(
        None, gt=0, description="Silence after which the group is called dead; three periods, at least 1 s."
    )
    clock: StampSettings | None = Field(None, description="Time-stamp register; without it the gateway's clock stamps the values.")
    tags: list[ModbusTagSettings] = Field(default_factory=list, description="The tags.")
    tag_sheet: str | None = Field(None, description="CSV file with more tags, one per row, columns named like the settings of a tag.")


class ModbusSourceSettings(_Settings):
    """One unit behind one Modbus TCP address."""

    name: str = Field(min_length=1, description="Unique name of the source.")
    type: Literal["modbus"] = Field(description="Connector.")
    host: str = Field(min_length=1, description="Host name or address.")
    port: int = Field(502, ge=1, le=65535, description="TCP port.")
    unit: int = Field(1, ge=0, le=255, description="Unit id.")
    timeout_ms: float = Field(500, ge=10, le=60000, description="Time a request may take.")
    order: Order = Field("ABCD", description="Byte order of 32-bit values: ABCD is big-endian, CDAB has its words swapped.")
    max_gap: int = Field(8, ge=0, le=120, description="Unused registers that are read along rather than asking twice.")
    max_registers: int = Field(125, ge=1, le=125, description="Registers per request.")
    pause_ms: float = Field(0, ge=0, le=10000, description="Rest between two requests on the line.")
    max_in_flight: int = Field(
        1, ge=1, le=16, description="Requests under way at once on the line; many devices bear only one. The first lost reply ends it."
    )
    groups: list[ModbusGroupSettings] = Field(min_length=1, description="What to read how often.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        wide = any(group.clock is not None or any(tag.type.words > 1 for tag in group.tags) for group in self.groups)
        if self.max_registers == 1 and wide:
            raise ValueError("max_registers 1 cannot read 32-bit values: use 2 or more, or 16-bit types")
        return self


class ModbusTargetSettings(_Settings):
    """A block of holding registers that takes predictions; its map is in connectors/modbus/README.md."""

    type: Literal["modbus"] = Field(description="Connector.")
    source: str = Field(description="Source whose line and unit it is written through.")
    address: Address
    order: Order = Field("ABCD", description="Byte order of its 32-bit fields.")

    @field_validator("address")
    @classmethod
    def _holding(cls, text: str) -> str:
        if parse_address(text)[0] is not Table.HOLDING:
            raise ValueError(f"address '{text}' cannot be written as a block: use 'holding N'")
        return text
