"""A control plane's database per test, made from a migrated template."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from foundation.postgres.pool import Database, DatabaseConfig
from tests.fixtures.databases import FreshDatabase
from tests.fixtures.servers import FreshNats
from tests.integration.control_plane.replica import Replica, running_replica

_MIGRATIONS = Path(__file__).parents[3] / "control_plane" / "sql" / "migrations"


@pytest.fixture(scope="session")
def postgres_template_source() -> Path:
    """Every database of these tests has the control plane's schema."""
    return _MIGRATIONS


@pytest.fixture
async def control_database(postgres_database: FreshDatabase) -> AsyncIterator[Database]:
    """An open pool on a migrated database of the test's own."""
    config = DatabaseConfig(
        dsn=postgres_database.dsn, application_name="control-plane-test", pool_size_max=8
    )
    async with Database(config) as database:
        yield database


@pytest.fixture
async def replica(
    postgres_database: FreshDatabase, nats_server: FreshNats
) -> AsyncIterator[Replica]:
    """A whole running replica of the test's own."""
    async with running_replica(postgres_database.dsn, nats_server.url) as running:
        yield running
