"""History in packed column blocks: some seconds of one group each, addressed by durable tag ids and time."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import structlog

from gateway.core.batch import Batch, Watermark
from gateway.core.clock import NS_PER_S, Clock
from gateway.core.errors import TransientError
from gateway.core.prediction import Prediction
from gateway.core.protocols import Flowing
from gateway.core.tags import TagTable
from gateway.store.database import Database

log = structlog.get_logger(__name__)

_COLUMNS = (("tag", np.int32), ("value", np.float64), ("quality", np.uint16), ("source_time_ns", np.int64))
_PREDICTION_LIMIT = 10_000
_PRUNE_CHUNK = 50
_OPEN_LIMIT = 1_000_000  # samples, and 20 more for each item, that wait in memory for a disk that refuses them
_ITEM_WEIGHT = 20


@dataclass(slots=True)
class _Open:
    """The block of one group that is being filled."""

    started_wall_ns: int
    items: list[Batch | Watermark] = field(default_factory=list)
    samples: int = 0


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One sample, for queries."""

    tag: str
    source_time_ns: int
    value: float | None
    quality: int


class History:
    """Takes batches, watermarks and predictions, and gives them back.

    Args:
        database: Where they are kept.
        table: The process's tags.
        clock: For block length and retention.
        block_s: Seconds per block; what an unclean end of the process can lose.
        retention_h: Age beyond which blocks go.
        max_mb: Size beyond which the oldest go.
    """

    def __init__(
        self,
        database: Database,
        table: TagTable,
        clock: Clock,
        *,
        block_s: float = 10.0,
        retention_h: float = 168.0,
        max_mb: float = 512.0,
    ) -> None:
        self._database = database
        self._table = table
        self._clock = clock
        self._block_ns = round(block_s * NS_PER_S)
        self._retention_ns = round(retention_h * 3600 * NS_PER_S)
        self._max_bytes = max_mb * 1e6
        self.exact: frozenset[int] = frozenset()
        self._open: dict[str, _Open] = {}
        self._predictions: list[Prediction] = []
        self._ids: dict[int, int] = {}
        self._band = np.empty(0)
        self._last_value = np.empty(0)
        self._last_quality = np.empty(0, np.uint16)
        self.lost_predictions = self.lost_samples = 0

    def keep_exact(self, tags: Iterable[int]) -> None:
        """From now on, these tags are stored without dead band."""
        self.exact = frozenset(tags)
        self._band, self._last_value, self._last_quality = np.empty(0), np.empty(0), np.empty(0, np.uint16)

    async def take(self, items: Sequence[Flowing]) -> None:
        """Stage handler.

        Raises:
            TransientError: The disk refuses; what is open is kept and tried again with the next items.
        """
        now_ns = self._clock.wall_ns()
        for item in items:
            if isinstance(item, Prediction):
                self._predictions.append(item)
                continue
            block = self._open.setdefault(self._table.group(item.group).name, _Open(now_ns))
            block.items.append(self._thinned(item) if isinstance(item, Batch) else item)
            block.samples += len(item) if isinstance(item, Batch) else 0
        if len(self._predictions) > _PREDICTION_LIMIT:
            self.lost_predictions += len(self._predictions) - _PREDICTION_LIMIT
            del self._predictions[:-_PREDICTION_LIMIT]
        due = [name for name, block in self._open.items() if not 0 <= now_ns - block.started_wall_ns < self._block_ns]
        if due:
            try:
                await self.flush(due)
            except TransientError:
                self._shed()
                raise

    def _shed(self) -> None:
        """A disk that stays full must not fill the memory: beyond the limit the older half of what is open goes, and is counted."""
        if sum(block.samples + _ITEM_WEIGHT * len(block.items) for block in self._open.values()) <= _OPEN_LIMIT:
            return
        for block in self._open.values():
            gone = block.items[: len(block.items) // 2]
            del block.items[: len(gone)]
            lost = sum(len(item) for item in gone if isinstance(item, Batch))
            block.samples -= lost
            self.lost_samples += lost
        log.warning("history.lost", samples=self.lost_samples)

    def _thinned(self, batch: Batch) -> Batch:
        """The batch without samples that moved by less than their tag's dead band and kept their quality."""
        if len(self._table) > len(self._band):
            self._grow()
        tag = batch.tag
        band = self._band[tag]
        if not band.any():
            return batch
        with np.errstate(invalid="ignore"):
            still = (np.abs(batch.value - self._last_value[tag]) < band) & (batch.quality == self._last_quality[tag])
        if not still.any():
            self._last_value[tag], self._last_quality[tag] = batch.value, batch.quality
            return batch
        kept = np.flatnonzero(~still)
        self._last_value[tag[kept]], self._last_quality[tag[kept]] = batch.value[kept], batch.quality[kept]
        return batch.take(kept)

    def _grow(self) -> None:
        bands = [0.0 if n in self.exact else self._table[n].dead_band for n in range(len(self._band), len(self._table))]
        self._band = np.append(self._band, bands)
        self._last_value = np.append(self._last_value, np.full(len(bands), np.nan))
        self._last_quality = np.append(self._last_quality, np.zeros(len(bands), np.uint16))

    async def flush(self, names: Sequence[str] | None = None) -> None:
        """Write open blocks and predictions (all of them if no names are given), then prune.

        Raises:
            TransientError: The disk refuses; nothing was taken out of memory.
        """
        chosen = {name: self._open[name] for name in (self._open if names is None else names) if self._open[name].items}
        predictions = list(self._predictions)
        now_ns = self._clock.wall_ns()
        done: list[dict[int, int]] = []

        def write(connection: sqlite3.Connection) -> None:
            known = dict(self._ids)
            for name, block in chosen.items():
                self._write_block(connection, name, block, now_ns, known)
            connection.executemany(
                "INSERT INTO predictions (model, asset, sequence, end_ns, made_wall_ns, outcome, quality, backend, digest, trace, outputs)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [_prediction_row(prediction) for prediction in predictions],
            )
            self._prune(connection, now_ns)
            done.append(known)

        try:
            await self._database.run(write)
        except TransientError:
            done.clear()
            raise
        finally:
            # Also when cancelled meanwhile: what is written must not be written again.
            if done:
                self._ids = done[0]
                for name in chosen:
                    del self._open[name]
                del self._predictions[: len(predictions)]

    def _write_block(self, connection: sqlite3.Connection, name: str, block: _Open, now_ns: int, known: dict[int, int]) -> None:
        batches = [item for item in block.items if isinstance(item, Batch)]
        for number in {int(tag) for batch in batches for tag in np.unique(batch.tag)}:
            if number not in known:
                tag_name = self._table[number].name
                connection.execute("INSERT OR IGNORE INTO tags (name) VALUES (?)", (tag_name,))
                known[number] = connection.execute("SELECT id FROM tags WHERE name = ?", (tag_name,)).fetchone()[0]
        marks = [item.up_to_ns for item in block.items if isinstance(item, Watermark)]
        times = [int(t) for batch in batches if len(batch) for t in (batch.source_time_ns.min(), batch.source_time_ns.max())]
        if not times and not marks:
            return
        connection.execute(
            "INSERT INTO blocks (group_name, first_ns, last_ns, stored_wall_ns, samples, data) VALUES (?, ?, ?, ?, ?, ?)",
            (name, min(times + marks), max(times + marks), now_ns, block.samples, _pack(block.items, known)),
        )

    def _prune(self, connection: sqlite3.Connection, now_ns: int) -> None:
        """Old blocks, a few at a time so that no transaction takes long."""
        old_ns = now_ns - self._retention_ns
        old = "SELECT id FROM blocks WHERE stored_wall_ns < ? ORDER BY id LIMIT ?"
        connection.execute(f"DELETE FROM blocks WHERE id IN ({old})", (old_ns, _PRUNE_CHUNK))  # noqa: S608 - a constant
        connection.execute("DELETE FROM predictions WHERE id IN (SELECT id FROM predictions WHERE made_wall_ns < ? LIMIT 5000)", (old_ns,))
        connection.execute("DELETE FROM journal WHERE id IN (SELECT id FROM journal WHERE wall_ns < ? LIMIT 5000)", (old_ns,))
        (pages,), (free,), (size,) = (
            connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
        )
        if (pages - free) * size > self._max_bytes:
            connection.execute("DELETE FROM blocks WHERE id IN (SELECT id FROM blocks ORDER BY id LIMIT ?)", (_PRUNE_CHUNK,))

    async def recent(self, groups: Sequence[str], length_s: float) -> list[Batch | Watermark]:
        """What the groups brought in the last `length_s` of their own time, the open blocks included, in order of arrival per group.

        Tags that the process no longer has are left out.

        Raises:
            TransientError: The store cannot be read.
        """
        length_ns = round(length_s * NS_PER_S)

        def read(connection: sqlite3.Connection) -> tuple[list[tuple[str, bytes]], dict[int, str]]:
            rows: list[tuple[str, bytes]] = []
            for group in groups:
                cursor = connection.execute("SELECT last_ns, data FROM blocks WHERE group_name = ? ORDER BY id DESC", (group,))
                part: list[bytes] = []
                newest: int | None = None
                for last_ns, data in cursor:
                    newest = last_ns if newest is None else newest
                    if abs(newest - last_ns) > length_ns:
                        break
                    part.append(data)
                rows.extend((group, data) for data in reversed(part))
            return rows, dict(_tag_names(connection))

        items: list[Batch | Watermark] = []
        rows, names = await self._database.run(read)
        for group, data in rows:
            items.extend(self._unpacked(group, data, names))
        for group in groups:
            items.extend(self._open[group].items if group in self._open else ())
        return items

    def _unpacked(self, group: str, data: bytes, names: dict[int, str]) -> Iterator[Batch | Watermark]:
        current = {known.name: known.id for known in self._table.groups()}
        if group not in current:
            return
        for kind, *row in msgspec.msgpack.decode(data):
            if kind == 0:
                yield Watermark(current[group], *row)
                continue
            batch = _batch(current[group], row)
            numbers = np.array([self._number(names.get(int(i), "")) for i in batch.tag], np.int32)
            known = np.flatnonzero(numbers >= 0)
            batch = batch.take(known)
            yield Batch(
                *(batch.group, batch.cycle, batch.requested_mono_ns, batch.received_mono_ns, batch.received_wall_ns),
                tag=numbers[known],
                value=batch.value,
                quality=batch.quality,
                source_time_ns=batch.source_time_ns,
                wide_pos=batch.wide_pos,
                wide=batch.wide,
                text_pos=batch.text_pos,
                text=batch.text,
            )

    def _number(self, name: str) -> int:
        return self._table.number(name) if name in self._table else -1

    async def rows(self, tag: str, since_ns: int, until_ns: int, limit: int = 10_000) -> list[HistoryRow]:
        """Samples of a tag by source time, the newest `limit` of them.

        Raises:
            TransientError: The store cannot be read.
        """
        if tag not in self._table:
            return []
        number = self._table.number(tag)
        group = self._table.group(self._table[number].group).name

        def read(connection: sqlite3.Connection) -> tuple[list[bytes], dict[int, str]]:
            cursor = connection.execute(
                "SELECT data FROM blocks WHERE group_name = ? AND last_ns >= ? AND first_ns <= ? ORDER BY id", (group, since_ns, until_ns)
            )
            return [row[0] for row in cursor], dict(_tag_names(connection))

        blocks, names = await self._database.run(read)
        items = [item for data in blocks for item in self._unpacked(group, data, names)]
        items.extend(self._open[group].items if group in self._open else ())
        found = [row for item in items if isinstance(item, Batch) for row in _rows_of(item, number, tag)]
        return [row for row in found if since_ns <= row.source_time_ns <= until_ns][-limit:]

    async def predictions(self, model: str, asset: str, limit: int = 1000) -> list[dict[str, Any]]:
        """The newest stored predictions of an asset, newest first.

        Raises:
            TransientError: The store cannot be read.
        """
        fields = "sequence, end_ns, made_wall_ns, outcome, quality, backend, digest, trace, outputs"
        query = f"SELECT {fields} FROM predictions WHERE model = ? AND asset = ? ORDER BY id DESC LIMIT ?"  # noqa: S608 - a constant

        def read(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return connection.execute(query, (model, asset, limit)).fetchall()

        names = fields.split(", ")
        found = [dict(zip(names, row, strict=True)) for row in await self._database.run(read)]
        for row in found:
            row["trace"] = json.loads(row["trace"])
            row["outputs"] = np.frombuffer(row["outputs"], np.float64).tolist()
        return found

    async def close(self) -> None:
        """Write what is open."""
        try:
            await self.flush()
        except TransientError:
            self.lost_predictions += len(self._predictions)


def _tag_names(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    return connection.execute("SELECT id, name FROM tags").fetchall()


def _prediction_row(p: Prediction) -> tuple[Any, ...]:
    trace = json.dumps(asdict(p.trace))
    head = (p.model, p.asset, p.sequence, p.end_ns, p.made_wall_ns, p.outcome.value, p.quality, p.backend, p.digest)
    return (*head, trace, p.outputs.tobytes())


def _pack(items: Sequence[Batch | Watermark], ids: dict[int, int]) -> bytes:
    rows: list[list[Any]] = []
    for item in items:
        if isinstance(item, Watermark):
            rows.append([0, item.up_to_ns, item.alive])
            continue
        durable = np.array([ids[int(tag)] for tag in item.tag], np.int32)
        columns = [durable, item.value, item.quality, item.source_time_ns, item.wide_pos, item.wide, item.text_pos]
        rows.append(
            [1, item.cycle, item.received_wall_ns, *(np.ascontiguousarray(column).tobytes() for column in columns), list(item.text)]
        )
    return msgspec.msgpack.encode(rows)


def _batch(group: int, row: list[Any]) -> Batch:
    columns = [np.frombuffer(data, dtype) for data, (_, dtype) in zip(row[2:6], _COLUMNS, strict=True)]
    wide_pos, wide, text_pos = np.frombuffer(row[6], np.int32), np.frombuffer(row[7], np.uint64), np.frombuffer(row[8], np.int32)
    tag, value, quality, time_ns = columns
    # Monotonic instants of an earlier run mean nothing now.
    return Batch(group, row[0], 0, 0, row[1], tag, value, quality, time_ns, wide_pos, wide, text_pos, tuple(row[9]))


def _rows_of(batch: Batch, number: int, tag: str) -> Iterator[HistoryRow]:
    for i in np.flatnonzero(batch.tag == number):
        value: npt.NDArray[np.float64] = batch.value
        number_value = float(value[i])
        yield HistoryRow(tag, int(batch.source_time_ns[i]), number_value if np.isfinite(number_value) else None, int(batch.quality[i]))
