"""What can go wrong with PostgreSQL, as typed errors, and which of the driver's errors mean it.

Errors of the statement itself (constraint violations, bad values) stay asyncpg's own: the
store that issued the statement knows what they mean.
"""

from typing import Final

import asyncpg

from foundation.errors import DeadlineExceededError, ResourceExhaustedError, UnavailableError

_SERVER_GOES_AWAY: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "53300"})
_BUSY: Final = frozenset({"57014", "55P03", "25P03", "25P04"})
_DISK_FULL: Final = frozenset({"53100"})
_READ_ONLY: Final = frozenset({"25006"})
_RETRY_TRANSACTION: Final = frozenset({"40P01", "40001"})
# Class 22 is data exception, class 23 integrity constraint violation.
_ITEM_AT_FAULT: Final = ("22", "23")


class PoolExhaustedError(UnavailableError):
    """No connection became free in time; nothing was done."""

    reason = "DATABASE_POOL_EXHAUSTED"


class ConnectionLostError(UnavailableError):
    """The server is unreachable or closed the connection before COMMIT; nothing was done."""

    reason = "DATABASE_CONNECTION_LOST"


class CommitUnknownError(UnavailableError):
    """The connection was lost while COMMIT was under way: it happened, or it did not.

    Read back by the unique key that the transaction wrote. Never repeat a COMMIT alone.
    """

    reason = "DATABASE_COMMIT_UNKNOWN"


class DatabaseBusyError(DeadlineExceededError):
    """A statement or lock time-out; the transaction was rolled back."""

    reason = "DATABASE_BUSY"


class DatabaseDiskFullError(ResourceExhaustedError):
    """The server has no room left; the transaction was rolled back."""

    reason = "DATABASE_DISK_FULL"


class DatabaseReadOnlyError(UnavailableError):
    """The server is a standby or was set read-only, as in a failover; nothing was done."""

    reason = "DATABASE_READ_ONLY"


def sqlstate_of(error: BaseException) -> str | None:
    """The five-character SQLSTATE of a server error, else None."""
    return error.sqlstate if isinstance(error, asyncpg.PostgresError) else None


def is_connection_loss(error: BaseException) -> bool:
    """Whether the connection is gone (refused, reset, closed, terminated, server stopping)."""
    state = sqlstate_of(error)
    if state is not None:
        return state in _SERVER_GOES_AWAY or state.startswith("08")
    # An InterfaceError is asyncpg's word for using a connection that is closed, among others.
    return isinstance(error, OSError) or (
        isinstance(error, asyncpg.InterfaceError) and "clos" in str(error)
    )


def may_run_again(error: BaseException) -> bool:
    """Whether the whole transaction may be run again: a deadlock or serialization failure."""
    return sqlstate_of(error) in _RETRY_TRANSACTION


def rejects_item(error: BaseException) -> bool:
    """Whether the data is at fault (SQLSTATE classes 22 and 23), so that a retry is in vain."""
    state = sqlstate_of(error)
    return state is not None and state[:2] in _ITEM_AT_FAULT


def translated(error: Exception) -> Exception:
    """The typed error for a failure of the server or connection; others are returned as is."""
    state = sqlstate_of(error)
    # A client-side time-out is an OSError too, so it has to be told apart first.
    if isinstance(error, TimeoutError) or state in _BUSY:
        return DatabaseBusyError(f"the database did not answer in time ({error!r}): retry")
    if is_connection_loss(error):
        return ConnectionLostError(f"the database connection was lost ({error!r}): retry")
    if state in _DISK_FULL:
        return DatabaseDiskFullError(f"the database has no disk space left ({error}): free some")
    if state in _READ_ONLY:
        return DatabaseReadOnlyError(f"the database is read-only ({error}): a failover? retry")
    return error
