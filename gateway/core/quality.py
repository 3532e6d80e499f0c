"""Quality of a value: one `uint16`, a code in the low byte and flags in the high byte.

The code's two top bits are its level (0 good, 1 uncertain, 2 bad), so that levels of whole columns are one shift. Codes are ordered from
best to worst: combining two qualities takes the larger code and keeps the flags of both.
"""

from enum import IntEnum, IntFlag

import numpy as np
import numpy.typing as npt

QualityColumn = npt.NDArray[np.uint16]

_CODE_MASK = 0x00FF
_FLAG_MASK = 0xFF00
_LEVEL_SHIFT = 6


class Level(IntEnum):
    """How far a value may be trusted."""

    GOOD = 0
    UNCERTAIN = 1
    BAD = 2


class Code(IntEnum):
    """Why a value is as good as it is, best first."""

    GOOD = 0
    UNCERTAIN = 64
    UNCERTAIN_SUBSTITUTED = 65
    UNCERTAIN_COVERAGE = 66
    UNCERTAIN_STALE = 67
    UNCERTAIN_OUT_OF_RANGE = 68
    UNCERTAIN_CLOCK = 69
    BAD = 128
    BAD_HELD = 129
    BAD_WAITING = 130
    BAD_DISABLED = 131
    BAD_COVERAGE = 132
    BAD_OUT_OF_RANGE = 133
    BAD_NOT_A_NUMBER = 134
    BAD_CLOCK = 135
    BAD_STALE = 136
    BAD_DEVICE = 137
    BAD_CONFIGURATION = 138
    BAD_NO_BACKEND = 139
    BAD_COMM_LOST = 140


class Flag(IntFlag):
    """What else is known of the value."""

    NONE = 0
    SIMULATED = 0x0100
    SUBSTITUTED = 0x0200
    LIMITED_LOW = 0x0400
    LIMITED_HIGH = 0x0800


class Ne107(IntEnum):
    """NAMUR NE 107 status words, best first."""

    GOOD = 0
    MAINTENANCE_REQUIRED = 1
    OUT_OF_SPECIFICATION = 2
    FUNCTION_CHECK = 3
    FAILURE = 4


_WORDS = {
    Code.GOOD: "good",
    Code.UNCERTAIN: "uncertain",
    Code.UNCERTAIN_SUBSTITUTED: "uncertain, substituted",
    Code.UNCERTAIN_COVERAGE: "uncertain, window has gaps",
    Code.UNCERTAIN_STALE: "uncertain, old value",
    Code.UNCERTAIN_OUT_OF_RANGE: "uncertain, outside its range",
    Code.UNCERTAIN_CLOCK: "uncertain, time not trusted",
    Code.BAD: "bad",
    Code.BAD_HELD: "bad, held by command",
    Code.BAD_WAITING: "bad, no value yet",
    Code.BAD_DISABLED: "bad, machine not running",
    Code.BAD_COVERAGE: "bad, too few samples",
    Code.BAD_OUT_OF_RANGE: "bad, impossible value",
    Code.BAD_NOT_A_NUMBER: "bad, not a number",
    Code.BAD_CLOCK: "bad, time not trusted",
    Code.BAD_STALE: "bad, old value",
    Code.BAD_DEVICE: "bad, device reports a fault",
    Code.BAD_CONFIGURATION: "bad, address refused",
    Code.BAD_NO_BACKEND: "bad, no inference back end",
    Code.BAD_COMM_LOST: "bad, connection lost",
}


def level(quality: int) -> Level:
    """Level of one quality."""
    return Level(min((quality & _CODE_MASK) >> _LEVEL_SHIFT, Level.BAD))


def code(quality: int) -> int:
    """Code of one quality, without its flags; a reason of a later version stays a number."""
    return quality & _CODE_MASK


def levels(quality: QualityColumn) -> npt.NDArray[np.uint8]:
    """Levels of a column: `uint8[n]`, 0 good, 1 uncertain, 2 bad."""
    result: npt.NDArray[np.uint8] = np.minimum((quality & _CODE_MASK) >> _LEVEL_SHIFT, Level.BAD).astype(np.uint8)
    return result


def combine(*qualities: int) -> int:
    """Worst code of all and the flags of all; `GOOD` for none."""
    worst, flags = 0, 0
    for quality in qualities:
        worst = max(worst, quality & _CODE_MASK)
        flags |= quality & _FLAG_MASK
    return worst | flags


def combine_columns(left: QualityColumn, right: QualityColumn) -> QualityColumn:
    """`combine` row by row: `uint16[n]`."""
    flags = (left | right) & _FLAG_MASK
    result: QualityColumn = (np.maximum(left & _CODE_MASK, right & _CODE_MASK) | flags).astype(np.uint16)
    return result


def describe(quality: int) -> str:
    """The operator's words for a quality."""
    value = quality & _CODE_MASK
    text = _WORDS[Code(value)] if value in _WORDS else level(quality).name.lower()
    names = [flag.name.lower().replace("_", " ") for flag in Flag if flag and quality & flag and flag.name]
    return f"{text} ({', '.join(names)})" if names else text


def ne107(quality: int) -> Ne107:
    """The NAMUR NE 107 word a quality stands for."""
    if quality & Flag.SIMULATED or code(quality) in (Code.BAD_HELD, Code.BAD_DISABLED):
        return Ne107.FUNCTION_CHECK
    return (Ne107.GOOD, Ne107.OUT_OF_SPECIFICATION, Ne107.FAILURE)[level(quality)]


def from_ne107(word: Ne107) -> int:
    """The quality that a device's NE 107 word means (after OPC 30142: F and C are bad, S is uncertain)."""
    return (Code.GOOD, Code.GOOD, Code.UNCERTAIN, Code.BAD, Code.BAD_DEVICE)[word]
