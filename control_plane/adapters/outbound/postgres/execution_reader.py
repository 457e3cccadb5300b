"""Reads of tasks and executions on PostgreSQL."""

import json
from collections.abc import Sequence
from typing import Final

from control_plane.adapters.outbound.postgres.task_filters import fitting_arguments
from control_plane.core.executions.filters import TaskFilter
from control_plane.core.executions.views import (
    AttemptView,
    EventView,
    ExecutionView,
    StepView,
    TaskView,
    TimelineView,
)
from control_plane.limits import PAGE_BYTES_MAX
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "executions_read.sql")


class PostgresExecutionReader:
    """Implements ExecutionReader."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def task(self, task_id: str, owner: str | None) -> TaskView | None:
        """Read one task with its current execution."""
        row = await self._database.fetchrow(_SQL.read_task, task_id, owner)
        return None if row is None else _task(row)

    async def tasks(
        self, owner: str | None, wanted: TaskFilter, before_id: str | None, limit: int
    ) -> Sequence[TaskView]:
        """Read up to `limit` tasks older than `before_id`, newest first."""

        async def read(connection: Connection) -> Sequence[Record]:
            await connection.execute(_SQL.plan_for_these_values)
            fitting = fitting_arguments(owner, wanted, before_id)
            return await connection.fetch(_SQL.list_tasks, *fitting, limit, PAGE_BYTES_MAX)

        return [_task(row) for row in await self._database.run_transaction(read)]

    async def executions_of(
        self, task_id: str, before_run: int | None, limit: int
    ) -> Sequence[ExecutionView]:
        """Read up to `limit` executions of a task below `before_run`, newest first."""
        rows = await self._database.fetch(_SQL.list_executions, task_id, before_run, limit)
        return [_execution(row) for row in rows]

    async def execution(self, execution_id: str, owner: str | None) -> ExecutionView | None:
        """Read one execution."""
        row = await self._database.fetchrow(_SQL.read_execution, execution_id, owner)
        return None if row is None else _execution(row)

    async def events(
        self, execution_id: str, after_sequence: int, limit: int
    ) -> Sequence[EventView]:
        """Read up to `limit` events after a sequence, in order."""
        rows = await self._database.fetch(_SQL.list_events, execution_id, after_sequence, limit)
        return [_event(row) for row in rows]

    async def steps(
        self, execution_id: str, after: tuple[int, int] | None, limit: int
    ) -> Sequence[StepView]:
        """Read up to `limit` steps after (position, item index), in that order."""
        position, item_index = after or (None, None)
        rows = await self._database.fetch(
            _SQL.list_steps, execution_id, position, item_index, limit
        )
        return [_step(row) for row in rows]

    async def attempts(
        self, execution_id: str, step_key: str, after_id: str | None, limit: int
    ) -> Sequence[AttemptView]:
        """Read up to `limit` attempts after an attempt id, oldest first; "" means every step."""
        rows = await self._database.fetch(
            _SQL.list_attempts, execution_id, step_key, after_id, limit, None
        )
        return [_attempt(row) for row in rows]

    async def attempt(self, execution_id: str, attempt_id: str) -> AttemptView | None:
        """Read one attempt of an execution."""
        row = await self._database.fetchrow(
            _SQL.list_attempts, execution_id, "", None, 1, attempt_id
        )
        return None if row is None else _attempt(row)

    async def timeline(
        self, execution_id: str, after_id: int, limit: int
    ) -> Sequence[TimelineView]:
        """Read up to `limit` timeline entries after an entry id, oldest first."""
        rows = await self._database.fetch(_SQL.list_timeline, execution_id, after_id, limit)
        return [_timeline(row) for row in rows]


def _execution(row: Record) -> ExecutionView:
    return ExecutionView(
        execution_id=str(row["execution_id"]),
        task_id=str(row["task_id"]),
        application_id=str(row["application_id"]),
        run=row["run"],
        status=row["status"],
        closing_as=row["closing_as"],
        progress_percent=row["progress_percent"],
        version=row["version"],
        last_sequence=row["last_sequence"],
        paused=row["paused"],
        output_json=row["output"],
        failure_json=row["failure"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        completed_at=row["completed_at"],
        waiting_for=row["waiting_for"],
    )


def _task(row: Record) -> TaskView:
    return TaskView(
        task_id=str(row["task_id"]),
        application_id=str(row["application_id"]),
        name=row["name"],
        external_ref=row["external_ref"],
        workflow_name=row["workflow_name"],
        workflow_version=row["workflow_version"],
        priority=row["priority"],
        input_json=row["input"],
        callback_url=row["callback_url"],
        labels=json.loads(row["labels"]),
        created_at=row["task_created_at"],
        current=_execution(row),
    )


def _event(row: Record) -> EventView:
    return EventView(
        event_id=str(row["event_id"]),
        execution_id=str(row["execution_id"]),
        sequence=row["sequence"],
        type=row["type"],
        status=row["status"],
        progress_percent=row["progress_percent"],
        envelope=row["envelope"],
        occurred_at=row["occurred_at"],
    )


def _step(row: Record) -> StepView:
    return StepView(
        execution_id=str(row["execution_id"]),
        step_key=row["step_key"],
        item_index=row["item_index"],
        position=row["position"],
        status=row["status"],
        attempt_number=row["attempt_number"],
        progress_percent=row["progress_percent"],
        capability=row["capability"],
        capability_version=row["capability_version"],
        input_json=row["input"],
        output_json=row["output"],
        failure_json=row["failure"],
        ready_at=row["ready_at"],
        started_at=row["started_at"],
        completed_at=row["completed_at"],
        waiting_for=row["waiting_for"],
        reused_from_execution_id=row["reused_from_execution_id"],
    )


def _attempt(row: Record) -> AttemptView:
    return AttemptView(
        attempt_id=str(row["attempt_id"]),
        execution_id=str(row["execution_id"]),
        step_key=row["step_key"],
        item_index=row["item_index"],
        number=row["number"],
        node_id=str(row["node_id"]),
        lease_version=row["lease_version"],
        status=row["status"],
        progress_percent=row["progress_percent"],
        stop_reason=row["stop_reason"],
        failure_json=row["failure"],
        usage_json=row["usage"],
        log_tail=row["log_tail"],
        lease_expires_at=row["lease_expires_at"],
        dispatched_at=row["dispatched_at"],
        accepted_at=row["accepted_at"],
        completed_at=row["completed_at"],
    )


def _timeline(row: Record) -> TimelineView:
    return TimelineView(
        entry_id=row["entry_id"],
        execution_id=str(row["execution_id"]),
        step_key=row["step_key"],
        item_index=row["item_index"],
        attempt_id=row["attempt_id"],
        type=row["type"],
        actor=row["actor"],
        detail_json=row["detail"],
        occurred_at=row["occurred_at"],
    )
