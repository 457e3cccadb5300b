"""Each database is what its schema.sql says, and migrating it again changes nothing."""

from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from foundation.postgres.migrations import Migrations
from foundation.postgres.schema_dump import dump_schema, schema_difference
from tests.fixtures.databases import FreshDatabase, TemplateSource
from tools.dev_stack.programs import postgres_program
from tools.schema.replay import PROCESSES, migrations_folder, replayed_schema, schema_file

MakeDatabase = Callable[[TemplateSource | None], FreshDatabase]

_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"


async def _contents(dsn: str) -> dict[str, str]:
    """Every row of every table, the version table of the migrations included."""
    connection = await asyncpg.connect(dsn)
    try:
        names = [row["tablename"] for row in await connection.fetch(_TABLES)]
        return {name: str(await connection.fetch(f'TABLE "{name}"')) for name in names}
    finally:
        await connection.close()


@pytest.fixture(params=PROCESSES)
def process(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def migrated(process: str, make_postgres_database: MakeDatabase) -> FreshDatabase:
    return make_postgres_database(migrations_folder(process))


async def test_the_schema_file_is_the_migrations_replayed(
    process: str, postgres_database: FreshDatabase
) -> None:
    """`make schema` was run after the last change of a migration."""
    replayed = await replayed_schema(process, postgres_database.dsn)
    stored = schema_file(process).read_text(encoding="utf-8")
    difference = schema_difference(stored, replayed)
    assert not difference, f"run `make schema` and commit its result:\n{difference}"
    # The header too, which a comparison of schemas leaves out.
    assert stored == replayed


async def test_migrating_twice_changes_nothing(process: str, migrated: FreshDatabase) -> None:
    """A second run, as at each start of a new version, leaves schema and rows as they are."""
    pg_dump = postgres_program("pg_dump")
    migrations = Migrations(migrations_folder(process), migrated.dsn)
    await migrations.migrate()
    schema = await dump_schema(migrated.dsn, pg_dump)
    contents = await _contents(migrated.dsn)
    await migrations.migrate()
    await migrations.check()
    assert schema_difference(schema, await dump_schema(migrated.dsn, pg_dump)) == ""
    assert await _contents(migrated.dsn) == contents


async def test_databases_keep_one_clock(migrated: FreshDatabase) -> None:
    """No column falls back to the time of the transaction's start, or to the server's own clock."""
    schema = await dump_schema(migrated.dsn, postgres_program("pg_dump"))
    outside = schema.replace("RETURN (clock_timestamp()", "RETURN (")
    # What is shown may stand still for a statement: shown_now(), which no default uses.
    outside = outside.replace("RETURN (statement_timestamp()", "RETURN (")
    outside = outside.replace("public.shown_now()", "")
    for other in ("now()", "clock_timestamp()", "CURRENT_TIMESTAMP", "statement_timestamp()"):
        assert other not in outside.replace("tdp_now()", ""), other


def test_every_folder_of_migrations_is_numbered_from_one() -> None:
    """Names sort in the order in which migrations run, and no number is taken twice."""
    for process in PROCESSES:
        names = sorted(path.name for path in migrations_folder(process).glob("*.sql"))
        numbers = [int(name.partition("_")[0]) for name in names]
        assert numbers == list(range(1, len(names) + 1)), f"{process}: {names}"
        assert all(Path(name).stem[4:5] == "_" for name in names), f"{process}: {names}"
