"""The fixtures of real servers give each test its own, clean contents."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import aioboto3
import asyncpg
import nats
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.fixtures.databases import DatabaseFactory, FreshDatabase, TemplateSource
from tests.fixtures.servers import FreshNats
from tools.dev_stack import ObjectStoreAccess
from tools.dev_stack.postgres import PostgresServer

MakeDatabase = Callable[[TemplateSource | None], FreshDatabase]
REPOSITORY = Path(__file__).parents[3]

MIGRATION = """-- migrate:up
CREATE TABLE parcel (id bigint PRIMARY KEY);

-- migrate:down
DROP TABLE parcel;
"""

LEAVES_A_CONNECTION = """
import asyncpg

kept = []


async def test_leaves_a_connection(postgres_database):
    kept.append(await asyncpg.connect(postgres_database.dsn))
"""


class CountingBuilder:
    """A template source that counts how often it is asked to build."""

    def __init__(self) -> None:
        self.builds = 0

    async def __call__(self, dsn: str) -> None:
        self.builds += 1
        connection = await asyncpg.connect(dsn)
        await connection.execute("CREATE TABLE parcel (id bigint PRIMARY KEY)")
        await connection.close()


async def count_parcels(database: FreshDatabase, *, insert: bool = False) -> int:
    connection = await asyncpg.connect(database.dsn)
    try:
        if insert:
            await connection.execute("INSERT INTO parcel VALUES (1)")
        return int(await connection.fetchval("SELECT count(*) FROM parcel"))
    finally:
        await connection.close()


@pytest.fixture
def builder() -> CountingBuilder:
    return CountingBuilder()


@pytest.fixture
def twins(
    make_postgres_database: MakeDatabase, builder: CountingBuilder
) -> tuple[FreshDatabase, FreshDatabase]:
    return make_postgres_database(builder), make_postgres_database(builder)


async def test_databases_of_one_template_are_separate(
    twins: tuple[FreshDatabase, FreshDatabase], builder: CountingBuilder
) -> None:
    """Two databases of a template share its tables but no row, and it is built once."""
    first, second = twins
    assert await count_parcels(first, insert=True) == 1
    assert await count_parcels(second) == 0
    assert builder.builds == 1


@pytest.fixture
def migrated(make_postgres_database: MakeDatabase, tmp_path: Path) -> FreshDatabase:
    (tmp_path / "0001_parcel.sql").write_text(MIGRATION)
    return make_postgres_database(tmp_path)


async def test_a_template_can_be_a_folder_of_migrations(migrated: FreshDatabase) -> None:
    """A folder of dbmate migrations is applied to the template."""
    assert await count_parcels(migrated, insert=True) == 1


async def test_a_connection_left_open_is_reported(postgres_server: PostgresServer) -> None:
    """Dropping a database names the connections that were still open."""
    factory = DatabaseFactory(postgres_server)
    database = await factory.create(None)
    settings = {"application_name": "forgotten"}
    connection = await asyncpg.connect(database.dsn, server_settings=settings)
    left = await factory.drop(database)
    assert [one["application_name"] for one in left] == ["forgotten"]
    connection.terminate()
    await factory.close()


async def test_factory_survives_a_killed_server(postgres_server: PostgresServer) -> None:
    """After a test killed PostgreSQL, the next database is made on the restarted server."""
    factory = DatabaseFactory(postgres_server)
    await factory.drop(await factory.create(None))
    await postgres_server.kill()
    await factory.drop(await factory.create(None))
    await factory.close()


def test_a_test_that_leaves_a_connection_fails(tmp_path: Path) -> None:
    """The teardown of `postgres_database` turns a forgotten connection into an error."""
    (tmp_path / "test_leak.py").write_text(LEAVES_A_CONNECTION)
    command = [sys.executable, "-m", "pytest", "-p", "tests.fixtures.servers", "-q"]
    options = ["-o", "asyncio_mode=auto", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    ended = subprocess.run(
        [*command, *options, str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "the test left database connections open" in ended.stdout, ended.stdout + ended.stderr
    assert "1 passed, 1 error" in ended.stdout


@pytest.mark.parametrize("turn", [1, 2])
async def test_each_test_finds_no_stream(nats_server: FreshNats, turn: int) -> None:
    """A stream of one test, whatever its name, is gone in the next."""
    client = await nats.connect(nats_server.url)
    jetstream = client.jetstream()
    assert await jetstream.streams_info() == []
    await jetstream.add_stream(name="always_the_same", subjects=[f"{nats_server.prefix}.>"])
    ack = await jetstream.publish(f"{nats_server.prefix}.one", b"1")
    assert ack.seq == 1
    await client.close()


async def put_and_list(access: ObjectStoreAccess, key: str) -> list[str]:
    client = aioboto3.Session().client(
        "s3",
        endpoint_url=access.endpoint_url,
        aws_access_key_id=access.access_key,
        aws_secret_access_key=access.secret_key,
        region_name=access.region,
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}),
    )
    async with client as s3:
        await s3.put_object(Bucket=access.bucket, Key=key, Body=b"content")
        listing = await s3.list_objects_v2(Bucket=access.bucket)
        return [one["Key"] for one in listing["Contents"]]


@pytest.mark.parametrize("turn", ["one", "two"])
async def test_each_test_finds_an_empty_bucket(object_store: ObjectStoreAccess, turn: str) -> None:
    """The bucket of a test holds what this test put there, and nothing else."""
    assert await put_and_list(object_store, turn) == [turn]


async def test_a_wrong_secret_is_refused(object_store: ObjectStoreAccess) -> None:
    """The object store checks signatures, so that a client's mistake shows in tests."""
    wrong = ObjectStoreAccess(
        object_store.endpoint_url,
        object_store.access_key,
        "wrong" * 8,
        object_store.region,
        object_store.bucket,
    )
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        await put_and_list(wrong, "one")


def test_servers_are_usable_from_any_loop(postgres_database: FreshDatabase) -> None:
    """A synchronous test with a loop of its own reaches the servers as well."""

    async def ask() -> object:
        connection = await asyncpg.connect(postgres_database.dsn)
        try:
            return await connection.fetchval("SELECT current_database()")
        finally:
            await connection.close()

    assert asyncio.run(ask()) == postgres_database.name
