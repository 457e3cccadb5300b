"""Acceptance of tasks on PostgreSQL, in batches, and the queues that make the batches."""

from collections.abc import Sequence
from typing import Final

from control_plane.adapters.outbound.postgres.event_writer import NewEvent, append_events
from control_plane.adapters.outbound.postgres.workflow_store import published_workflow
from control_plane.core.executions.domain import ExecutionEventType
from control_plane.core.executions.execution_state import ExecutionStatus
from control_plane.core.executions.ports import IntakeFacts, IntakeLookup, IntakeStore, NewTask
from foundation.batching import Batcher
from foundation.ids import IdSource
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "intake.sql")


class PostgresIntakeStore:
    """Implements IntakeStore and QueueDepths."""

    def __init__(self, database: Database, ids: IdSource) -> None:
        self._database = database
        self._ids = ids

    async def look_up(self, lookups: Sequence[IntakeLookup]) -> Sequence[IntakeFacts]:
        """Read the facts for each look-up, in order, in one statement."""
        rows = await self._database.fetch(
            _SQL.look_up_intake,
            [one.identity.principal for one in lookups],
            [one.identity.operation for one in lookups],
            [one.identity.key for one in lookups],
            [one.application_id for one in lookups],
            [one.workflow_name for one in lookups],
            [one.workflow_version for one in lookups],
        )
        return [_facts(row) for row in rows]

    async def create(self, tasks: Sequence[NewTask]) -> Sequence[bool]:
        """Store each task with execution, event, outbox row and record, in one transaction.

        Of several with one identity the first is stored; False for those that were not.
        """
        first = {_key(task): task for task in reversed(tasks)}

        async def store(connection: Connection) -> frozenset[str]:
            stored = await _insert(connection, list(first.values()))
            events = [_created_event(task) for task in tasks if task.execution_id in stored]
            await append_events(connection, self._ids, events)
            return stored

        stored = await self._database.run_transaction(store)
        return [task.execution_id in stored for task in tasks]

    async def queued_executions(self, application_id: str, count_max: int) -> int:
        """Count the application's executions that are CREATED or QUEUED, up to `count_max`."""
        row = await self._database.fetchrow(_SQL.queued_executions, application_id, count_max)
        assert row is not None
        return int(row["count"])


class QueuedIntake:
    """Implements IntakeBatches: two queues whose batches are what arrived meanwhile."""

    def __init__(self, store: IntakeStore) -> None:
        self.look_ups: Final = Batcher[IntakeLookup, IntakeFacts]("intake-look-up", store.look_up)
        self.creations: Final = Batcher[NewTask, bool]("intake-create", store.create)

    async def look_up(self, lookup: IntakeLookup) -> IntakeFacts:
        """Read the facts for one look-up."""
        return await self.look_ups.submit(lookup)

    async def create(self, task: NewTask) -> bool:
        """Store one task; False if its key is known by then."""
        return await self.creations.submit(task)


async def _insert(connection: Connection, tasks: Sequence[NewTask]) -> frozenset[str]:
    rows = await connection.fetch(
        _SQL.create_tasks,
        [task.identity.principal for task in tasks],
        [task.identity.operation for task in tasks],
        [task.identity.key for task in tasks],
        [task.identity.request_hash for task in tasks],
        [task.answer for task in tasks],
        [task.task_id for task in tasks],
        [task.execution_id for task in tasks],
        [task.application_id for task in tasks],
        [task.name for task in tasks],
        [task.external_ref for task in tasks],
        [task.workflow_name for task in tasks],
        [task.workflow_version for task in tasks],
        [task.priority for task in tasks],
        [task.input_json for task in tasks],
        [task.callback_url for task in tasks],
        [task.labels_json for task in tasks],
        [task.traceparent for task in tasks],
        [task.snapshot_digest for task in tasks],
        [task.snapshot_json for task in tasks],
        [task.timeout_s for task in tasks],
    )
    return frozenset(row["execution_id"] for row in rows)


def _key(task: NewTask) -> tuple[str, str, str]:
    return task.identity.principal, task.identity.operation, task.identity.key


def _created_event(task: NewTask) -> NewEvent:
    return NewEvent(
        execution_id=task.execution_id,
        event_id=task.event_id,
        sequence=1,
        type=ExecutionEventType.CREATED,
        status=ExecutionStatus.CREATED,
        progress_percent=0,
        envelope=task.envelope,
        application_id=task.application_id,
        with_callback=bool(task.callback_url),
    )


def _facts(row: Record) -> IntakeFacts:
    return IntakeFacts(
        recorded_hash=row["recorded_hash"],
        recorded_answer=row["recorded_answer"],
        application_known=row["application_known"],
        application_disabled=row["application_disabled"],
        application_callback_url=row["application_callback_url"],
        workflow=None if row["name"] is None else published_workflow(row),
    )
