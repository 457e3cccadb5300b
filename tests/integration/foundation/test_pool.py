"""The pool and its transactions, against a real PostgreSQL whose connections die."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from urllib.parse import urlsplit

import asyncpg
import pytest

from foundation.postgres.errors import (
    CommitUnknownError,
    ConnectionLostError,
    DatabaseBusyError,
    DatabaseReadOnlyError,
    PoolExhaustedError,
)
from foundation.postgres.pool import Connection, Database, DatabaseConfig
from tests.fixtures.databases import FreshDatabase
from tools.dev_stack.postgres import PostgresServer

PID = "select pg_backend_pid()"
INSERT = "insert into counter (id, n) values ($1, 0)"
ADD = "update counter set n = n + 1 where id = $1 returning n"


@asynccontextmanager
async def configured(dsn: str, **changes: object) -> AsyncIterator[Database]:
    config = DatabaseConfig(dsn, "foundation-test", pool_size_max=2)
    async with Database(replace(config, **changes)) as opened:  # type: ignore[arg-type]  # by name
        yield opened


async def write(database: Database, *ids: int) -> None:
    async with database.transaction() as connection:
        for one in ids:
            await connection.execute(INSERT, one)


async def count(database: Database) -> int:
    (row,) = await database.fetch("select count(*) as n from counter")
    return int(row["n"])


async def kill(database: Database, pid: int) -> None:
    """End another backend, and wait until it has gone."""
    await database.fetch("select pg_terminate_backend($1, 10000)", pid)


async def test_each_connection_is_set_up(database: Database) -> None:
    """The application's name, UTC, time-outs and no compilation hold on every connection."""
    names = ("application_name", "timezone", "statement_timeout", "lock_timeout", "jit")
    (row,) = await database.fetch(
        "select " + ", ".join(f"current_setting('{name}') as {name}" for name in names)
    )
    assert dict(row) == {
        "application_name": "foundation-test",
        "timezone": "UTC",
        "statement_timeout": "30s",
        "lock_timeout": "20s",
        "jit": "off",
    }


async def test_documents_stay_text(database: Database) -> None:
    """A jsonb document comes back as text, so that its numbers stay exact."""
    text = '{"big": 12345678901234567890}'
    (row,) = await database.fetch("select $1::jsonb as document", text)
    assert row["document"] == text


async def test_a_transaction_commits_or_rolls_back_whole(database: Database) -> None:
    """An error undoes everything and is the caller's to see."""
    async with database.transaction() as connection:
        await connection.execute(INSERT, 1)
    with pytest.raises(asyncpg.UniqueViolationError):
        await write(database, 2, 1)
    assert await count(database) == 1
    assert database.connections_in_use == 0


async def test_an_exhausted_pool_says_so_and_leaks_nothing(
    postgres_database: FreshDatabase,
) -> None:
    """Waiting for a connection has an end, and afterwards all connections are there."""
    async with configured(postgres_database.dsn, acquire_timeout_s=0.05) as database:
        async with database.acquire(), database.acquire():
            with pytest.raises(PoolExhaustedError, match="raise the pool's size"):
                await database.fetch(PID)
        assert database.connections_in_use == 0
        async with database.acquire(), database.acquire():
            assert database.connections_in_use == 2


async def test_cancelled_waits_leak_no_connection(postgres_database: FreshDatabase) -> None:
    """However tasks are cancelled while they acquire or write, the pool stays whole."""
    async with configured(postgres_database.dsn) as database:

        async def use() -> None:
            async with database.transaction() as connection:
                await connection.execute("select pg_sleep(0.005)")

        for turn in range(40):
            tasks = [asyncio.ensure_future(use()) for _ in range(4)]
            for _ in range(turn):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        async with database.acquire(), database.acquire():
            assert database.connections_in_use == 2
        assert database.connections_in_use == 0


async def test_a_cancelled_write_closes_its_connection(database: Database) -> None:
    """What was cancelled is not committed, and its connection is never used again."""
    entered = asyncio.Event()
    pids: list[int] = []

    async def write() -> None:
        async with database.transaction() as connection:
            pids.append(await connection.fetchval(PID))
            await connection.execute(INSERT, 1)
            entered.set()
            await connection.execute("select pg_sleep(60)")

    task = asyncio.ensure_future(write())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (row,) = await database.fetch("select pg_backend_pid() as pid")
    assert row["pid"] not in pids
    assert await count(database) == 0


async def test_deadlocks_are_retried(database: Database) -> None:
    """Two transactions that lock against each other both succeed in the end."""
    await database.fetch("insert into counter (id, n) values (1, 0), (2, 0)")
    both_hold = asyncio.Barrier(2)
    tries = 0

    def lock_in_order(*ids: int) -> Callable[[Connection], Awaitable[None]]:
        first_try = True

        async def run(connection: Connection) -> None:
            nonlocal first_try, tries
            tries += 1
            await connection.execute(ADD, ids[0])
            if first_try:
                first_try = False
                await both_hold.wait()
            await connection.execute(ADD, ids[1])

        return run

    async with asyncio.TaskGroup() as group:
        group.create_task(database.run_transaction(lock_in_order(1, 2)))
        group.create_task(database.run_transaction(lock_in_order(2, 1)))
    rows = await database.fetch("select n from counter order by id")
    assert ([row["n"] for row in rows], tries) == ([2, 2], 3)


async def test_nothing_but_deadlocks_is_retried(database: Database) -> None:
    """A violated constraint runs once."""
    tries = 0

    async def violate(connection: Connection) -> None:
        nonlocal tries
        tries += 1
        await connection.execute("insert into counter (id, n) values (1, null)")

    with pytest.raises(asyncpg.NotNullViolationError):
        await database.run_transaction(violate)
    assert tries == 1


async def test_a_connection_killed_before_commit_is_a_lost_connection(
    database: Database,
) -> None:
    """Nothing was done, and the next use gets a new connection."""

    async def write_and_die(connection: Connection) -> None:
        await connection.execute(INSERT, 1)
        await kill(database, await connection.fetchval(PID))
        await connection.execute(INSERT, 2)

    with pytest.raises(ConnectionLostError):
        await database.run_transaction(write_and_die)
    assert await count(database) == 0


async def test_a_connection_killed_during_commit_is_unknown(database: Database) -> None:
    """The error says to read back, for the client cannot tell whether COMMIT took place."""

    async def write_and_die(connection: Connection) -> None:
        await connection.execute(INSERT, 1)
        await kill(database, await connection.fetchval(PID))

    with pytest.raises(CommitUnknownError, match="read back by unique key"):
        await database.run_transaction(write_and_die)
    assert await count(database) == 0


async def test_a_commit_whose_reply_is_lost_is_unknown_and_done(
    postgres_database: FreshDatabase, database: Database
) -> None:
    """F03: the commit took place, its reply never came; reading back by key finds the row."""
    eater = ReplyEater(postgres_database.dsn)

    async def write_then_eat(connection: Connection) -> None:
        await connection.execute(INSERT, 7)
        eater.eat_replies()

    async with eater as dsn, configured(dsn, pool_size_max=1) as far:
        with pytest.raises(CommitUnknownError):
            await far.run_transaction(write_then_eat)
    (row,) = await database.fetch("select id from counter")
    assert row["id"] == 7


async def test_a_killed_single_statement_is_unknown(database: Database) -> None:
    """A statement that is its own transaction may have been done when its reply is lost."""
    async with asyncio.TaskGroup() as group:
        sleeping = group.create_task(lost_statement(database))
        pid = await backend_that_sleeps(database)
        await kill(database, pid)
        await sleeping


async def lost_statement(database: Database) -> None:
    with pytest.raises(CommitUnknownError):
        await database.fetch("select pg_sleep(60)")


async def backend_that_sleeps(database: Database) -> int:
    while True:
        rows = await database.fetch(
            "select pid from pg_stat_activity where datname = current_database()"
            " and query like 'select pg_sleep%' and wait_event = 'PgSleep'"
        )
        if rows:
            return int(rows[0]["pid"])


async def test_time_outs_are_the_servers_and_typed(postgres_database: FreshDatabase) -> None:
    """A statement over its time is undone and called busy, and the pool goes on."""
    limits = {"statement_timeout_s": 0.05, "lock_timeout_s": 0.05}
    async with configured(postgres_database.dsn, **limits) as database:
        with pytest.raises(DatabaseBusyError):
            async with database.transaction() as connection:
                await connection.execute("select pg_sleep(60)")
        assert await count(database) == 0


async def test_a_long_lock_does_not_reach_a_reserved_pool(
    postgres_database: FreshDatabase,
) -> None:
    """F12: with every connection of one pool stuck, a second pool still works."""
    async with (
        configured(postgres_database.dsn, acquire_timeout_s=0.05) as busy,
        configured(postgres_database.dsn, pool_size_max=1) as reserved,
        busy.transaction() as first,
        busy.transaction(),
    ):
        await first.execute("lock table counter in access exclusive mode")
        with pytest.raises(PoolExhaustedError):
            await busy.fetch(PID)
        assert len(await reserved.fetch(PID)) == 1


async def test_a_read_only_server_is_said_to_be(database: Database) -> None:
    """After a failover to a standby the error is typed and retryable."""

    async def write_to_standby(connection: Connection) -> None:
        await connection.execute("set transaction read only")
        await connection.execute(INSERT, 1)

    with pytest.raises(DatabaseReadOnlyError):
        await database.run_transaction(write_to_standby)


async def test_the_pool_recovers_from_a_server_restart(
    database: Database, postgres_server: PostgresServer
) -> None:
    """F11: after an immediate restart the next uses succeed and the pool regains its size."""
    async with database.acquire(), database.acquire():
        assert database.connections_open == 2
    await postgres_server.stop(immediate=True)
    with pytest.raises((ConnectionLostError, CommitUnknownError)):
        await database.fetch(PID)
    await postgres_server.restart()
    async with database.acquire() as one, database.acquire() as other:
        assert await one.fetchval("select 1") == await other.fetchval("select 1") == 1
    assert (database.connections_open, database.connections_in_use) == (2, 0)


async def test_a_server_that_is_not_there_is_a_lost_connection() -> None:
    """Opening says at once, with a typed error, that nothing listens."""
    config = DatabaseConfig("postgresql://postgres@127.0.0.1:1/none", "test")
    with pytest.raises(ConnectionLostError):
        await Database(config).open()


async def test_opening_and_closing_may_be_repeated(postgres_database: FreshDatabase) -> None:
    """Close is legal before open and twice, and a closed database refuses to be used."""
    database = Database(DatabaseConfig(postgres_database.dsn, "test"))
    await database.close()
    await database.open()
    await database.open()
    await database.close()
    await database.close()
    with pytest.raises(ConnectionLostError, match="is not open"):
        await database.fetch(PID)


async def test_closing_does_not_wait_for_ever(postgres_database: FreshDatabase) -> None:
    """A connection still in use is cut after the grace."""
    database = Database(DatabaseConfig(postgres_database.dsn, "test"))
    await database.open()

    async def close_meanwhile(connection: Connection) -> None:
        await database.close(grace_s=0.01)
        await connection.execute("select 1")

    with pytest.raises(ConnectionLostError):
        await database.run_transaction(close_meanwhile)


async def test_behind_pgbouncer_nothing_is_prepared_or_set(
    postgres_database: FreshDatabase,
) -> None:
    """In transaction pooling a server connection is shared, so none is kept prepared."""
    async with (
        configured(postgres_database.dsn, behind_pgbouncer=True) as database,
        database.acquire() as connection,
    ):
        assert await connection.fetchval("select $1::integer", 3) == 3
        named = "select count(*) from pg_prepared_statements where name <> ''"
        assert await connection.fetchval(named) == 0
        assert await connection.fetchval("show statement_timeout") == "0"


def test_contradicting_figures_are_refused() -> None:
    """A pool has at least one connection, and a lock is waited for less than a statement."""
    with pytest.raises(ValueError, match="is not a range"):
        DatabaseConfig("dsn", "test", pool_size_min=3, pool_size_max=2)
    with pytest.raises(ValueError, match="it could never take effect"):
        DatabaseConfig("dsn", "test", statement_timeout_s=1.0, lock_timeout_s=2.0)
    assert "secret" not in repr(DatabaseConfig("postgresql://u:secret@h/d", "test"))


class ReplyEater:
    """A proxy before the server that, once told, forwards requests and cuts at the reply."""

    def __init__(self, dsn: str) -> None:
        self._parts = urlsplit(dsn)
        self._told = False
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        credentials = self._parts.netloc.rsplit("@", 1)[0]
        return self._parts._replace(netloc=f"{credentials}@127.0.0.1:{port}").geturl()

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def eat_replies(self) -> None:
        self._told = True

    async def _serve(self, near: asyncio.StreamReader, near_writer: asyncio.StreamWriter) -> None:
        far, far_writer = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        self._writers += [near_writer, far_writer]
        forward = asyncio.ensure_future(self._copy(near, far_writer))
        while data := await far.read(65_536):
            if self._told:
                break
            near_writer.write(data)
        near_writer.close()
        await forward

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
