"""Cancel and rerun on PostgreSQL, one transaction each."""

from typing import Final

from control_plane.adapters.outbound.postgres.event_writer import NewEvent, append_events
from control_plane.adapters.outbound.postgres.idempotency_store import recall, remember
from control_plane.adapters.outbound.postgres.snapshots import (
    SnapshotUnreadableError,
    WorkflowSnapshots,
)
from control_plane.core.engine.reuse import RerunMode, Reuse, ReusePlan, plan_reuse
from control_plane.core.executions.control import ActResult, RunNotTerminalError, TaskAct
from control_plane.core.executions.domain import (
    ExecutionEvent,
    ExecutionEventType,
    ExecutionId,
    StepKey,
    StepRef,
    TaskId,
)
from control_plane.core.executions.envelope import envelope
from control_plane.core.executions.execution_state import EXECUTION_MACHINE, ExecutionStatus
from control_plane.core.executions.step_state import StepStatus
from foundation.clock import Clock
from foundation.ids import IdSource
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "control.sql")


class PostgresTaskControlStore:
    """Implements TaskControlStore."""

    def __init__(
        self, database: Database, snapshots: WorkflowSnapshots, ids: IdSource, clock: Clock
    ) -> None:
        self._database = database
        self._snapshots = snapshots
        self._ids = ids
        self._clock = clock

    async def cancel(self, act: TaskAct) -> ActResult | None:
        """Ask for the cancellation of a live current run; None for an unknown task."""

        async def run(connection: Connection) -> ActResult | None:
            task = await connection.fetchrow(_SQL.lock_task, act.task_id, act.owner)
            if task is None:
                return None
            meant = await _meant_execution(connection, task, act.run)
            if not await remember(connection, act.identity, meant):
                return ActResult(await recall(connection, act.identity), created=False)
            if meant != task["current_execution_id"]:
                return ActResult(meant, created=False)
            return await self._cancel_current(connection, task, act)

        return await self._database.run_transaction(run)

    async def _cancel_current(
        self, connection: Connection, task: Record, act: TaskAct
    ) -> ActResult:
        execution_id = task["current_execution_id"]
        current = await connection.fetchrow(_SQL.lock_current_execution, execution_id)
        assert current is not None
        status = ExecutionStatus(current["status"])
        if EXECUTION_MACHINE.is_terminal(status) or status is ExecutionStatus.CANCELING:
            return ActResult(execution_id, created=False)
        await connection.execute(_SQL.start_canceling, execution_id)
        await connection.execute(
            _SQL.note_act, execution_id, "execution.cancel_requested", act.actor, act.reason
        )
        event = self._event(
            task,
            execution_id,
            run=current["run"],
            sequence=current["last_sequence"] + 1,
            status=ExecutionStatus.CANCELING,
            progress=current["progress_percent"],
        )
        await append_events(connection, self._ids, [event])
        return ActResult(execution_id, created=True)

    async def rerun(self, act: TaskAct, reuse: Reuse) -> ActResult | None:
        """Start the next run; None for an unknown task; see the port."""

        async def run(connection: Connection) -> ActResult | None:
            task = await connection.fetchrow(_SQL.lock_task, act.task_id, act.owner)
            if task is None:
                return None
            new_id = self._ids.new_id()
            stale = act.run not in (0, task["current_run"])
            answer = task["current_execution_id"] if stale else new_id
            if not await remember(connection, act.identity, answer):
                return ActResult(await recall(connection, act.identity), created=False)
            if stale:
                return ActResult(answer, created=False)
            return await self._start_next(connection, task, act, reuse, new_id)

        return await self._database.run_transaction(run)

    async def _start_next(
        self, connection: Connection, task: Record, act: TaskAct, reuse: Reuse, new_id: str
    ) -> ActResult:
        current_id = task["current_execution_id"]
        current = await connection.fetchrow(_SQL.lock_current_execution, current_id)
        assert current is not None
        if not EXECUTION_MACHINE.is_terminal(ExecutionStatus(current["status"])):
            raise RunNotTerminalError(
                f"run {task['current_run']} of task {act.task_id} is {current['status']}: "
                "cancel it, or wait until it has ended"
            )
        plan = await self._planned(connection, current_id, current, reuse)
        await connection.execute(_SQL.insert_rerun, current_id, new_id)
        await _take_over(connection, current_id, new_id, plan)
        await connection.execute(
            _SQL.note_rerun,
            new_id,
            act.actor,
            act.reason,
            reuse.mode.value,
            reuse.from_step,
            current_id,
            len(plan.kept),
        )
        event = self._event(
            task,
            new_id,
            run=task["current_run"] + 1,
            sequence=1,
            status=ExecutionStatus.CREATED,
            progress=0,
        )
        await append_events(connection, self._ids, [event])
        return ActResult(new_id, created=True)

    async def _planned(
        self, connection: Connection, current_id: str, current: Record, reuse: Reuse
    ) -> ReusePlan:
        if reuse.mode is RerunMode.FROM_SCRATCH:
            return ReusePlan()
        digest = current["snapshot_digest"]
        workflow = (await self._snapshots.get(connection, [digest]))[digest]
        if isinstance(workflow, SnapshotUnreadableError):
            raise workflow
        rows = await connection.fetch(_SQL.ended_steps, current_id)
        ended = {
            StepRef(StepKey(row["step_key"]), row["item_index"]): StepStatus(row["status"])
            for row in rows
        }
        has_succeeded = current["status"] == ExecutionStatus.SUCCEEDED
        return plan_reuse(workflow, ended, reuse, has_succeeded=has_succeeded)

    def _event(
        self,
        task: Record,
        execution_id: str,
        *,
        run: int,
        sequence: int,
        status: ExecutionStatus,
        progress: int,
    ) -> NewEvent:
        canceling = status is ExecutionStatus.CANCELING
        kind = ExecutionEventType.CANCELING if canceling else ExecutionEventType.CREATED
        event_id = self._ids.new_id()
        told = ExecutionEvent(
            application_id=task["application_id"],
            task_id=TaskId(task["task_id"]),
            execution_id=ExecutionId(execution_id),
            external_ref=task["external_ref"],
            sequence=sequence,
            run=run,
            status=status,
            progress=progress,
        )
        return NewEvent(
            execution_id=execution_id,
            event_id=event_id,
            sequence=sequence,
            type=kind,
            status=status,
            progress_percent=progress,
            envelope=envelope(told, kind, event_id, self._clock.now()),
            application_id=task["application_id"],
            with_callback=bool(task["callback_url"]),
        )


async def _take_over(connection: Connection, current_id: str, new_id: str, plan: ReusePlan) -> None:
    """Write the steps of the new run that do not begin from nothing."""
    refs = [*plan.kept, *plan.lists, *plan.items]
    if refs:
        await connection.execute(
            _SQL.take_over_steps,
            current_id,
            new_id,
            [ref.step_key for ref in refs],
            [ref.item_index for ref in refs],
            [place < len(plan.kept) for place in range(len(refs))],
        )


async def _meant_execution(connection: Connection, task: Record, run: int) -> str:
    """Name the execution of the run that is meant; an unknown run means the current one."""
    if run in (0, task["current_run"]):
        return str(task["current_execution_id"])
    found = await connection.fetchval(_SQL.execution_of_run, task["task_id"], run)
    return str(found or task["current_execution_id"])
