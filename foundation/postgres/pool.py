"""Connections to one PostgreSQL database, and transactions that end in a known way.

A process that must never wait for its own load (heartbeats) opens a second, small Database.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, NoReturn, Self, TypeAlias, TypeVar

import asyncpg

from foundation.backoff import BackoffPolicy
from foundation.postgres.errors import (
    CommitUnknownError,
    ConnectionLostError,
    PoolExhaustedError,
    is_connection_loss,
    may_run_again,
    translated,
)

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"
Record: TypeAlias = asyncpg.Record
ResultT = TypeVar("ResultT")

_RETRY_BACKOFF: Final = BackoffPolicy(base_s=0.01, cap_s=0.5, jitter_fraction=0.5)


@dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """How to reach one database and how long to wait for it; all waits in seconds.

    Behind PgBouncer in transaction mode set `behind_pgbouncer`: no prepared statements are
    kept and no settings are sent (PgBouncer refuses them), so give the role its own
    statement_timeout there.
    """

    dsn: str = field(repr=False)
    application_name: str
    pool_size_min: int = 1
    pool_size_max: int = 10
    acquire_timeout_s: float = 5.0
    connect_timeout_s: float = 5.0
    statement_timeout_s: float = 30.0
    lock_timeout_s: float = 20.0
    idle_in_transaction_timeout_s: float = 60.0
    connection_idle_s_max: float = 300.0
    behind_pgbouncer: bool = False
    transaction_tries_max: int = 6

    def __post_init__(self) -> None:
        """Refuse figures that contradict each other, with ValueError."""
        if not 0 <= self.pool_size_min <= self.pool_size_max or self.pool_size_max < 1:
            sizes = f"{self.pool_size_min} to {self.pool_size_max}"
            raise ValueError(f"pool size {sizes} is not a range: set 0 <= min <= max, max >= 1")
        if self.lock_timeout_s > self.statement_timeout_s:
            raise ValueError(
                f"lock_timeout_s {self.lock_timeout_s} exceeds statement_timeout_s "
                f"{self.statement_timeout_s}: it could never take effect"
            )

    @property
    def server_settings(self) -> Mapping[str, str]:
        """What each connection is told at its start."""
        if self.behind_pgbouncer:
            return {"application_name": self.application_name}
        return {
            "application_name": self.application_name,
            "timezone": "UTC",
            "statement_timeout": f"{round(self.statement_timeout_s * 1000)}ms",
            "lock_timeout": f"{round(self.lock_timeout_s * 1000)}ms",
            "idle_in_transaction_session_timeout": (
                f"{round(self.idle_in_transaction_timeout_s * 1000)}ms"
            ),
            # The server stops working for a client that has gone, and lets go of its locks.
            "client_connection_check_interval": "500ms",
            # Compiling costs more than any of our short statements.
            "jit": "off",
            # Planning does too, a millisecond or more for the large ones. Tests hold every
            # statement's plan for any arguments to its indexes; those whose conditions are not
            # known before ask for a plan of their own.
            "plan_cache_mode": "force_generic_plan",
        }


class Database:
    """A pool of connections to one database.

    Sessions carry no state between users (no SET, LISTEN, session advisory locks or
    temporary tables): that is what lets a release cost no round trip.
    """

    def __init__(self, config: DatabaseConfig, random: Random | None = None) -> None:
        """Prepare; nothing is connected before `open`."""
        self._config = config
        self._random = random or Random()  # noqa: S311 - spreads retries, guards no secret
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def open(self) -> None:
        """Connect `pool_size_min` connections; ConnectionLostError if that is impossible."""
        if self._pool is not None:
            return
        pool = self._new_pool()
        try:
            await pool
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise translated(error) from error
        self._pool = pool

    async def close(self, grace_s: float = 5.0) -> None:
        """Close all connections, forcibly those still in use after `grace_s`. Idempotent."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(grace_s):
                await pool.close()
        except TimeoutError:
            pool.terminate()

    async def __aenter__(self) -> Self:
        """Open it."""
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    @property
    def connections_open(self) -> int:
        """Connections now open, in use or idle."""
        return 0 if self._pool is None else self._pool.get_size()

    @property
    def connections_in_use(self) -> int:
        """Connections now handed out."""
        return 0 if self._pool is None else self._pool.get_size() - self._pool.get_idle_size()

    async def replace_connections(self) -> None:
        """Let each connection be replaced before its next use, for changed server settings."""
        await self._opened_pool().expire_connections()

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Connection]:
        """A connection without a transaction, for statements that are each one of their own.

        Raises PoolExhaustedError after `acquire_timeout_s`, ConnectionLostError when the
        server cannot be reached. A cancelled body closes the connection: the server may still
        be at work on what was cancelled.
        """
        pool = self._opened_pool()
        connection = await self._acquired(pool)
        try:
            yield connection
        except (asyncio.CancelledError, TimeoutError, GeneratorExit):
            connection.terminate()
            raise
        finally:
            await _release(pool, connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """One transaction, READ COMMITTED: committed at the end, rolled back on an error.

        Raises, besides what the body raises and `acquire` does: ConnectionLostError,
        DatabaseBusyError, DatabaseDiskFullError, DatabaseReadOnlyError (all: nothing was done),
        and CommitUnknownError (read back by unique key).
        """
        async with self.acquire() as connection:
            try:
                transaction = connection.transaction()
                await transaction.start()
                try:
                    yield connection
                except TimeoutError:
                    # The server may still be at work on it: closing is the only sure end.
                    connection.terminate()
                    raise
                except Exception:
                    await _roll_back(connection, transaction)
                    raise
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                raise translated(error) from error
            await _commit(connection, transaction)

    async def run_transaction(
        self, function: Callable[[Connection], Awaitable[ResultT]]
    ) -> ResultT:
        """Run `function` in a transaction, again after a deadlock or serialization failure.

        Nothing else is retried here. `function` may run several times and must have no effect
        outside the database. Raises what `transaction` raises.
        """
        tries = 0
        while True:
            try:
                async with self.transaction() as connection:
                    return await function(connection)
            except asyncpg.PostgresError as error:
                tries += 1
                if tries >= self._config.transaction_tries_max or not may_run_again(error):
                    raise
            await asyncio.sleep(_RETRY_BACKOFF.delay_s(tries, self._random))

    async def fetch(self, statement: str, *arguments: object) -> list[Record]:
        """Rows of one statement that is its own transaction: one round trip.

        A deadlock or serialization failure is retried. Raises as `transaction`; a lost
        connection is a CommitUnknownError, as a statement that writes may have been done.
        """
        tries = 0
        while True:
            try:
                return await self._fetch_once(statement, arguments)
            except asyncpg.PostgresError as error:
                tries += 1
                if tries >= self._config.transaction_tries_max or not may_run_again(error):
                    raise
            await asyncio.sleep(_RETRY_BACKOFF.delay_s(tries, self._random))

    async def fetchrow(self, statement: str, *arguments: object) -> Record | None:
        """First row of one statement, or None; otherwise as `fetch`."""
        rows = await self.fetch(statement, *arguments)
        return rows[0] if rows else None

    async def _fetch_once(self, statement: str, arguments: tuple[object, ...]) -> list[Record]:
        async with self.acquire() as connection:
            try:
                return await connection.fetch(statement, *arguments)
            except TimeoutError as error:
                connection.terminate()
                raise _unknown(error) from error
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                _raise_failure_of_commit(error)

    def _opened_pool(self) -> "asyncpg.Pool[asyncpg.Record]":
        if self._pool is None:
            raise ConnectionLostError(
                f"database {self._config.application_name!r} is not open: open it before use"
            )
        return self._pool

    async def _acquired(self, pool: "asyncpg.Pool[asyncpg.Record]") -> Connection:
        try:
            return await pool.acquire(timeout=self._config.acquire_timeout_s)
        except TimeoutError as error:
            raise PoolExhaustedError(
                f"no database connection became free in {self._config.acquire_timeout_s} s "
                f"({self._config.pool_size_max} at most): retry later or raise the pool's size"
            ) from error
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise translated(error) from error

    def _new_pool(self) -> "asyncpg.Pool[asyncpg.Record]":
        config = self._config
        return asyncpg.create_pool(
            config.dsn,
            min_size=config.pool_size_min,
            max_size=config.pool_size_max,
            max_inactive_connection_lifetime=config.connection_idle_s_max,
            timeout=config.connect_timeout_s,
            # A little above the server's own time-outs, so that the server's clear error wins.
            command_timeout=config.statement_timeout_s + 2.0,
            statement_cache_size=0 if config.behind_pgbouncer else 512,
            server_settings=dict(config.server_settings),
            reset=_nothing_to_reset,
        )


async def _nothing_to_reset(_: object) -> None:
    """Spare the round trip of RESET ALL: see Database on session state."""


async def _roll_back(connection: Connection, transaction: asyncpg.transaction.Transaction) -> None:
    if connection.is_closed():
        return
    try:
        await transaction.rollback()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        # The first error is the one to report; a broken connection rolls back by itself.
        connection.terminate()


async def _release(pool: "asyncpg.Pool[asyncpg.Record]", connection: Connection) -> None:
    try:
        await pool.release(connection)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        # What was committed stays committed, and the pool has closed this connection already.
        return


async def _commit(connection: Connection, transaction: asyncpg.transaction.Transaction) -> None:
    try:
        await transaction.commit()
    except TimeoutError as error:
        connection.terminate()
        raise _unknown(error) from error
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        _raise_failure_of_commit(error)


def _raise_failure_of_commit(error: Exception) -> NoReturn:
    """Raise what a failed COMMIT means: unknown if the connection is lost, else the failure."""
    if is_connection_loss(error):
        raise _unknown(error) from error
    known = translated(error)
    if known is error:
        raise error
    raise known from error


def _unknown(error: Exception) -> CommitUnknownError:
    return CommitUnknownError(
        f"the connection was lost during COMMIT ({error!r}): read back by unique key"
    )
