"""One SQLite file: one connection on one thread, and one whole transaction per thread call.

A cancelled await cannot stop a thread. So a transaction never spans two calls to it, and
cancelling its caller leaves it to end by itself, fully done or fully undone.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeVar

import aiosqlite

from foundation.sqlite.errors import (
    LocalDatabaseClosedError,
    LocalDatabaseCorruptError,
    LocalDatabaseMissingError,
    translated,
)

ResultT = TypeVar("ResultT")
_THREAD_END_PATIENCE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class LocalDatabaseConfig:
    """Where the file is and how long another process's lock is waited for, in seconds."""

    path: Path
    busy_timeout_s: float = 5.0
    cache_size_kib: int = 8_192


class LocalDatabase:
    """A SQLite file in WAL mode, synchronous=FULL, foreign keys on.

    Work of other tasks waits in the order in which it was asked for.
    """

    def __init__(self, config: LocalDatabaseConfig) -> None:
        """Prepare; nothing is opened before `open`."""
        self._config = config
        self._connection: aiosqlite.Connection | None = None
        self._files = _FilesInPlace(config.path)

    @property
    def path(self) -> Path:
        """The file."""
        return self._config.path

    async def open(self) -> None:
        """Open or create the file; raises LocalDatabaseError or one of its kinds. Idempotent."""
        if self._connection is not None:
            return
        connection = aiosqlite.connect(
            self._config.path, isolation_level=None, timeout=self._config.busy_timeout_s
        )
        # The thread must not keep a process alive whose main thread died of an error.
        connection._thread.daemon = True  # noqa: SLF001 - aiosqlite offers no argument for it
        try:
            await connection
        except BaseException as error:
            # It has told its thread to end; until that has, it could still call into this loop.
            await asyncio.to_thread(_join, connection)
            if isinstance(error, sqlite3.Error):
                raise self._typed(error) from error
            raise
        self._connection = connection
        try:
            await self._call(self._prepare)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End queued work, close the file and end the thread, in every case. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        # When cancelled or failing, the thread has its order to end and is not waited for.
        await connection.close()
        _join(connection)

    async def __aenter__(self) -> Self:
        """Open it."""
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    async def transaction(self, function: Callable[[sqlite3.Connection], ResultT]) -> ResultT:
        """Run `function` on the database's thread inside BEGIN IMMEDIATE ... COMMIT.

        When it returns, its writes are on disk; when it raises, nothing was written. It must
        not use BEGIN, COMMIT, or anything that belongs to the event loop. Cancelling the caller
        does not stop it. Raises what `function` raises, and LocalDatabaseError kinds.
        """

        def run(connection: sqlite3.Connection) -> ResultT:
            connection.execute("begin immediate")
            try:
                result = function(connection)
                connection.execute("commit")
                self._files.check()
            except BaseException:
                _roll_back(connection)
                raise
            return result

        return await self._call(run)

    async def read(self, function: Callable[[sqlite3.Connection], ResultT]) -> ResultT:
        """Run `function` on the database's thread over one snapshot; it must not write."""

        def run(connection: sqlite3.Connection) -> ResultT:
            connection.execute("begin deferred")
            try:
                return function(connection)
            finally:
                _roll_back(connection)

        return await self._call(run)

    async def check_integrity(self) -> None:
        """Read the whole file; LocalDatabaseCorruptError says what is wrong with it."""

        def check(connection: sqlite3.Connection) -> list[str]:
            found = connection.execute("pragma integrity_check(5)").fetchall()
            broken = connection.execute("pragma foreign_key_check").fetchmany(5)
            return [row[0] for row in found if row[0] != "ok"] + [
                f"row {row[1]} of {row[0]} refers to a missing row of {row[2]}" for row in broken
            ]

        problems = await self._call(check)
        if problems:
            raise LocalDatabaseCorruptError(
                f"{self.path}: damaged ({'; '.join(problems)}): set the file aside"
            )

    async def _call(self, function: Callable[[sqlite3.Connection], ResultT]) -> ResultT:
        connection = self._connection
        if connection is None:
            raise LocalDatabaseClosedError(f"{self.path} is not open: open it before use")
        try:
            # aiosqlite has no public way to run more than one statement per thread call. The
            # call is queued at once; cancelling this await only stops waiting for its end.
            queued: Awaitable[ResultT] = connection._execute(function, connection._conn)  # type: ignore[no-untyped-call]  # noqa: SLF001
            return await queued
        except sqlite3.Error as error:
            typed = self._typed(error)
            if typed is error:
                raise
            raise typed from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.row_factory = sqlite3.Row
        (mode,) = connection.execute("pragma journal_mode = wal").fetchone()
        if mode != "wal":
            raise sqlite3.OperationalError(f"journal mode is {mode}, not wal")
        connection.execute("pragma synchronous = full")
        connection.execute("pragma foreign_keys = on")
        connection.execute(f"pragma cache_size = -{self._config.cache_size_kib:d}")
        # An empty transaction makes the write-ahead log, where there is none yet.
        connection.execute("begin immediate")
        connection.execute("commit")
        self._files.remember()

    def _typed(self, error: sqlite3.Error) -> Exception:
        return translated(error, str(self.path))


class _FilesInPlace:
    """The database and its write-ahead log, as they were when they were first seen.

    SQLite goes on writing to files that were deleted or replaced, without an error: after the
    next start none of that would be there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._paths = (path, path.with_name(f"{path.name}-wal"))
        self._seen: tuple[tuple[int, int], ...] = ()

    def remember(self) -> None:
        """Note the files that are open."""
        self._seen = self._numbers()

    def check(self) -> None:
        """Raise LocalDatabaseMissingError if one is gone or another; costs two system calls."""
        if self._numbers() != self._seen:
            raise LocalDatabaseMissingError(
                f"{self._path}: the file or its write-ahead log was deleted or replaced while it "
                "was in use: leave them to the process that has them open"
            )

    def _numbers(self) -> tuple[tuple[int, int], ...]:
        try:
            found = [path.stat() for path in self._paths]
        except FileNotFoundError:
            return ()
        return tuple((one.st_dev, one.st_ino) for one in found)


def _join(connection: aiosqlite.Connection) -> None:
    connection._thread.join(_THREAD_END_PATIENCE_S)  # noqa: SLF001 - no public way to wait for it


def _roll_back(connection: sqlite3.Connection) -> None:
    # A full disk or an I/O error may have rolled back already.
    if connection.in_transaction:
        connection.execute("rollback")
