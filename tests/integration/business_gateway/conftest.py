"""A gateway's database and bucket per test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from business_gateway.adapters.outbound.object_store import ObjectStoreConfig, S3ObjectStore
from foundation.clock import SystemClock
from foundation.postgres.pool import Database, DatabaseConfig
from tests.fixtures.databases import FreshDatabase
from tests.integration.business_gateway.gateway import Client, Running, serving
from tools.dev_stack import ObjectStoreAccess

_MIGRATIONS = Path(__file__).parents[3] / "business_gateway" / "sql" / "migrations"
PART_BYTES = 5 * 1024 * 1024


@pytest.fixture(scope="session")
def postgres_template_source() -> Path:
    """Every database of these tests has the gateway's schema."""
    return _MIGRATIONS


@pytest.fixture
async def gateway_database(postgres_database: FreshDatabase) -> AsyncIterator[Database]:
    """An open pool on a migrated database of the test's own."""
    config = DatabaseConfig(
        dsn=postgres_database.dsn, application_name="gateway-test", pool_size_max=8
    )
    async with Database(config) as database:
        yield database


@pytest.fixture
async def objects(object_store: ObjectStoreAccess) -> AsyncIterator[S3ObjectStore]:
    """The gateway's own client of the test's bucket."""
    config = ObjectStoreConfig(
        endpoint_url=object_store.endpoint_url,
        public_endpoint_url=object_store.endpoint_url,
        access_key=object_store.access_key,
        secret_key=object_store.secret_key,
        bucket=object_store.bucket,
        region=object_store.region,
        part_bytes=PART_BYTES,
    )
    async with S3ObjectStore(config, SystemClock()) as store:
        yield store


@pytest.fixture
async def running(
    postgres_database: FreshDatabase, object_store: ObjectStoreAccess
) -> AsyncIterator[Running]:
    """A whole gateway that serves on free ports."""
    async with serving(postgres_database, object_store) as gateway:
        yield gateway


@pytest.fixture
def client(running: Running) -> Client:
    """A client of that gateway."""
    return running.client
