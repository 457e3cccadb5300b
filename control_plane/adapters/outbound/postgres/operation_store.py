"""Acts on live executions on PostgreSQL, one transaction each."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from control_plane.adapters.outbound.postgres.idempotency_store import recall, remember
from control_plane.adapters.outbound.postgres.scheduling_store import release_requests
from control_plane.adapters.outbound.postgres.snapshots import (
    SnapshotUnreadableError,
    WorkflowSnapshots,
)
from control_plane.core.engine.deadlines import resumed_deadline_at
from control_plane.core.engine.reuse import StepUnknownError
from control_plane.core.executions.attempt_state import AttemptStatus
from control_plane.core.executions.domain import StepKey, StepRef
from control_plane.core.executions.execution_state import ExecutionStatus
from control_plane.core.executions.operation_rules import (
    AttemptNotFoundError,
    AttemptStanding,
    Signal,
    StepEnd,
    check_extension,
    check_going_on,
    check_live,
    instance_of,
    signal_detail,
    signaled,
    skipped,
)
from control_plane.core.executions.operations import Act, Extended, StepActed
from control_plane.core.executions.queries import ExecutionNotFoundError
from control_plane.core.executions.step_state import STEP_MACHINE, StepStatus
from control_plane.core.workflows.compiling import CompiledStep, CompiledWorkflow
from foundation.ids import IdSource
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "operations.sql")


@dataclass(frozen=True, slots=True)
class _Step:
    """A step with its instances by item index, of an execution that is locked."""

    execution: Record
    compiled: CompiledStep
    instances: dict[int, StepStatus]
    now: datetime

    @property
    def status(self) -> ExecutionStatus:
        return ExecutionStatus(self.execution["status"])

    @property
    def has_items(self) -> bool:
        return self.compiled.for_each is not None


class PostgresOperationStore:
    """Implements OperationStore."""

    def __init__(self, database: Database, snapshots: WorkflowSnapshots, ids: IdSource) -> None:
        self._database = database
        self._snapshots = snapshots
        self._ids = ids

    async def signal(self, act: Act, ref: StepRef, signal: Signal) -> StepActed:
        """Answer a waiting approval; see the port."""

        async def run(connection: Connection) -> StepActed:
            step = await self._locked_step(connection, act, ref)
            place = step.compiled.place
            if not await _is_new(connection, act):
                return StepActed(place, created=False)
            check_going_on(act.subject_id, step.status)
            status = instance_of(ref, step.instances, has_items=step.has_items)
            end = signaled(ref, status, signal, step.now)
            STEP_MACHINE.path(status, end.status)
            entry = ("step.signaled", signal_detail(signal))
            await _end(connection, act, ref, [ref.item_index], end, entry)
            return StepActed(place, created=True)

        return await self._database.run_transaction(run)

    async def skip(self, act: Act, ref: StepRef) -> StepActed:
        """Skip a step that has not started; see the port."""

        async def run(connection: Connection) -> StepActed:
            step = await self._locked_step(connection, act, ref)
            place = step.compiled.place
            if not await _is_new(connection, act):
                return StepActed(place, created=False)
            check_going_on(act.subject_id, step.status)
            instance_of(ref, step.instances, has_items=step.has_items)
            items = skipped(ref, step.instances)
            if not items:
                return StepActed(place, created=False)
            if not step.instances:
                await _make_skipped(connection, act, step.compiled)
            end = StepEnd(StepStatus.SKIPPED)
            detail = json.dumps({"reason": act.reason}, ensure_ascii=False)
            await _end(connection, act, ref, items, end, ("step.skipped", detail))
            return StepActed(place, created=True)

        return await self._database.run_transaction(run)

    async def pause(self, act: Act) -> bool:
        """Stop dispatching; see the port."""

        async def run(connection: Connection) -> bool:
            execution = await _lock(connection, act.subject_id, act)
            if not await _is_new(connection, act):
                return False
            check_going_on(act.subject_id, ExecutionStatus(execution["status"]))
            if execution["paused"]:
                return False
            await connection.execute(_SQL.pause, act.subject_id, act.actor, act.reason)
            return True

        return await self._database.run_transaction(run)

    async def resume(self, act: Act) -> bool:
        """Undo a pause; see the port."""

        async def run(connection: Connection) -> bool:
            execution = await _lock(connection, act.subject_id, act)
            if not await _is_new(connection, act):
                return False
            check_live(act.subject_id, ExecutionStatus(execution["status"]))
            if not (execution["paused"] or execution["is_set_aside"]):
                return False
            deadlines = await self._resumed_deadlines(connection, execution)
            await connection.execute(
                _SQL.resume,
                act.subject_id,
                act.actor,
                act.reason,
                [ref.step_key for ref, _ in deadlines],
                [ref.item_index for ref, _ in deadlines],
                [deadline_at for _, deadline_at in deadlines],
            )
            await release_requests(connection, act.subject_id)
            return True

        return await self._database.run_transaction(run)

    async def extend(self, act: Act, extension: timedelta) -> Extended:
        """Move the run time-out of a live attempt; see the port."""

        async def run(connection: Connection) -> Extended:
            attempt_id = act.subject_id
            found = await connection.fetchval(_SQL.execution_of_attempt, attempt_id, act.owner)
            if found is None:
                raise AttemptNotFoundError(f"there is no attempt {attempt_id}: check its id")
            execution = await _lock(connection, found, act)
            attempt = await connection.fetchrow(_SQL.lock_attempt, attempt_id)
            assert attempt is not None, "attempts outlive what names them here"
            deadline_at: datetime | None = attempt["run_deadline_at"]
            is_new = await _is_new(connection, act)
            if is_new:
                check_live(found, ExecutionStatus(execution["status"]))
                check_extension(_standing(attempt_id, attempt), attempt["now"])
                deadline_at = await connection.fetchval(
                    _SQL.extend_attempt,
                    attempt_id,
                    extension,
                    self._ids.new_id(),
                    act.actor,
                    act.reason,
                )
            return Extended(found, attempt["node_id"], deadline_at, created=is_new)

        return await self._database.run_transaction(run)

    async def _locked_step(self, connection: Connection, act: Act, ref: StepRef) -> _Step:
        """Lock the execution and read a step of it; StepUnknownError."""
        execution = await _lock(connection, act.subject_id, act)
        workflow = await self._workflow(connection, execution)
        compiled = workflow.steps.get(ref.step_key)
        if compiled is None:
            raise StepUnknownError(
                f"the workflow of execution {act.subject_id} has no step {ref.step_key!r}: "
                "check its key"
            )
        rows = await connection.fetch(_SQL.step_instances, act.subject_id, ref.step_key)
        instances = {
            row["item_index"]: StepStatus(row["status"])
            for row in rows
            if row["status"] is not None
        }
        return _Step(execution, compiled, instances, rows[0]["now"])

    async def _workflow(self, connection: Connection, execution: Record) -> CompiledWorkflow:
        digest = execution["snapshot_digest"]
        workflow = (await self._snapshots.get(connection, [digest]))[digest]
        if isinstance(workflow, SnapshotUnreadableError):
            raise workflow
        return workflow

    async def _resumed_deadlines(
        self, connection: Connection, execution: Record
    ) -> list[tuple[StepRef, datetime]]:
        """Return the steps whose queue time the pause has stopped, with their new deadlines."""
        if execution["paused_at"] is None:
            return []
        rows = await connection.fetch(_SQL.queued_steps, execution["execution_id"])
        if not rows:
            return []
        workflow = await self._workflow(connection, execution)
        return [
            (
                StepRef(StepKey(row["step_key"]), row["item_index"]),
                resumed_deadline_at(
                    workflow.steps[row["step_key"]].definition.timeouts,
                    ready_at=row["ready_at"],
                    available_at=row["not_before"] or row["ready_at"],
                    deadline_at=row["deadline_at"],
                    paused_at=execution["paused_at"],
                    now=row["now"],
                ),
            )
            for row in rows
        ]


async def _lock(connection: Connection, execution_id: str, act: Act) -> Record:
    row = await connection.fetchrow(_SQL.lock_execution, execution_id, act.owner)
    if row is None:
        raise ExecutionNotFoundError(f"there is no execution {execution_id}: check its id")
    return row


async def _is_new(connection: Connection, act: Act) -> bool:
    """Remember the act; False for one that was answered before; IdempotencyKeyReusedError."""
    if await remember(connection, act.identity, act.subject_id):
        return True
    await recall(connection, act.identity)
    return False


async def _end(
    connection: Connection,
    act: Act,
    ref: StepRef,
    items: Sequence[int],
    end: StepEnd,
    entry: tuple[str, str],
) -> None:
    """End instances of a step; `entry` is the timeline's type and detail."""
    await connection.execute(
        _SQL.end_steps,
        act.subject_id,
        ref.step_key,
        items,
        end.status.value,
        end.output_json or None,
        end.failure_json or None,
        entry[0],
        act.actor,
        entry[1],
        ref.item_index,
    )


async def _make_skipped(connection: Connection, act: Act, step: CompiledStep) -> None:
    definition = step.definition
    await connection.execute(
        _SQL.make_skipped,
        act.subject_id,
        step.key,
        step.place,
        definition.capability,
        definition.capability_version,
    )


def _standing(attempt_id: str, row: Record) -> AttemptStanding:
    return AttemptStanding(
        attempt_id=attempt_id,
        status=AttemptStatus(row["status"]),
        stop_reason=row["stop_reason"],
        is_pending=row["is_pending"],
        run_deadline_at=row["run_deadline_at"],
    )
