"""What an act on a task writes, for one task or many, under locks that the caller holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from control_plane.adapters.outbound.postgres.event_writer import NewEvent, append_events
from control_plane.adapters.outbound.postgres.snapshots import (
    SnapshotUnreadableError,
    WorkflowSnapshots,
)
from control_plane.core.engine.reuse import RerunMode, Reuse, ReusePlan, plan_reuse
from control_plane.core.executions.control import RunNotTerminalError
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
from foundation.postgres.pool import Connection, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "control.sql")


@dataclass(frozen=True, slots=True)
class Because:
    """Who acts, and why."""

    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class LockedTask:
    """A task and its current execution, both locked: rows of lock_tasks and lock_executions."""

    task: Record
    current: Record

    @property
    def execution_id(self) -> str:
        """The current execution."""
        return str(self.task["current_execution_id"])

    @property
    def status(self) -> ExecutionStatus:
        """The current execution's state."""
        return ExecutionStatus(self.current["status"])


class TaskActs:
    """Writes cancellations and next runs in the caller's transaction."""

    def __init__(self, snapshots: WorkflowSnapshots, ids: IdSource, clock: Clock) -> None:
        self._snapshots = snapshots
        self._ids = ids
        self._clock = clock

    async def lock(
        self, connection: Connection, task_ids: Sequence[str], owner: str | None
    ) -> list[LockedTask]:
        """Lock tasks and then their current executions, each by ascending id.

        A task that is unknown, or another owner's, is left out.
        """
        tasks = await connection.fetch(_SQL.lock_tasks, list(task_ids), owner)
        ids = [one["current_execution_id"] for one in tasks]
        rows = await connection.fetch(_SQL.lock_executions, ids)
        executions = {row["execution_id"]: row for row in rows}
        return [LockedTask(one, executions[one["current_execution_id"]]) for one in tasks]

    async def cancel(
        self, connection: Connection, tasks: Sequence[LockedTask], because: Because
    ) -> list[str]:
        """Ask for the cancellation of each live current run; return the executions changed."""
        asked = [one for one in tasks if is_cancelable(one.status)]
        if not asked:
            return []
        ids = [one.execution_id for one in asked]
        await connection.execute(_SQL.start_canceling, ids)
        await connection.execute(
            _SQL.note_acts, ids, "execution.cancel_requested", because.actor, because.reason
        )
        events = [
            self._event(
                one.task,
                one.execution_id,
                run=one.current["run"],
                sequence=one.current["last_sequence"] + 1,
                status=ExecutionStatus.CANCELING,
                progress=one.current["progress_percent"],
            )
            for one in asked
        ]
        await append_events(connection, self._ids, events)
        return ids

    async def start_next(
        self,
        connection: Connection,
        locked: LockedTask,
        because: Because,
        reuse: Reuse,
        new_id: str,
    ) -> None:
        """Start the next run; every refusal comes before anything is written.

        Raises RunNotTerminalError while the current run lives, the errors of plan_reuse, and
        SnapshotUnreadableError.
        """
        task, current_id = locked.task, locked.execution_id
        if not EXECUTION_MACHINE.is_terminal(locked.status):
            raise RunNotTerminalError(
                f"run {task['current_run']} of task {task['task_id']} is {locked.status}: "
                "cancel it, or wait until it has ended"
            )
        plan = await self._planned(connection, locked, reuse)
        await connection.execute(_SQL.insert_rerun, current_id, new_id)
        await _take_over(connection, current_id, new_id, plan)
        await connection.execute(
            _SQL.note_rerun,
            new_id,
            because.actor,
            because.reason,
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

    async def _planned(self, connection: Connection, locked: LockedTask, reuse: Reuse) -> ReusePlan:
        if reuse.mode is RerunMode.FROM_SCRATCH:
            return ReusePlan()
        digest = locked.current["snapshot_digest"]
        workflow = (await self._snapshots.get(connection, [digest]))[digest]
        if isinstance(workflow, SnapshotUnreadableError):
            raise workflow
        rows = await connection.fetch(_SQL.ended_steps, locked.execution_id)
        ended = {
            StepRef(StepKey(row["step_key"]), row["item_index"]): StepStatus(row["status"])
            for row in rows
        }
        has_succeeded = locked.status is ExecutionStatus.SUCCEEDED
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


def is_cancelable(status: ExecutionStatus) -> bool:
    """Whether a cancel still changes anything."""
    return not EXECUTION_MACHINE.is_terminal(status) and status is not ExecutionStatus.CANCELING


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
