"""Each contract test runs on the outbox in memory, in SQLite and in PostgreSQL."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from foundation.outbox.policy import OutboxPolicy
from tests.contract.outbox.harness import (
    MemoryHarness,
    OutboxHarness,
    PostgresHarness,
    SqliteHarness,
    create_postgres_outbox,
)
from tests.fixtures.databases import FreshDatabase, TemplateSource

HarnessMaker: TypeAlias = Callable[[OutboxPolicy], Awaitable[OutboxHarness]]


@pytest.fixture(scope="session")
def postgres_template_source() -> TemplateSource:
    return create_postgres_outbox


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def outbox_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def outbox_dsn(request: pytest.FixtureRequest, outbox_kind: str) -> str:
    # The servers' fixtures run a loop of their own, so they cannot be asked for from a coroutine.
    if outbox_kind != "postgres":
        return ""
    database: FreshDatabase = request.getfixturevalue("postgres_database")
    return database.dsn


@pytest.fixture
async def make_harness(
    outbox_kind: str, outbox_dsn: str, tmp_path: Path
) -> AsyncIterator[HarnessMaker]:
    opened: list[SqliteHarness | PostgresHarness] = []

    async def make(policy: OutboxPolicy) -> OutboxHarness:
        if outbox_kind == "memory":
            return MemoryHarness(policy)
        harness: SqliteHarness | PostgresHarness
        if outbox_kind == "sqlite":
            harness = SqliteHarness(policy, tmp_path / "outbox.db")
        else:
            harness = PostgresHarness(policy, outbox_dsn)
        opened.append(harness)
        await harness.open()
        return harness

    yield make
    for harness in opened:
        await harness.close()
