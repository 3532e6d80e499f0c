"""A CSV file as columns: times, names and values, whatever its dialect."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gateway.core.batch import Batch, Watermark
from gateway.core.clock import NS_PER_MS, NS_PER_S
from gateway.core.errors import ConfigError
from gateway.core.quality import Code
from gateway.core.tags import TagTable

_MAX_COMPLAINTS = 20


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Rows of a CSV file.

    Attributes:
        path: Where it came from.
        names: Value columns, in the file's order.
        time_ns: Ascending, `int64[rows]`.
        values: `float64[rows, columns]`; NaN for an empty cell.
        dropped: Rows left out because their time repeats or goes back.
    """

    path: Path
    names: tuple[str, ...]
    time_ns: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    dropped: int

    @property
    def period_s(self) -> float:
        """The commonest distance between two rows."""
        if len(self.time_ns) < 2:
            return 1.0
        distances, counts = np.unique(np.diff(self.time_ns), return_counts=True)
        return float(distances[counts.argmax()]) / NS_PER_S

    def only(self, columns: Sequence[str]) -> "Recording":
        """The recording with these columns alone, in this order.

        Raises:
            ConfigError: It has no such column.
        """
        missing = [name for name in columns if name not in self.names]
        if missing:
            raise ConfigError(f"{self.path}:1: no column '{missing[0]}'", remedy=f"the file has: {', '.join(self.names)}")
        places = [self.names.index(name) for name in columns]
        return Recording(self.path, tuple(columns), self.time_ns, self.values[:, places], self.dropped)


def read_recording(path: Path, time_column: str | None = None) -> Recording:
    """Read a CSV file (`.gz` too); delimiter, byte order mark, line ends and the format of the times are found out.

    Args:
        path: The file.
        time_column: Name of the time column; the first column if None.

    Raises:
        ConfigError: It cannot be read, has no rows, or cells that are no numbers; each named by line.
    """
    header, body, delimiter = _open(path)
    names = [name.strip() for name in header]
    if time_column is not None and time_column not in names:
        raise ConfigError(f"{path}:1: no column '{time_column}'", remedy=f"the file has: {', '.join(names)}")
    at = names.index(time_column) if time_column is not None else 0
    others = [i for i in range(len(names)) if i != at]
    times: list[int] = []
    rows: list[list[float]] = []
    complaints: list[str] = []
    dropped = 0
    for line, cells in _rows(path, body, delimiter):
        if not any(cell.strip() for cell in cells):
            continue
        try:
            time_ns = parse_time(cells[at])
            row = [_number(cells[i] if i < len(cells) else "") for i in others]
        except (ValueError, IndexError) as error:
            complaints.append(f"{path}:{line}: {error}")
            continue
        if times and time_ns <= times[-1]:
            dropped += 1
            continue
        times.append(time_ns)
        rows.append(row)
    if complaints:
        shown = complaints[:_MAX_COMPLAINTS]
        more = f"\n... and {len(complaints) - len(shown)} more" if len(complaints) > len(shown) else ""
        raise ConfigError("\n".join(shown) + more, remedy="correct or remove these lines")
    if not rows:
        raise ConfigError(f"{path}: no rows", remedy="give a CSV file with a header, a time column and at least one row")
    return Recording(path, tuple(names[i] for i in others), np.array(times, np.int64), np.array(rows, np.float64), dropped)


def _rows(path: Path, body: Iterator[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Each row with the line it begins on.

    Raises:
        ConfigError: A cell does not end.
    """
    reader = csv.reader(body, delimiter=delimiter)
    line = 2
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 2
    except csv.Error as error:
        raise ConfigError(f"{path}:{line}: {error}", remedy="look for a quotation mark that is not closed") from error


def _open(path: Path) -> tuple[list[str], Iterator[str], str]:
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = raw.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file", remedy="check the name") from error
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", remedy="check the file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8", remedy="save the file as UTF-8") from error
    lines = io.StringIO(text, newline=None)
    first = lines.readline()
    if not first.strip():
        raise ConfigError(f"{path}: empty", remedy="give a CSV file with a header")
    delimiter = max(";\t,", key=first.count)
    return next(csv.reader([first], delimiter=delimiter)), iter(lines), delimiter


def _number(cell: str) -> float:
    text = cell.strip()
    if not text or text.lower() in ("nan", "null", "na", "none"):
        return float("nan")
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"'{text}' is no number") from None


def parse_time(text: str) -> int:
    """Nanoseconds since 1970 of ISO 8601 (without a zone: UTC), unix seconds, or unix milliseconds.

    Raises:
        ValueError: It is none of these.
    """
    text = text.strip()
    try:
        number = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"'{text}' is no time: use ISO 8601 or unix seconds") from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        whole = int(moment.replace(microsecond=0).timestamp())
        return whole * NS_PER_S + moment.microsecond * 1000
    if not np.isfinite(number):
        raise ValueError(f"'{text}' is no time: use ISO 8601 or unix seconds")
    # Milliseconds since 1970 are beyond the year 5138 if read as seconds.
    scale = NS_PER_MS if abs(number) > 1e11 else NS_PER_S
    return round(number * 1000) * (scale // 1000) if scale == NS_PER_S else round(number) * scale


def feed(recording: Recording, tags: Sequence[tuple[str, str]], table: TagTable) -> Iterator[Batch | Watermark]:
    """A recording as a source would give it: one batch per row, one watermark behind it.

    Args:
        recording: The rows.
        tags: `(column, tag name)` of those to give; all tags are of one group.
        table: Numbers the tags.
    """
    columns = [recording.names.index(column) for column, _ in tags]
    numbers = np.array(table.numbers(name for _, name in tags), np.int32)
    group = table[int(numbers[0])].group
    for cycle, time_ns in enumerate(recording.time_ns.tolist()):
        values = recording.values[cycle, columns]
        quality = np.where(np.isfinite(values), Code.GOOD, Code.BAD_NOT_A_NUMBER).astype(np.uint16)
        yield Batch(group, cycle, 0, 0, time_ns, numbers, values, quality, np.full(len(columns), time_ns, np.int64))
        yield Watermark(group, time_ns)
