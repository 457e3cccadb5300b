"""Bulk cancels and reruns on PostgreSQL, a part a transaction."""

from collections.abc import Sequence
from typing import Final

from control_plane.adapters.outbound.postgres.bulk_records import keep_progress, take_progress
from control_plane.adapters.outbound.postgres.snapshots import SnapshotUnreadableError
from control_plane.adapters.outbound.postgres.task_acts import Because, LockedTask, TaskActs
from control_plane.adapters.outbound.postgres.task_filters import fitting_arguments
from control_plane.core.bulk import BulkPart
from control_plane.core.engine.reuse import NoFailedItemsError, NothingToRerunError, Reuse
from control_plane.core.executions.bulk import BulkAct
from control_plane.core.executions.control import RunNotTerminalError
from control_plane.core.executions.filters import TaskFilter
from foundation.failpoints import failpoint
from foundation.ids import IdSource
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database

_SQL: Final = NamedSql.load("control_plane.sql.queries", "executions_read.sql", "bulk.sql")
CANCELS_PER_PART: Final = 200
RERUNS_PER_PART: Final = 50
"""A rerun is planned by itself, so a part of them holds its locks for longer."""
_REFUSALS: Final = (
    RunNotTerminalError,
    NoFailedItemsError,
    NothingToRerunError,
    SnapshotUnreadableError,
)


class PostgresBulkStore:
    """Implements BulkStore."""

    def __init__(self, database: Database, acts: TaskActs, ids: IdSource) -> None:
        self._database = database
        self._acts = acts
        self._ids = ids

    async def count(self, owner: str | None, wanted: TaskFilter, count_max: int) -> int:
        """Count the tasks that fit, up to `count_max`."""

        async def count(connection: Connection) -> int:
            await connection.execute(_SQL.plan_for_these_values)
            fitting = fitting_arguments(owner, wanted, None)
            return int(await connection.fetchval(_SQL.count_tasks, *fitting, count_max))

        return await self._database.run_transaction(count)

    async def advance(self, act: BulkAct) -> BulkPart:
        """Do the next part of an act, newest task first; see the port."""
        await failpoint("bulk.part.before")
        part = await self._database.run_transaction(lambda one: self._advance(one, act))
        await failpoint("bulk.part.after")
        return part

    async def _advance(self, connection: Connection, act: BulkAct) -> BulkPart:
        progress = await take_progress(connection, act.identity)
        if progress.done:
            return BulkPart(progress, replayed=True)
        size = progress.part_size(CANCELS_PER_PART if act.reuse is None else RERUNS_PER_PART)
        found = await self._found(connection, act, progress.position or None, size + 1)
        task_ids = found[:size]
        locked = await self._acts.lock(connection, task_ids, act.owner)
        because = Because(act.actor, act.reason)
        if act.reuse is None:
            changed, refused = await self._acts.cancel(connection, locked, because), 0
        else:
            changed = await self._rerun(connection, locked, because, act.reuse)
            refused = len(task_ids) - len(changed)
        progress = progress.after(
            matched=len(task_ids),
            changed=len(changed),
            refused=refused,
            position=task_ids[-1] if task_ids else "",
            more=len(found) > size,
        )
        await keep_progress(connection, act.identity, progress)
        return BulkPart(progress, tuple(changed))

    async def _found(
        self, connection: Connection, act: BulkAct, before_id: str | None, limit: int
    ) -> list[str]:
        await connection.execute(_SQL.plan_for_these_values)
        fitting = fitting_arguments(act.owner, act.wanted, before_id)
        rows = await connection.fetch(_SQL.fitting_task_ids, *fitting, limit)
        await connection.execute(_SQL.plan_as_usual)
        return [row["task_id"] for row in rows]

    async def _rerun(
        self,
        connection: Connection,
        tasks: Sequence[LockedTask],
        because: Because,
        reuse: Reuse,
    ) -> list[str]:
        started: list[str] = []
        for one in tasks:
            new_id = self._ids.new_id()
            try:
                await self._acts.start_next(connection, one, because, reuse, new_id)
            except _REFUSALS:
                continue
            started.append(new_id)
        return started
