"""Cancel and rerun on PostgreSQL, one transaction each."""

from typing import Final

from control_plane.adapters.outbound.postgres.idempotency_store import recall, remember
from control_plane.adapters.outbound.postgres.task_acts import Because, LockedTask, TaskActs
from control_plane.core.engine.reuse import Reuse
from control_plane.core.executions.control import ActResult, TaskAct
from foundation.ids import IdSource
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database

_SQL: Final = NamedSql.load("control_plane.sql.queries", "control.sql")


class PostgresTaskControlStore:
    """Implements TaskControlStore."""

    def __init__(self, database: Database, acts: TaskActs, ids: IdSource) -> None:
        self._database = database
        self._acts = acts
        self._ids = ids

    async def cancel(self, act: TaskAct) -> ActResult | None:
        """Ask for the cancellation of a live current run; None for an unknown task."""

        async def run(connection: Connection) -> ActResult | None:
            locked = await self._acts.lock(connection, [act.task_id], act.owner)
            if not locked:
                return None
            meant = await _meant_execution(connection, locked[0], act.run)
            if not await remember(connection, act.identity, meant):
                return ActResult(await recall(connection, act.identity), created=False)
            if meant != locked[0].execution_id:
                return ActResult(meant, created=False)
            changed = await self._acts.cancel(connection, locked, Because(act.actor, act.reason))
            return ActResult(meant, created=bool(changed))

        return await self._database.run_transaction(run)

    async def rerun(self, act: TaskAct, reuse: Reuse) -> ActResult | None:
        """Start the next run; None for an unknown task; see the port."""

        async def run(connection: Connection) -> ActResult | None:
            locked = await self._acts.lock(connection, [act.task_id], act.owner)
            if not locked:
                return None
            (one,) = locked
            new_id = self._ids.new_id()
            stale = act.run not in (0, one.task["current_run"])
            answer = one.execution_id if stale else new_id
            if not await remember(connection, act.identity, answer):
                return ActResult(await recall(connection, act.identity), created=False)
            if stale:
                return ActResult(answer, created=False)
            because = Because(act.actor, act.reason)
            await self._acts.start_next(connection, one, because, reuse, new_id)
            return ActResult(new_id, created=True)

        return await self._database.run_transaction(run)


async def _meant_execution(connection: Connection, locked: LockedTask, run: int) -> str:
    """Name the execution of the run that is meant; an unknown run means the current one."""
    if run in (0, locked.task["current_run"]):
        return locked.execution_id
    found = await connection.fetchval(_SQL.execution_of_run, locked.task["task_id"], run)
    return str(found or locked.execution_id)
