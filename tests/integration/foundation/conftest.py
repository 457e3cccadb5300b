"""Databases for the data half of foundation."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from foundation.postgres.pool import Database, DatabaseConfig
from tests.contract.outbox.harness import create_postgres_outbox
from tests.fixtures.databases import FreshDatabase, TemplateSource


async def create_tables(dsn: str) -> None:
    """Fill an empty database with an outbox and a table of counters; a template source."""
    await create_postgres_outbox(dsn)
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            "create table counter (id integer primary key, n integer not null, document jsonb)"
        )
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def postgres_template_source() -> TemplateSource:
    return create_tables


@pytest.fixture
async def database(postgres_database: FreshDatabase) -> AsyncIterator[Database]:
    config = DatabaseConfig(postgres_database.dsn, "foundation-test", pool_size_max=4)
    async with Database(config) as opened:
        yield opened
