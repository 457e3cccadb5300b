"""Callbacks on PostgreSQL: their list, their log, and their redelivery."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from control_plane.adapters.outbound.postgres.bulk_records import keep_progress, take_progress
from control_plane.adapters.outbound.postgres.task_filters import fitting_arguments
from control_plane.core.bulk import BulkPart
from control_plane.core.callbacks.redelivery import (
    LOG_ENTRIES_SHOWN_MAX,
    CallbackSelection,
    CallbackView,
    LogEntry,
    Redelivery,
)
from foundation.outbox.model import Mark, OutboxStatus
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load(
    "control_plane.sql.queries", "callbacks.sql", "executions_read.sql", "bulk.sql"
)
REDELIVERIES_PER_PART: Final = 1_000
LOGGED_STATUSES: Final = frozenset({OutboxStatus.FAILED, OutboxStatus.DEAD})


class PostgresCallbackStore:
    """Implements CallbackStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, selection: CallbackSelection, before: int | None, limit: int
    ) -> Sequence[CallbackView]:
        """Read up to `limit` deliveries before a position, newest first."""

        async def read(connection: Connection) -> Sequence[Record]:
            await connection.execute(_SQL.plan_for_these_values)
            return await connection.fetch(
                _SQL.list_callbacks,
                selection.owner,
                selection.execution_id,
                sorted(selection.statuses),
                before,
                limit,
                LOG_ENTRIES_SHOWN_MAX,
            )

        return [_view(row) for row in await self._database.run_transaction(read)]

    async def count(self, act: Redelivery, count_max: int) -> int:
        """Count what a redelivery would come to, up to `count_max`."""

        async def count(connection: Connection) -> int:
            await connection.execute(_SQL.plan_for_these_values)
            arguments = _fitting(act, position=0, limit=count_max)
            return int(await connection.fetchval(_SQL.count_callbacks, *arguments))

        return await self._database.run_transaction(count)

    async def advance(self, act: Redelivery) -> BulkPart:
        """Do the next part of a redelivery, oldest first, with how far it came."""
        return await self._database.run_transaction(lambda one: self._advance(one, act))

    async def _advance(self, connection: Connection, act: Redelivery) -> BulkPart:
        progress = await take_progress(connection, act.identity)
        if progress.done:
            return BulkPart(progress, replayed=True)
        size = progress.part_size(REDELIVERIES_PER_PART)
        await connection.execute(_SQL.plan_for_these_values)
        arguments = _fitting(act, position=int(progress.position or 0), limit=size + 1)
        found = await connection.fetch(_SQL.fitting_callbacks, *arguments)
        await connection.execute(_SQL.plan_as_usual)
        part = found[:size]
        ids = [row["outbox_id"] for row in part]
        changed = await connection.fetch(_SQL.redeliver, ids, act.actor)
        progress = progress.after(
            matched=len(part),
            changed=len(changed),
            refused=0,
            position=str(part[-1]["position"]) if part else "",
            more=len(found) > size,
        )
        await keep_progress(connection, act.identity, progress)
        return BulkPart(progress)


async def note_failures(connection: Connection, marks: Sequence[Mark]) -> None:
    """Keep, in the transaction that marks, what endpoints answered to tries that count.

    Rows that only wait for a disabled endpoint were not tried, and are not noted.
    """
    failed = [one for one in marks if one.status in LOGGED_STATUSES and one.attempts_added]
    if failed:
        await connection.execute(
            _SQL.note_failures,
            [one.outbox_id for one in failed],
            [one.status.lower() for one in failed],
            [one.error or "" for one in failed],
        )


def _fitting(act: Redelivery, *, position: int, limit: int) -> tuple[object, ...]:
    return (
        *fitting_arguments(act.owner, act.wanted, None),
        act.execution_id,
        sorted(act.statuses),
        position,
        limit,
    )


def _view(row: Record) -> CallbackView:
    return CallbackView(
        callback_id=row["outbox_id"],
        event_id=row["event_id"],
        event_type=row["event_type"],
        application_id=row["application_id"],
        task_id=row["task_id"],
        execution_id=row["execution_id"],
        sequence=row["sequence"],
        position=row["position"],
        status=OutboxStatus(row["status"]),
        attempt_count=row["attempts"],
        held=row["held"],
        redelivered=row["redriven"],
        last_error=row["last_error"],
        created_at=row["created_at"],
        due_at=row["available_at"],
        delivered_at=row["published_at"],
        log=tuple(
            LogEntry(kind, detail, datetime.fromtimestamp(at_s, UTC))
            for kind, detail, at_s in json.loads(row["entries"])
        ),
    )
