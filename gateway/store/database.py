"""One SQLite file and the one thread that touches it."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import sqlite_utils
import structlog

from gateway.core.clock import Clock
from gateway.core.errors import PermanentError, TransientError

log = structlog.get_logger(__name__)

T = TypeVar("T")
_VERSION = 1
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_REMEDY = "free the disk; the gateway keeps running and tries again"


class Database:
    """The open store. Everything runs in its own thread, in the order asked for.

    Args:
        path: The file; made if absent. One that is damaged is moved aside, and a new one is begun.
        clock: Names what was moved aside.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.quarantined: Path | None = None
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._db: sqlite_utils.Database | None = None

    async def __aenter__(self) -> Self:
        await self._call(self._open)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._call(self._close)
        self._thread.shutdown(wait=True)

    def _open(self) -> None:
        try:
            self._db = self._opened()
        except sqlite3.DatabaseError as error:
            # The low byte is the kind of fault. A file that is locked, or a disk that is full, is no damage: nothing may be moved then.
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF not in _DAMAGE:
                remedy = "make the state directory writable, free its disk, end other users of the file"
                raise PermanentError(f"store {self.path}: {error}", remedy=remedy) from error
            self.quarantined = self.path.with_suffix(f".damaged-{self._clock.wall_ns()}")
            log.warning("store.quarantined", path=str(self.path), moved_to=str(self.quarantined), reason=str(error))
            self.path.rename(self.quarantined)
            for tail in ("-wal", "-shm"):
                self.path.with_name(self.path.name + tail).unlink(missing_ok=True)
            self._db = self._opened()

    def _opened(self) -> sqlite_utils.Database:
        connection = sqlite3.connect(self.path, check_same_thread=False)
        try:
            if connection.execute("PRAGMA quick_check").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("integrity check failed")  # noqa: TRY301 - the same as SQLite's own
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint=1000")
            connection.executescript(files(__package__).joinpath("schema.sql").read_text(encoding="utf-8"))
            connection.execute(f"PRAGMA user_version={_VERSION}")
        except BaseException:
            connection.close()
            raise
        return sqlite_utils.Database(connection)

    def _close(self) -> None:
        if self._db is not None:
            self._db.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._db.conn.close()
            self._db = None

    async def _call(self, work: Callable[[], T]) -> T:
        asked = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            # What was asked for is carried out, so that whoever asked can know what became of it.
            await asyncio.wait((asked,))
            asked.exception()
            raise

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run something in the store's thread, in one transaction.

        Raises:
            TransientError: The disk is full or the file cannot be used now; nothing was changed.
        """

        def transaction() -> T:
            if self._db is None:
                raise TransientError("the store is closed", remedy="the gateway is stopping")
            connection: sqlite3.Connection = self._db.conn
            try:
                with connection:
                    return work(connection)
            except sqlite3.Error as error:
                raise TransientError(f"store: {error}", remedy=_REMEDY) from error

        return await self._call(transaction)
