"""A hash-chained append-only file of everything that was ordered or written.

Each line is JSON: number, UTC, kind, body, the hash of the record before, and its own (SHA-256 of the line without it). Operator commands
are on the disk before they act; automatic writes are appended before the write and brought to the disk together each second. If the file
cannot be written, nothing is.
"""

import asyncio
import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import structlog

from gateway.core.clock import Clock, sleep_s
from gateway.core.errors import PermanentError

log = structlog.get_logger(__name__)

GENESIS = "0" * 64
_SYNC_S = 1.0
_TAIL = 65_536
_SEAL = ',"hash":"'


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
            self._count, self._hash, torn = _end_of(path)
            self._file: BinaryIO | RawIOBase = path.open("ab", buffering=0)
        except OSError as error:
            raise PermanentError(f"audit file {path}: {error.strerror}", remedy="make the state directory writable") from error
        if torn:
            log.warning("audit.torn_line_removed", path=str(path), bytes=torn)
            self.append("torn line removed", {"bytes": torn})

    def append(self, kind: str, body: Mapping[str, object]) -> None:
        """Add a record; it is handed to the system at once and to the disk within a second.

        Raises:
            PermanentError: It cannot be written; from then on nothing may be.
        """
        if self.broken:
            raise PermanentError(self.broken, remedy="free the disk and restart the gateway")
        record = {"n": self._count + 1, "utc_ns": self._clock.wall_ns(), "kind": kind, "body": dict(body), "previous": self._hash}
        line, own = _sealed(record)
        try:
            written = self._file.write(line)
            if written != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301 - a short write is the disk's refusal too
        except OSError as error:
            self._break(error)
        self._count += 1
        self._hash = own
        self._dirty = True

    def sync(self) -> None:
        """Bring what was appended to the disk.

        Raises:
            PermanentError: The disk refuses.
        """
        if not self._dirty:
            return
        # First, since the loop may append while this thread waits for the disk.
        self._dirty = False
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            self._break(error)

    def _break(self, error: OSError) -> NoReturn:
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


def _sealed(record: Mapping[str, object]) -> tuple[bytes, str]:
    """The line of a record, and its own hash."""
    text = json.dumps(record, separators=(",", ":"), default=str)
    own = hashlib.sha256(text.encode()).hexdigest()
    return f'{text[:-1]}{_SEAL}{own}"}}\n'.encode(), own


def _opened(line: bytes) -> tuple[dict[str, Any], str] | None:
    """Record and own hash of a line, None if it is not as it was written."""
    text, seal, tail = line.rpartition(_SEAL.encode())
    own = hashlib.sha256(text + b"}").hexdigest()
    if not seal or tail != f'{own}"}}'.encode():
        return None
    record: dict[str, Any] = json.loads(text + b"}")
    return record, own


def _end_of(path: Path) -> tuple[int, str, int]:
    """Number and hash of the last whole line, and how many bytes of a torn one behind it were cut off.

    Raises:
        PermanentError: The last whole line is damaged.
    """
    if not path.exists():
        return 0, GENESIS, 0
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        start, tail = size, b""
        # Back to the newline before the last whole line; the file may be long.
        while start and tail[:-1].count(b"\n") < 1 + (not tail.endswith(b"\n")):
            start = max(0, start - _TAIL)
            file.seek(start)
            tail = file.read(size - start)
        whole = tail.rfind(b"\n") + 1
        torn = len(tail) - whole
        if torn:
            file.truncate(size - torn)
    if not whole:
        return 0, GENESIS, torn
    opened = _opened(tail[:whole].splitlines()[-1])
    if opened is None:
        raise PermanentError(f"audit file {path}: last record is damaged", remedy="move the file away, keep it as evidence, start again")
    return int(opened[0]["n"]), opened[1], torn


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The records of an audit file, checked; a torn last line, which a loss of power leaves, is passed over.

    Raises:
        PermanentError: A record was changed, removed or put in; the text names its number.
    """
    before = GENESIS
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            opened = _opened(line[:-1])
            if opened is None or opened[0]["n"] != number or opened[0]["previous"] != before:
                raise PermanentError(f"audit file {path}: chain broken at record {number}", remedy="keep the file as evidence")
            yield opened[0]
            before = opened[1]
