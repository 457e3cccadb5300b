"""One way for the contract suite to fill, read and age an outbox, whatever holds it."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Protocol
from uuid import UUID

import asyncpg

from foundation.clock import ManualClock
from foundation.outbox.policy import OutboxPolicy
from foundation.outbox.ports import OutboxAdministration, OutboxStore
from foundation.outbox.postgres_store import PostgresOutboxStore
from foundation.outbox.sqlite_store import SqliteOutboxStore
from foundation.postgres.pool import Database, DatabaseConfig
from foundation.sqlite.database import LocalDatabase, LocalDatabaseConfig
from tests.contract.outbox.memory_store import MemoryOutboxStore

TABLE = "test_outbox"


class FullStore(OutboxStore, OutboxAdministration, Protocol):
    """Both ports of an outbox."""


@dataclass(frozen=True, slots=True)
class NewRow:
    outbox_id: UUID
    ordering_key: str | None = None
    destination: str = "stream"
    payload: str = "{}"


class OutboxHarness(Protocol):
    """An outbox whose time the test owns."""

    @property
    def policy(self) -> OutboxPolicy: ...

    def store(self) -> FullStore:
        """A store over the same rows; several stand for several relays."""
        ...

    async def insert(self, *rows: NewRow) -> None: ...

    async def columns(self, outbox_id: UUID) -> Mapping[str, object]:
        """status, attempts, claims, held, last_error of a row."""
        ...

    async def advance(self, seconds: float) -> None: ...


class MemoryHarness:
    def __init__(self, policy: OutboxPolicy) -> None:
        self.policy = policy
        self._clock = ManualClock()
        self._store = MemoryOutboxStore(policy, self._clock)

    def store(self) -> FullStore:
        return self._store

    async def insert(self, *rows: NewRow) -> None:
        for row in rows:
            self._store.insert(
                row.outbox_id,
                ordering_key=row.ordering_key,
                destination=row.destination,
                payload=row.payload,
            )

    async def columns(self, outbox_id: UUID) -> Mapping[str, object]:
        one = self._store.stored[outbox_id]
        return {
            "status": one.status.value,
            "attempts": one.row.attempts,
            "claims": one.row.claims,
            "held": one.held,
            "last_error": one.last_error,
        }

    async def advance(self, seconds: float) -> None:
        self._clock.advance(seconds)


class SqliteHarness:
    def __init__(self, policy: OutboxPolicy, path: Path) -> None:
        self.policy = policy
        self.clock = ManualClock()
        self.database = LocalDatabase(LocalDatabaseConfig(path))

    async def open(self) -> None:
        await self.database.open()
        statements = outbox_columns("columns_sqlite.sql").split(";")

        def create(connection: sqlite3.Connection) -> None:
            for statement in statements:
                connection.execute(statement)

        await self.database.transaction(create)

    async def close(self) -> None:
        await self.database.close()

    def store(self) -> FullStore:
        return SqliteOutboxStore(
            self.database, self.policy, self.clock, table=TABLE, keep_published=True
        )

    async def insert(self, *rows: NewRow) -> None:
        def insert_all(connection: sqlite3.Connection) -> None:
            for row in rows:
                connection.execute(
                    f"insert into {TABLE} (outbox_id, ordering_key, destination, payload,"  # noqa: S608 - a constant of this test
                    " available_at, created_at) values (?, ?, ?, ?, ?, ?)",
                    (
                        str(row.outbox_id),
                        row.ordering_key,
                        row.destination,
                        row.payload,
                        self.clock.monotonic(),
                        self.clock.now().isoformat(),
                    ),
                )

        await self.database.transaction(insert_all)

    async def columns(self, outbox_id: UUID) -> Mapping[str, object]:
        statement = f"select * from {TABLE} where outbox_id = ?"  # noqa: S608 - a constant

        def read(connection: sqlite3.Connection) -> dict[str, object]:
            return dict(connection.execute(statement, (str(outbox_id),)).fetchone())

        row = await self.database.read(read)
        return {**row, "held": bool(row["held"])}

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)


class PostgresHarness:
    def __init__(self, policy: OutboxPolicy, dsn: str) -> None:
        self.policy = policy
        self._dsn = dsn
        self.database = Database(DatabaseConfig(dsn, "outbox-contract", pool_size_max=8))
        self._offset_s = 0.0

    async def open(self) -> None:
        await self.database.open()

    async def close(self) -> None:
        await self.database.close()

    def store(self) -> FullStore:
        return PostgresOutboxStore(self.database, self.policy, table=TABLE)

    async def insert(self, *rows: NewRow) -> None:
        async with self.database.transaction() as connection:
            for row in rows:
                await connection.execute(
                    f"insert into {TABLE} (outbox_id, ordering_key, destination, payload)"  # noqa: S608 - a constant of this test
                    " values ($1, $2, $3, $4)",
                    row.outbox_id,
                    row.ordering_key,
                    row.destination,
                    row.payload,
                )

    async def columns(self, outbox_id: UUID) -> Mapping[str, object]:
        statement = f"select * from {TABLE} where outbox_id = $1"  # noqa: S608 - a constant
        row = await self.database.fetchrow(statement, outbox_id)
        assert row is not None
        return dict(row)

    async def advance(self, seconds: float) -> None:
        self._offset_s += seconds
        await set_clock_offset(self._dsn, self._offset_s)
        await self.database.replace_connections()


async def set_clock_offset(dsn: str, offset_s: float) -> None:
    """Move the database's tdp_now() for every connection made from now on."""
    connection = await asyncpg.connect(dsn)
    try:
        name = await connection.fetchval("select current_database()")
        await connection.execute(
            f"alter database {name} set tdp.clock_offset = '{offset_s} seconds'"
        )
    finally:
        await connection.close()


async def create_postgres_outbox(dsn: str) -> None:
    """Fill an empty database with tdp_now() and the documented columns; a template source."""
    connection = await asyncpg.connect(dsn)
    try:
        time_sql = files("foundation.postgres").joinpath("database_time.sql")
        await connection.execute(time_sql.read_text(encoding="utf-8"))
        await connection.execute(outbox_columns("columns.sql"))
    finally:
        await connection.close()


def outbox_columns(file_name: str) -> str:
    text = files("foundation.outbox").joinpath(file_name).read_text(encoding="utf-8")
    return text.replace("{{table}}", TABLE)
