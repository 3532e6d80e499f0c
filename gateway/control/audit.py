"""A hash-chained append-only file of everything that was ordered or written.

Each line is JSON: number, UTC, kind, body, and the SHA-256 of the line before. Operator commands are on the disk before they act; automatic
writes are appended before the write and brought to the disk together each second. If the file cannot be written, nothing is.
"""

import asyncio
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import structlog

from gateway.core.clock import Clock, sleep_s
from gateway.core.errors import PermanentError

log = structlog.get_logger(__name__)

GENESIS = "0" * 64
_SYNC_S = 1.0


class Audit:
    """The open audit file.

    Args:
        path: The file; made if it is not there, continued if it is.
        clock: For stamps.

    Raises:
        PermanentError: The file cannot be opened.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._dirty = False
        self.broken = ""
        try:
            self._count, self._hash = _end_of(path)
            self._file: BinaryIO = path.open("ab")
        except OSError as error:
            raise PermanentError(f"audit file {path}: {error.strerror}", remedy="make the state directory writable") from error

    def append(self, kind: str, body: Mapping[str, object]) -> None:
        """Add a record; it is handed to the system at once and to the disk within a second.

        Raises:
            PermanentError: It cannot be written; from then on nothing may be.
        """
        if self.broken:
            raise PermanentError(self.broken, remedy="free the disk and restart the gateway")
        record = {"n": self._count + 1, "utc_ns": self._clock.wall_ns(), "kind": kind, "body": dict(body), "previous": self._hash}
        line = json.dumps(record, separators=(",", ":"), default=str).encode()
        try:
            self._file.write(line + b"\n")
            self._file.flush()
        except OSError as error:
            self._break(error)
        self._count += 1
        self._hash = hashlib.sha256(line).hexdigest()
        self._dirty = True

    def sync(self) -> None:
        """Bring what was appended to the disk.

        Raises:
            PermanentError: The disk refuses.
        """
        if not self._dirty:
            return
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            self._break(error)
        self._dirty = False

    def _break(self, error: OSError) -> None:
        self.broken = f"audit file {self.path}: {error.strerror}"
        log.error("audit.broken", path=str(self.path), reason=error.strerror)
        raise PermanentError(self.broken, remedy="free the disk and restart the gateway") from error

    async def run(self) -> None:
        """Sync once a second, in a thread, until cancelled."""
        while True:
            await sleep_s(self._clock, _SYNC_S)
            await asyncio.to_thread(self.sync)

    def close(self) -> None:
        """Sync and close; safe at any time."""
        if not self._file.closed:
            if not self.broken:
                self.sync()
            self._file.close()


def _end_of(path: Path) -> tuple[int, str]:
    """Number and hash of the last whole line; a torn last line is cut off, for it never acted."""
    if not path.exists():
        return 0, GENESIS
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        log.warning("audit.torn_line_removed", path=str(path), bytes=len(data) - whole)
        with path.open("r+b") as file:
            file.truncate(whole)
    lines = data[:whole].splitlines()
    if not lines:
        return 0, GENESIS
    try:
        number = int(json.loads(lines[-1])["n"])
    except (ValueError, KeyError, TypeError) as error:
        raise PermanentError(f"audit file {path}: last line is damaged", remedy="move the file away and keep it") from error
    return number, hashlib.sha256(lines[-1]).hexdigest()


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The records of an audit file, checked.

    Raises:
        PermanentError: A record was changed, removed or put in; the text names its number.
    """
    before = GENESIS
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            record: dict[str, Any] = json.loads(line)
            intact = record["n"] == number and record["previous"] == before
        except (ValueError, KeyError, TypeError):
            intact = False
        if not intact:
            raise PermanentError(f"audit file {path}: chain broken at record {number}", remedy="keep the file as evidence")
        yield record
        before = hashlib.sha256(line).hexdigest()
