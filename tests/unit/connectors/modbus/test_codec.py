"""One codec for both ways."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.modbus.codec import BitCodec, Codec, Field
from connectors.modbus.settings import Order, WireType
from gateway.core.errors import DataError

ORDERS: tuple[Order, ...] = ("ABCD", "CDAB", "BADC", "DCBA")
_RANGES = {
    WireType.BOOL: (0, 1),
    WireType.INT16: (-(2**15), 2**15 - 1),
    WireType.UINT16: (0, 2**16 - 1),
    WireType.INT32: (-(2**31), 2**31 - 1),
    WireType.UINT32: (0, 2**32 - 1),
}


@st.composite
def blocks(draw: st.DrawFn) -> tuple[list[Field], list[float]]:
    """Fields without overlap, with gaps, in any order, and a raw value for each."""
    fields, values, offset = [], [], 0
    for _ in range(draw(st.integers(1, 20))):
        offset += draw(st.integers(0, 3))
        kind = draw(st.sampled_from(WireType))
        fields.append(Field(offset, kind, draw(st.sampled_from(ORDERS))))
        if kind is WireType.FLOAT32:
            values.append(draw(st.floats(width=32)))
        else:
            values.append(float(draw(st.integers(*_RANGES[kind]))))
        offset += kind.words
    order = draw(st.permutations(range(len(fields))))
    return [fields[i] for i in order], [values[i] for i in order]


@given(blocks())
def test_what_is_encoded_is_decoded_to_the_same_values(block: tuple[list[Field], list[float]]) -> None:
    fields, values = block
    codec = Codec(fields)
    np.testing.assert_array_equal(codec.decode(codec.encode(values)), np.array(values))


@given(blocks(), st.binary(min_size=200, max_size=200))
def test_what_is_decoded_is_encoded_to_the_same_registers(block: tuple[list[Field], list[float]], data: bytes) -> None:
    fields = [field for field in block[0] if field.type is not WireType.BOOL]
    if not fields:
        return
    codec = Codec(fields)
    values = codec.decode(data)
    if np.isnan(values).any():
        return  # the bits of a NaN carry no value
    encoded = codec.encode(values)
    for field in fields:
        place = slice(field.offset * 2, (field.offset + field.type.words) * 2)
        assert encoded[place] == data[place]


@given(blocks(), st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
def test_scale_and_offset_are_undone_by_encoding(block: tuple[list[Field], list[float]], scale: float, offset: float) -> None:
    fields = [Field(f.offset, f.type, f.order, scale, offset) for f in block[0] if f.type not in (WireType.FLOAT32, WireType.BOOL)]
    raw = [v for f, v in zip(*block, strict=True) if f.type not in (WireType.FLOAT32, WireType.BOOL)]
    if not fields:
        return
    codec = Codec(fields)
    values = codec.decode(Codec([Field(f.offset, f.type, f.order) for f in fields]).encode(raw))
    np.testing.assert_allclose(values, np.array(raw) * scale + offset)
    assert codec.encode(values) == codec.encode(np.array(raw) * scale + offset)


@pytest.mark.parametrize(("order", "wire"), [("ABCD", "41480000"), ("CDAB", "00004148"), ("BADC", "48410000"), ("DCBA", "00004841")])
def test_each_byte_order_puts_twelve_and_a_half_where_the_letters_say(order: Order, wire: str) -> None:
    codec = Codec([Field(0, WireType.FLOAT32, order)])
    assert codec.encode([12.5]).hex() == wire
    assert codec.decode(bytes.fromhex(wire))[0] == 12.5


@pytest.mark.parametrize(("order", "wire"), [("ABCD", "fffe"), ("CDAB", "fffe"), ("BADC", "feff"), ("DCBA", "feff")])
def test_a_swapped_order_swaps_the_bytes_of_a_single_register_too(order: Order, wire: str) -> None:
    assert Codec([Field(0, WireType.INT16, order)]).encode([-2]).hex() == wire


def test_a_bool_in_a_register_is_true_when_the_register_is_not_zero() -> None:
    codec = Codec([Field(0, WireType.BOOL), Field(1, WireType.BOOL)])
    assert codec.decode(struct.pack(">HH", 7, 0)).tolist() == [1.0, 0.0]
    assert codec.encode([1, 0]) == struct.pack(">HH", 1, 0)


def test_nan_and_infinity_pass_through_a_float() -> None:
    codec = Codec([Field(0, WireType.FLOAT32), Field(2, WireType.FLOAT32)])
    values = codec.decode(codec.encode([math.nan, math.inf]))
    assert math.isnan(values[0])
    assert values[1] == math.inf


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (WireType.UINT16, -1),
        (WireType.UINT16, 65536),
        (WireType.INT16, 32768),
        (WireType.UINT32, 2**32),
        (WireType.INT32, -(2**31) - 1),
        (WireType.FLOAT32, 1e39),
        (WireType.BOOL, 2),
        (WireType.UINT16, math.nan),
        (WireType.INT32, math.inf),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_never_wrapped(kind: WireType, value: float) -> None:
    with pytest.raises(DataError, match="does not fit"):
        Codec([Field(0, kind)]).encode([value])


@given(st.lists(st.booleans(), min_size=1, max_size=100))
def test_bits_are_decoded_to_what_was_encoded(bits: list[bool]) -> None:
    codec = BitCodec([Field(i, WireType.BOOL) for i in range(len(bits))])
    assert codec.decode(codec.encode(np.array(bits, np.float64))).tolist() == [float(bit) for bit in bits]


def test_a_bit_may_be_inverted_by_scale_and_offset() -> None:
    codec = BitCodec([Field(1, WireType.BOOL, scale=-1, offset_value=1)])
    assert codec.decode(b"\x02").tolist() == [0.0]
    assert codec.encode([0.0]) == b"\x02"


def test_a_signalling_nan_in_the_registers_is_a_nan_and_no_warning() -> None:
    codec = Codec([Field(0, WireType.FLOAT32)])

    assert np.isnan(codec.decode(bytes.fromhex("7f800001"))).all()
