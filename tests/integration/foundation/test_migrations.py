"""Migrations by dbmate on real PostgreSQL and SQLite databases."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from foundation.postgres.migrations import (
    MigrationChangedError,
    MigrationError,
    Migrations,
    MigrationsPendingError,
    without_passwords,
)
from foundation.postgres.schema_dump import dump_schema, schema_difference
from tests.fixtures.databases import FreshDatabase
from tools.dev_stack.programs import postgres_program

FIRST = """-- migrate:up
create table parcel (id integer primary key, name text not null);

-- migrate:down
drop table parcel;
"""
SECOND = """-- migrate:up
create index parcel_name on parcel (name);

-- migrate:down
drop index parcel_name;
"""
BROKEN = """-- migrate:up
create table half (id integer);
create table half (id integer);

-- migrate:down
drop table half;
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "migrations"
    made.mkdir()
    (made / "0001_parcel.sql").write_text(FIRST)
    (made / "0002_parcel_name.sql").write_text(SECOND)
    return made


@pytest.fixture
def postgres(folder: Path, postgres_database: FreshDatabase) -> Migrations:
    return Migrations(folder, postgres_database.dsn.removesuffix("?sslmode=disable"))


@pytest.fixture
def sqlite(folder: Path, tmp_path: Path) -> Migrations:
    return Migrations.for_sqlite(folder, tmp_path / "journal.db")


@pytest.fixture(params=["postgres", "sqlite"])
def migrations(request: pytest.FixtureRequest) -> Migrations:
    chosen: Migrations = request.getfixturevalue(request.param)
    return chosen


async def test_migrating_applies_what_is_pending_once(migrations: Migrations) -> None:
    """Status and check tell before and after; migrating again changes nothing."""
    names = ("0001_parcel.sql", "0002_parcel_name.sql")
    status = await migrations.status()
    assert (status.applied, status.pending) == ((), names)
    with pytest.raises(MigrationsPendingError, match="lacks 2 migrations"):
        await migrations.check()
    await migrations.migrate()
    await migrations.migrate()
    await migrations.check()
    status = await migrations.status()
    assert (status.applied, status.pending) == (names, ())


async def test_a_broken_migration_is_named_and_undone(migrations: Migrations) -> None:
    """The error says what failed; the earlier ones stay, the broken one leaves nothing."""
    (migrations.folder / "0003_broken.sql").write_text(BROKEN)
    with pytest.raises(MigrationError, match="half"):
        await migrations.migrate()
    status = await migrations.status()
    assert status.pending == ("0003_broken.sql",)


async def test_several_processes_may_migrate_at_once(postgres: Migrations) -> None:
    """Replicas that start together take turns, and all end well."""
    await asyncio.gather(*(postgres.migrate() for _ in range(4)))
    await postgres.check()


async def test_a_migration_edited_after_it_was_applied_is_refused(migrations: Migrations) -> None:
    """Start and migration name the file that is not what the database has, and the remedy."""
    await migrations.migrate()
    path = migrations.folder / "0001_parcel.sql"
    path.write_bytes(FIRST.replace("\n", "\r\n").encode())
    await migrations.check()
    path.write_text(FIRST.replace("name text", "title text"))
    for act in (migrations.check, migrations.migrate):
        with pytest.raises(MigrationChangedError, match=r"0001_parcel\.sql.*new database"):
            await act()
    path.write_text(FIRST)
    await migrations.check()


async def test_a_database_from_before_digests_goes_on(migrations: Migrations) -> None:
    """Where none were kept, the next migration keeps those of the files it finds."""
    await migrations.migrate()
    await _forget_digests(migrations)
    await migrations.check()
    await migrations.migrate()
    (migrations.folder / "0002_parcel_name.sql").write_text(SECOND + "-- edited\n")
    with pytest.raises(MigrationChangedError, match="0002_parcel_name"):
        await migrations.check()


async def _forget_digests(migrations: Migrations) -> None:
    if migrations.url.startswith("sqlite:"):
        with closing(sqlite3.connect(migrations.url.removeprefix("sqlite:"))) as file:
            file.execute("drop table schema_digests")
        return
    connection = await asyncpg.connect(migrations.url)
    await connection.execute("drop table schema_digests")
    await connection.close()


async def test_sqlite_files_are_made(sqlite: Migrations, tmp_path: Path) -> None:
    """A journal that is missing is made with its tables."""
    await sqlite.migrate()
    with closing(sqlite3.connect(tmp_path / "journal.db")) as connection:
        assert connection.execute("select count(*) from parcel").fetchone() == (0,)


async def test_errors_hide_the_password(folder: Path) -> None:
    """The address of an unreachable database shows no secret."""
    lost = Migrations(folder, "postgresql://user:hunter2@127.0.0.1:1/none")
    with pytest.raises(MigrationError) as caught:
        await lost.status()
    assert "hunter2" not in str(caught.value)
    said = without_passwords("no answer from postgresql://user:hunter2@host:5432/name")
    assert said == "no answer from postgresql://user:***@host:5432/name"


async def test_a_dumped_schema_tells_a_difference(
    postgres: Migrations, postgres_database: FreshDatabase
) -> None:
    """The dump is the same each time, and a changed table shows."""
    await postgres.migrate()
    pg_dump = postgres_program("pg_dump")
    schema = await dump_schema(postgres_database.dsn, pg_dump)
    assert "CREATE TABLE public.parcel" in schema
    assert "schema_migrations" not in schema
    again = await dump_schema(postgres_database.dsn, pg_dump)
    assert schema_difference(schema, again) == ""
    connection = await asyncpg.connect(postgres_database.dsn)
    await connection.execute("alter table parcel add column weight integer")
    await connection.close()
    changed = await dump_schema(postgres_database.dsn, pg_dump)
    assert "+    weight integer" in schema_difference(schema, changed)
