"""SQLite on its own thread, against real files: whole transactions and typed errors."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from foundation.sqlite.database import LocalDatabase, LocalDatabaseConfig
from foundation.sqlite.errors import (
    LocalDatabaseClosedError,
    LocalDatabaseCorruptError,
    LocalDatabaseError,
    LocalDatabaseLockedError,
    LocalDatabaseMissingError,
    LocalDatabaseReadOnlyError,
    LocalDiskFullError,
)


def create(connection: sqlite3.Connection) -> None:
    connection.execute("create table parent (id integer primary key)")
    connection.execute("create table child (id integer primary key, parent references parent)")


def insert(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("insert into parent values (?)", (number,))


def insert_many(connection: sqlite3.Connection) -> None:
    connection.executemany("insert into parent values (?)", ((one,) for one in range(2_000)))


async def numbers(database: LocalDatabase) -> list[int]:
    def read(connection: sqlite3.Connection) -> list[int]:
        return [row[0] for row in connection.execute("select id from parent order by id")]

    return await database.read(read)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[LocalDatabase]:
    async with LocalDatabase(LocalDatabaseConfig(tmp_path / "journal.db")) as opened:
        await opened.transaction(create)
        yield opened


async def test_it_is_durable_by_its_settings(database: LocalDatabase) -> None:
    """Write-ahead log, a sync at each commit, foreign keys on, rows by name."""

    def settings(connection: sqlite3.Connection) -> list[object]:
        names = ("journal_mode", "synchronous", "foreign_keys")
        return [connection.execute(f"pragma {name}").fetchone()[0] for name in names]

    assert await database.read(settings) == ["wal", 2, 1]


async def test_a_transaction_is_kept_whole_and_survives_reopening(tmp_path: Path) -> None:
    """What a transaction wrote is there when the file is opened again."""
    config = LocalDatabaseConfig(tmp_path / "journal.db")
    async with LocalDatabase(config) as first:
        await first.transaction(create)
        await first.transaction(lambda connection: insert(connection, 1))
    async with LocalDatabase(config) as second:
        assert await numbers(second) == [1]


async def test_a_transaction_that_raises_writes_nothing(database: LocalDatabase) -> None:
    """An error anywhere undoes the transaction, and the next one works."""

    def insert_and_fail(connection: sqlite3.Connection) -> None:
        insert(connection, 1)
        raise KeyError("stop")

    with pytest.raises(KeyError):
        await database.transaction(insert_and_fail)
    with pytest.raises(sqlite3.IntegrityError):
        await database.transaction(lambda one: one.execute("insert into child values (1, 99)"))
    await database.transaction(lambda connection: insert(connection, 2))
    assert await numbers(database) == [2]


async def test_reading_leaves_nothing_behind(database: LocalDatabase) -> None:
    """A read that wrote by mistake is undone."""
    await database.read(lambda connection: insert(connection, 1))
    assert await numbers(database) == []


async def test_a_cancelled_transaction_still_ends_whole(database: LocalDatabase) -> None:
    """Cancelling the caller neither stops the transaction half-way nor leaves it open."""
    entered, go_on = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> None:
        insert(connection, 1)
        entered.set()
        assert go_on.wait(10)
        insert(connection, 2)

    task = asyncio.ensure_future(database.transaction(slow))
    await asyncio.to_thread(entered.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    assert await numbers(database) == [1, 2]


async def test_transactions_of_many_tasks_do_not_mix(database: LocalDatabase) -> None:
    """Work of several tasks runs one whole transaction after the other."""

    def add_next(connection: sqlite3.Connection) -> None:
        (largest,) = connection.execute("select coalesce(max(id), 0) from parent").fetchone()
        insert(connection, largest + 1)

    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(database.transaction(add_next))
    assert await numbers(database) == list(range(1, 51))


async def test_closing_ends_the_thread_and_may_be_repeated(tmp_path: Path) -> None:
    """After close no thread is left, and the database refuses to be used."""
    before = threading.active_count()
    database = LocalDatabase(LocalDatabaseConfig(tmp_path / "journal.db"))
    await database.close()
    await database.open()
    await database.open()
    assert threading.active_count() == before + 1
    await database.close()
    await database.close()
    assert threading.active_count() == before
    with pytest.raises(LocalDatabaseClosedError):
        await database.transaction(create)


async def test_a_file_that_is_no_database_is_corrupt(tmp_path: Path) -> None:
    """Opening garbage says so, and leaves no thread."""
    path = tmp_path / "journal.db"
    path.write_bytes(b"not a database, whatever its name says" * 100)
    before = threading.active_count()
    with pytest.raises(LocalDatabaseCorruptError, match="set the file aside"):
        await LocalDatabase(LocalDatabaseConfig(path)).open()
    assert threading.active_count() == before


async def test_damaged_pages_are_found(tmp_path: Path) -> None:
    """The integrity check finds a page that was overwritten on disk."""
    path = tmp_path / "journal.db"
    async with LocalDatabase(LocalDatabaseConfig(path)) as database:
        await database.transaction(create)
        await database.transaction(insert_many)
        await database.check_integrity()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - 4_096)
        file.write(b"\xff" * 4_096)
    async with LocalDatabase(LocalDatabaseConfig(path)) as database:
        with pytest.raises(LocalDatabaseCorruptError):
            await database.check_integrity()


async def test_a_full_disk_is_a_clean_error_and_then_progress(database: LocalDatabase) -> None:
    """Without room a transaction is undone with its own error; with room the next succeeds."""

    def limit_pages(connection: sqlite3.Connection, pages: int) -> None:
        connection.execute(f"pragma max_page_count = {pages}")

    def fill(connection: sqlite3.Connection) -> None:
        connection.execute("create table filler as select zeroblob(100000) as content")

    await database.transaction(lambda connection: limit_pages(connection, 10))
    with pytest.raises(LocalDiskFullError, match="free some space"):
        await database.transaction(fill)
    await database.transaction(lambda connection: limit_pages(connection, 1_000_000))
    await database.transaction(fill)


async def test_another_process_lock_is_waited_for_and_then_said(tmp_path: Path) -> None:
    """A lock that another connection keeps becomes a typed error after the busy time-out."""
    path = tmp_path / "journal.db"
    config = LocalDatabaseConfig(path, busy_timeout_s=0.05)
    async with LocalDatabase(config) as database:
        await database.transaction(create)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("begin immediate")
        with pytest.raises(LocalDatabaseLockedError):
            await database.transaction(lambda connection: insert(connection, 1))
        other.execute("rollback")
        other.close()
        await database.transaction(lambda connection: insert(connection, 1))


async def test_a_database_that_cannot_be_written_is_said_to_be_read_only(
    database: LocalDatabase,
) -> None:
    """A refused write has its own error; the file as it was can still be read."""
    await database.transaction(lambda connection: insert(connection, 1))
    await database.read(lambda connection: connection.execute("pragma query_only = on"))
    with pytest.raises(LocalDatabaseReadOnlyError, match="check its rights"):
        await database.transaction(lambda connection: insert(connection, 2))
    assert await numbers(database) == [1]


@pytest.mark.parametrize("name", ["journal.db", "journal.db-wal"])
@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_that_is_deleted_meanwhile_takes_no_more(
    database: LocalDatabase, name: str, *, replaced: bool
) -> None:
    """SQLite itself would go on writing to a file that nobody will ever read again."""
    await database.transaction(lambda connection: insert(connection, 1))
    file = database.path.with_name(name)
    kept = file.with_name("kept")
    file.rename(kept)
    if replaced:
        file.write_bytes(kept.read_bytes())
    with pytest.raises(LocalDatabaseMissingError, match="deleted or replaced"):
        await database.transaction(lambda connection: insert(connection, 2))


async def test_a_folder_that_is_missing_cannot_be_opened(tmp_path: Path) -> None:
    """The error names the path and what to look at."""
    database = LocalDatabase(LocalDatabaseConfig(tmp_path / "missing" / "journal.db"))
    with pytest.raises(LocalDatabaseError, match=r"missing/journal\.db: failed"):
        await database.open()
