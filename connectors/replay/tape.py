"""Tapes: the intake of a predictor, item by item, in the order taken, bit-exact.

A file of length-prefixed msgpack frames: a header that numbers the tags and groups, then batches and watermarks.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from gateway.core.batch import Batch, Watermark
from gateway.core.errors import ConfigError
from gateway.core.tags import DataType, GroupMode, Tag, TagTable

_LENGTH = struct.Struct(">I")
_MAGIC = "lineside tape 1"
_COLUMNS = (
    ("tag", np.int32),
    ("value", np.float64),
    ("quality", np.uint16),
    ("source_time_ns", np.int64),
    ("wide_pos", np.int32),
    ("wide", np.uint64),
    ("text_pos", np.int32),
)


def header_frame(table: TagTable, model: str) -> bytes:
    """The first frame of a tape: all tags and groups by number, superseded ones included, and the model it was taken of."""
    groups = [table.group(i) for i in range(1 + max((table[n].group for n in range(len(table))), default=-1))]
    body = {
        "format": _MAGIC,
        "model": model,
        "groups": [[g.name, g.source, g.period_s, g.mode.value, g.domain, g.silence_limit_s] for g in groups],
        "tags": [_tag_row(table[n]) for n in range(len(table))],
    }
    return _framed(msgspec.msgpack.encode(body))


def _tag_row(tag: Tag) -> list[Any]:
    return [tag.name, tag.unit, tag.data_type.value, tag.group, tag.low, tag.high, tag.dead_band, tag.description]


def item_frame(item: Batch | Watermark) -> bytes:
    """One item as a frame."""
    if isinstance(item, Watermark):
        return _framed(msgspec.msgpack.encode([item.group, item.up_to_ns, item.alive]))
    scalars = [item.group, item.cycle, item.requested_mono_ns, item.received_mono_ns, item.received_wall_ns]
    columns = [np.ascontiguousarray(getattr(item, name)).tobytes() for name, _ in _COLUMNS]
    return _framed(msgspec.msgpack.encode([*scalars, *columns, list(item.text)]))


def _framed(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


class TapeReader:
    """Reads a tape.

    Args:
        path: The file.

    Raises:
        ConfigError: It is no tape.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.truncated = False
        try:
            with path.open("rb") as file:
                header = self._frame(file)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}", remedy="check the name") from error
        try:
            body = msgspec.msgpack.decode(header or b"")
            if body["format"] != _MAGIC:
                raise ValueError(body["format"])  # noqa: TRY301 - translated below with the others
            self.model: str = body["model"]
            self.table = _table(body)
        except (msgspec.DecodeError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path}: not a Lineside tape", remedy="make one with `lineside record`") from error

    def __iter__(self) -> Iterator[Batch | Watermark]:
        """The items. A tape that was cut off ends before the broken frame and is called `truncated`.

        Raises:
            ConfigError: An item is damaged.
        """
        with self.path.open("rb") as file:
            self._frame(file)
            number = 0
            while (body := self._frame(file)) is not None:
                number += 1
                try:
                    item = _item(msgspec.msgpack.decode(body))
                except (msgspec.DecodeError, ValueError, TypeError, IndexError) as error:
                    raise ConfigError(f"{self.path}: item {number} is damaged", remedy="make the tape again") from error
                yield item

    def _frame(self, file: BinaryIO) -> bytes | None:
        head = file.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            self.truncated |= bool(head)
            return None
        (length,) = _LENGTH.unpack(head)
        body = file.read(length)
        if len(body) < length:
            self.truncated = True
            return None
        return body


def _table(body: dict[str, Any]) -> TagTable:
    table = TagTable()
    for name, source, period_s, mode, domain, limit_s in body["groups"]:
        table.add_group(name, source, period_s, mode=GroupMode(mode), domain=domain, silence_limit_s=limit_s)
    for name, unit, data_type, group, low, high, dead_band, description in body["tags"]:
        table.add(Tag(name, unit, DataType(data_type), group, low, high, dead_band, description))
    return table


def _item(row: list[Any]) -> Batch | Watermark:
    if len(row) == 3:
        return Watermark(*row)
    columns: dict[str, Any] = {name: np.frombuffer(data, dtype) for data, (name, dtype) in zip(row[5:12], _COLUMNS, strict=True)}
    group, cycle, requested_ns, received_ns, received_wall_ns = row[:5]
    return Batch(group, cycle, requested_ns, received_ns, received_wall_ns, **columns, text=tuple(row[12]))
