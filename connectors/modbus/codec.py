"""Registers to columns and back: one compiled codec per block, the same for both ways."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from connectors.modbus.settings import Order, WireType
from gateway.core.errors import DataError

Values = npt.NDArray[np.float64]

_DTYPES: dict[WireType, np.dtype[Any]] = {
    WireType.INT16: np.dtype(">i2"),
    WireType.UINT16: np.dtype(">u2"),
    WireType.INT32: np.dtype(">i4"),
    WireType.UINT32: np.dtype(">u4"),
    WireType.FLOAT32: np.dtype(">f4"),
}


@dataclass(frozen=True, slots=True)
class Field:
    """One value in a block.

    Attributes:
        offset: Register (or bit) offset from the block's start.
        type: Wire type.
        order: Byte order: which of the bytes A (highest) to D comes first. 16-bit values know AB (ABCD, CDAB) and BA (BADC, DCBA).
        scale: `engineering = raw * scale + offset_value`.
        offset_value: See `scale`.
    """

    offset: int
    type: WireType
    order: Order = "ABCD"
    scale: float = 1.0
    offset_value: float = 0.0


class Codec:
    """Decodes the data bytes of a register response into columns, and encodes columns into register bytes.

    A gather brings every field's bytes into big-endian order, then each type is one numpy view over all of its fields.

    Args:
        fields: In the order of the columns.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self.fields = tuple(fields)
        self._gather = np.array([i for field in fields for i in _bytes_of(field)], np.intp)
        straight = len(self._gather) > 0 and bool(np.array_equal(self._gather, np.arange(len(self._gather)) + self._gather[0]))
        self._first = int(self._gather[0]) if straight else -1
        self._runs: list[tuple[slice, slice, np.dtype[Any]]] = []
        start = byte = 0
        while start < len(fields):
            stop = start
            while stop < len(fields) and fields[stop].type is fields[start].type:
                stop += 1
            size = _size(fields[start].type) * (stop - start)
            self._runs.append((slice(start, stop), slice(byte, byte + size), _DTYPES[fields[start].type]))
            start, byte = stop, byte + size
        self._scale = np.array([field.scale for field in fields])
        self._offset = np.array([field.offset_value for field in fields])
        self._plain = bool((self._scale == 1).all() and (self._offset == 0).all())

    def decode(self, data: bytes | memoryview) -> Values:
        """Engineering values, `float64[fields]`; NaN stays NaN.

        Args:
            data: Register bytes of the whole block, as they come on the wire.
        """
        raw = np.frombuffer(data, np.uint8)
        ordered = raw[self._first : self._first + len(self._gather)] if self._first >= 0 else raw[self._gather]
        values = np.empty(len(self.fields))
        for columns, place, dtype in self._runs:
            values[columns] = ordered[place].view(dtype)
        return values if self._plain else values * self._scale + self._offset

    def encode(self, values: Sequence[float] | Values) -> bytes:
        """Register bytes from the block's start to its last field; registers of no field are zero.

        Raises:
            DataError: A value does not fit its type.
        """
        raw = (np.asarray(values, np.float64) - self._offset) / self._scale
        ordered = np.empty(len(self._gather), np.uint8)
        for columns, place, dtype in self._runs:
            part = raw[columns]
            if dtype.kind != "f":
                limits = np.iinfo(np.dtype(dtype.str))
                part = np.rint(part)
                bad = ~((part >= limits.min) & (part <= limits.max))
                if bad.any():
                    raise DataError(
                        f"{float(part[bad][0])} does not fit {dtype.name}", remedy="check scale, offset and type of the address"
                    )
            else:
                bad = np.isfinite(part) & (np.abs(part) > np.finfo(np.float32).max)
                if bad.any():
                    raise DataError(f"{float(part[bad][0])} does not fit float32", remedy="check scale, offset and type of the address")
            ordered[place] = part.astype(dtype).view(np.uint8)
        last = max(field.offset + field.type.words for field in self.fields)
        out = np.zeros(last * 2, np.uint8)
        out[self._gather] = ordered
        return out.tobytes()


class BitCodec:
    """Decodes the data bytes of a coil or discrete input response.

    Args:
        offsets: Bit offsets from the block's start, in the order of the columns.
    """

    def __init__(self, offsets: Sequence[int]) -> None:
        self._offsets = np.array(offsets, np.intp)

    def decode(self, data: bytes | memoryview) -> Values:
        """0.0 or 1.0, `float64[bits]`."""
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        values: Values = bits[self._offsets].astype(np.float64)
        return values


def _size(kind: WireType) -> int:
    return kind.words * 2


def _bytes_of(field: Field) -> list[int]:
    """Positions of a field's bytes on the wire, the most significant first."""
    first = field.offset * 2
    letters = field.order if field.type.words == 2 else ("AB" if field.order in ("ABCD", "CDAB") else "BA")
    return [first + letters.index(letter) for letter in sorted(letters)]
