"""What can go wrong with a local SQLite file, as typed errors.

None of them is retryable by a network loop: a process whose own file fails stops loudly.
"""

import sqlite3
from typing import Final

from foundation.errors import ErrorCode, TdpError

_CORRUPT: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_LOCKED: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_READ_ONLY: Final = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM})


class LocalDatabaseError(TdpError):
    """The file failed in a way that is none of the more exact ones (I/O error, cannot open)."""

    reason = "LOCAL_DATABASE_FAILED"
    code = ErrorCode.INTERNAL


class LocalDatabaseClosedError(LocalDatabaseError):
    """It is not open, or was closed; nothing was done."""

    reason = "LOCAL_DATABASE_CLOSED"


class LocalDiskFullError(LocalDatabaseError):
    """No room left; the transaction was rolled back, and later ones may succeed."""

    reason = "LOCAL_DISK_FULL"
    code = ErrorCode.RESOURCE_EXHAUSTED


class LocalDatabaseCorruptError(LocalDatabaseError):
    """The file is damaged or no database: set it aside and start with a new one."""

    reason = "LOCAL_DATABASE_CORRUPT"
    code = ErrorCode.DATA_LOSS


class LocalDatabaseLockedError(LocalDatabaseError):
    """Another process kept the file locked for longer than the busy time-out."""

    reason = "LOCAL_DATABASE_LOCKED"


class LocalDatabaseReadOnlyError(LocalDatabaseError):
    """The file, its folder or its file system cannot be written to."""

    reason = "LOCAL_DATABASE_READ_ONLY"


class LocalDatabaseMissingError(LocalDatabaseError):
    """The open file was deleted or replaced: what was written last is not where it will be read."""

    reason = "LOCAL_DATABASE_MISSING"
    code = ErrorCode.DATA_LOSS


def translated(error: sqlite3.Error, path: str) -> Exception:
    """The typed error for a failure of the file; errors of the statement are returned as is."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return error
    # The low byte is the primary code; the rest says more about it.
    primary = code & 0xFF
    if primary == sqlite3.SQLITE_FULL:
        return LocalDiskFullError(f"{path}: the disk is full ({error}): free some space")
    if primary in _CORRUPT:
        return LocalDatabaseCorruptError(f"{path}: damaged ({error}): set the file aside")
    if primary in _LOCKED:
        return LocalDatabaseLockedError(f"{path}: locked ({error}): stop the other process")
    if primary in _READ_ONLY:
        return LocalDatabaseReadOnlyError(f"{path}: cannot be written ({error}): check its rights")
    if primary in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        return LocalDatabaseError(f"{path}: failed ({error}): check the disk and the folder")
    return error
