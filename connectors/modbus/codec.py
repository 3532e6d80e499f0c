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
    WireType.BOOL: np.dtype(">u2"),
    WireType.INT16: np.dtype(">i2"),
    WireType.UINT16: np.dtype(">u2"),
    WireType.INT32: np.dtype(">i4"),
    WireType.UINT32: np.dtype(">u4"),
    WireType.FLOAT32: np.dtype(">f4"),
}
_FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Field:
    """One value in a block.

    Attributes:
        offset: Register (or bit) offset from the block's start.
        type: Wire type; a bool in a register is true when the register is not zero.
        order: Byte order: which of the bytes A (highest) to D comes first. 16-bit values know AB (ABCD, CDAB) and BA (BADC, DCBA).
        scale: `engineering = raw * scale + offset_value`.
        offset_value: See `scale`.
    """

    offset: int
    type: WireType
    order: Order = "ABCD"
    scale: float = 1.0
    offset_value: float = 0.0


class _Scaled:
    """Raw numbers to engineering values and back."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._scale = np.array([field.scale for field in fields])
        self._offset = np.array([field.offset_value for field in fields])
        self._plain = bool((self._scale == 1).all() and (self._offset == 0).all())

    def engineering(self, raw: Values) -> Values:
        return raw if self._plain else raw * self._scale + self._offset

    def raw(self, values: Sequence[float] | Values) -> Values:
        column = np.asarray(values, np.float64)
        return column if self._plain else (column - self._offset) / self._scale


@dataclass(frozen=True, slots=True)
class _Run:
    """All fields of one type: where they and their bytes stand when the fields are sorted by type."""

    type: WireType
    columns: slice
    place: slice


class Codec:
    """Decodes the data bytes of a register response into columns, and encodes columns into register bytes.

    A gather brings every field's bytes into big-endian order, type by type; then each type is one numpy view over all of its fields. A
    block that lies so already is viewed where it is.

    Args:
        fields: In the order of the columns.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self.fields = tuple(fields)
        self._scaled = _Scaled(self.fields)
        order = [i for kind in dict.fromkeys(field.type for field in self.fields) for i in self._of(kind)]
        gather: list[int] = []
        self._runs: list[_Run] = []
        for kind in dict.fromkeys(field.type for field in self.fields):
            columns, first = self._of(kind), len(gather)
            gather += [byte for i in columns for byte in _bytes_of(self.fields[i])]
            start = order.index(columns[0])
            self._runs.append(_Run(kind, slice(start, start + len(columns)), slice(first, len(gather))))
        self._by_type = np.array(order, np.intp)
        self._back = None if order == sorted(order) else np.argsort(self._by_type)
        self._gather = np.array(gather, np.intp)
        self._straight = _as_slice(gather)
        self._words = max((field.offset + field.type.words for field in self.fields), default=0)

    def decode(self, data: bytes | memoryview) -> Values:
        """Engineering values, `float64[fields]`; NaN stays NaN.

        Args:
            data: Register bytes of the whole block, as they come on the wire.
        """
        raw = np.frombuffer(data, np.uint8)
        ordered = raw[self._straight] if self._straight is not None else raw.take(self._gather)
        values = np.empty(len(self.fields))
        # A signalling NaN in the registers is a NaN like any other, not a warning.
        with np.errstate(invalid="ignore"):
            for run in self._runs:
                part = ordered[run.place].view(_DTYPES[run.type])
                values[run.columns] = part if run.type is not WireType.BOOL else part != 0
        return self._scaled.engineering(values if self._back is None else values.take(self._back))

    def _of(self, kind: WireType) -> list[int]:
        return [i for i, field in enumerate(self.fields) if field.type is kind]

    def encode(self, values: Sequence[float] | Values) -> bytes:
        """Register bytes from the block's start to its last field; registers of no field are zero.

        Raises:
            DataError: A value does not fit its type.
        """
        raw = self._scaled.raw(values)[self._by_type]
        ordered = np.empty(len(self._gather), np.uint8)
        for run in self._runs:
            ordered[run.place] = _fitted(raw[run.columns], run.type).astype(_DTYPES[run.type]).view(np.uint8)
        out = np.zeros(self._words * 2, np.uint8)
        out[self._gather] = ordered
        return out.tobytes()


class BitCodec:
    """Decodes the data bytes of a coil or discrete input response, and encodes them.

    Args:
        fields: In the order of the columns; offsets are bits.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self.fields = tuple(fields)
        self._scaled = _Scaled(self.fields)
        self._offsets = np.array([field.offset for field in self.fields], np.intp)

    def decode(self, data: bytes | memoryview) -> Values:
        """0.0 or 1.0 (before scale and offset), `float64[bits]`."""
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        return self._scaled.engineering(bits[self._offsets].astype(np.float64))

    def encode(self, values: Sequence[float] | Values) -> bytes:
        """Data bytes from the block's first bit to its last field.

        Raises:
            DataError: A value is neither 0 nor 1.
        """
        bits = np.zeros(int(self._offsets.max()) + 1, np.uint8)
        bits[self._offsets] = _fitted(self._scaled.raw(values), WireType.BOOL)
        return np.packbits(bits, bitorder="little").tobytes()


def _fitted(raw: Values, kind: WireType) -> Values:
    """The raw values as they will lie in the device.

    Raises:
        DataError: One does not fit.
    """
    if kind is WireType.FLOAT32:
        fits = ~np.isfinite(raw) | (np.abs(raw) <= _FLOAT32_MAX)
    else:
        raw = np.rint(raw)
        limits = np.iinfo(_DTYPES[kind])
        low, high = (0, 1) if kind is WireType.BOOL else (limits.min, limits.max)
        fits = (raw >= low) & (raw <= high)
    if not fits.all():
        raise DataError(f"{float(raw[~fits][0])} does not fit {kind}", remedy="check scale, offset and type of the address")
    return raw


def _as_slice(positions: Sequence[int]) -> slice | None:
    """Neighbouring ascending positions as a slice, None if they are not."""
    if positions and list(positions) == list(range(positions[0], positions[0] + len(positions))):
        return slice(positions[0], positions[0] + len(positions))
    return None


def _bytes_of(field: Field) -> list[int]:
    """Positions of a field's bytes on the wire, the most significant first."""
    first = field.offset * 2
    letters = field.order if field.type.words == 2 else ("AB" if field.order in ("ABCD", "CDAB") else "BA")
    return [first + letters.index(letter) for letter in sorted(letters)]
