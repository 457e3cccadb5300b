"""Removes what is over, in bounded batches."""

from datetime import timedelta
from typing import Final

from control_plane.core.retention.domain import Place, Swept
from foundation.outbox.postgres_store import PostgresOutboxStore
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "retention.sql")


class PostgresRetentionStore:
    """Implements RetentionStore."""

    def __init__(self, database: Database, wake_ups: PostgresOutboxStore) -> None:
        self._database = database
        self._wake_ups = wake_ups

    async def remove_finished(self, age: timedelta, after: Place | None, limit: int) -> Swept:
        """See RetentionStore."""

        async def run(connection: Connection) -> Swept:
            walked = await connection.fetch(_SQL.finished_tasks, age, *_place(after), limit)
            task_ids = sorted({row["task_id"] for row in walked})
            removed = await _remove_tasks(connection, task_ids, age)
            last = walked[-1] if len(walked) == limit else None
            place = None if last is None else Place(last["completed_at"], last["execution_id"])
            return Swept(removed, place)

        return await self._database.run_transaction(run)

    async def remove_records(self, age: timedelta, after: Place | None, limit: int) -> Swept:
        """See RetentionStore."""
        rows = await self._database.fetch(_SQL.remove_records, age, *_place(after), limit)
        return _swept(rows[0], limit)

    async def remove_uncommitted(self, age: timedelta, after: Place | None, limit: int) -> Swept:
        """See RetentionStore."""
        rows = await self._database.fetch(_SQL.remove_uncommitted, age, *_place(after), limit)
        return _swept(rows[0], limit)

    async def remove_published(self, age: timedelta, limit: int) -> int:
        """See RetentionStore."""
        return await self._wake_ups.remove_published(age.total_seconds(), limit)


async def _remove_tasks(connection: Connection, task_ids: list[object], age: timedelta) -> int:
    if not task_ids:
        return 0
    locked = [row["task_id"] for row in await connection.fetch(_SQL.lock_old_tasks, task_ids)]
    await connection.fetch(_SQL.lock_old_executions, locked)
    rows = await connection.fetch(_SQL.removable_executions, locked, age)
    removable = sorted({row["task_id"] for row in rows})
    if removable:
        await connection.execute(
            _SQL.remove_tasks, removable, [row["execution_id"] for row in rows]
        )
    return len(removable)


def _place(place: Place | None) -> tuple[object, object]:
    return (None, None) if place is None else (place.moment, place.key)


def _swept(row: Record, limit: int) -> Swept:
    over = row["walked_count"] < limit
    return Swept(row["removed_count"], None if over else Place(row["moment"], row["key"]))
