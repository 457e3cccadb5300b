"""A control plane without nodes for tests: real stores, tasks by the dozen, outcomes by hand."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from control_plane.adapters.outbound.cel import CelCompiler
from control_plane.adapters.outbound.postgres.engine_store import (
    FailurePolicy,
    PostgresEngineStore,
)
from control_plane.adapters.outbound.postgres.intake_store import PostgresIntakeStore
from control_plane.adapters.outbound.postgres.outcome_writer import OutcomeWriter
from control_plane.adapters.outbound.postgres.snapshots import WorkflowSnapshots
from control_plane.core.engine.application import EngineDriver
from control_plane.core.executions.domain import (
    ExecutionEvent,
    ExecutionEventType,
    ExecutionId,
    TaskId,
)
from control_plane.core.executions.envelope import envelope
from control_plane.core.executions.execution_state import ExecutionStatus
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.outcomes import Aftermath, Ending, failed, succeeded
from control_plane.core.executions.ports import NewTask
from control_plane.core.idempotency import RequestIdentity
from control_plane.core.wakeups import LocalHints
from control_plane.core.workflows.compiling import CompiledWorkflows
from control_plane.core.workflows.publishing import digest_of
from foundation.clock import SystemClock
from foundation.ids import SystemIds
from foundation.postgres.pool import Connection, Database, Record

APPLICATION = "0190aaaa-0000-7000-8000-000000000001"
CLOCK = SystemClock()
IDS = SystemIds(CLOCK)


def step(key: str, *depends_on: str, **fields: Any) -> dict[str, Any]:
    """Return the document of a step that needs nothing special."""
    bare = {"key": key, "capability": "c", "capability_version": "1", "depends_on": [*depends_on]}
    return bare | fields


def workflow(*steps: dict[str, Any], **fields: Any) -> str:
    """Return a definition of these steps."""
    return json.dumps({"name": "w", "version": "1", "steps": steps, **fields})


TWO_STEPS = workflow(
    step("first", input={"from": "${ input.n }"}),
    step("second", "first", input={"got": "${ steps.first.output.n }"}),
    output={"last": "${ steps.second.output }"},
)


_DISPATCH = """
with step as (
    update steps set status = 'RUNNING', started_at = tdp_now()
    where execution_id = $1 and status = 'READY' returning *
), request as (
    update scheduling_requests set status = 'DISPATCHED' where execution_id = $1
)
insert into attempts (
    attempt_id, execution_id, step_key, item_index, number, task_id, application_id, node_id,
    lease_version, lease_expires_at, status
)
select
    gen_random_uuid(), step.execution_id, step.step_key, step.item_index, step.attempt_number,
    execution.task_id, execution.application_id, $2, step.attempt_number,
    tdp_now() + interval '1 minute', 'RUNNING'
from step
inner join executions as execution using (execution_id)
returning attempt_id::text
"""


@dataclass(frozen=True, slots=True)
class Planted:
    """The ids of one task."""

    task_id: str
    execution_id: str


class Plant:
    """One replica's engine on a database, and whatever a test does around it."""

    def __init__(self, database: Database, failures: FailurePolicy | None = None) -> None:
        self.database = database
        self.hints = LocalHints()
        compiled = CompiledWorkflows(CelCompiler())
        self.snapshots = WorkflowSnapshots(compiled)
        self.outcomes = OutcomeWriter(self.snapshots, IDS, Random(7))
        self.store = PostgresEngineStore(
            database, self.snapshots, self.outcomes, IDS, failures=failures
        )
        self.driver = EngineDriver(self.store, IDS, self.hints, CLOCK)
        self._intake = PostgresIntakeStore(database, IDS)

    async def create(
        self,
        definition: str = TWO_STEPS,
        count: int = 1,
        *,
        input_document: object = None,
        priority: int = 0,
        callback_url: str = "",
        timeout_s: float = 3_600.0,
        application_id: str = APPLICATION,
    ) -> list[Planted]:
        """Accept tasks as CreateTask does, but for its checks."""
        tasks = [
            _new_task(
                definition,
                json.dumps({"n": 1} if input_document is None else input_document),
                priority,
                callback_url,
                timeout_s,
                application_id,
            )
            for _ in range(count)
        ]
        assert all(await self._intake.create(tasks))
        return [Planted(task.task_id, task.execution_id) for task in tasks]

    async def advance(self, planted: Iterable[Planted]) -> None:
        """Advance once what was planted."""
        await self.driver.advance([one.execution_id for one in planted])

    async def advance_all(self) -> None:
        """Advance as hints ask for it, until none is left."""
        while self.hints.engine.take(0) or self._hinted():
            await self.driver.advance_hinted()

    def _hinted(self) -> bool:
        ids = self.hints.engine.take(1)
        self.hints.engine.add(ids)
        return bool(ids)

    async def execution(self, one: Planted) -> Record:
        """Read the execution's row."""
        row = await self.database.fetchrow(
            "select * from executions where execution_id = $1", one.execution_id
        )
        assert row is not None
        return row

    async def statuses(self, one: Planted) -> dict[str, str]:
        """Read the steps' statuses by key, items as `key[index]`."""
        rows = await self.database.fetch(
            "select step_key, item_index, status from steps where execution_id = $1"
            " order by position, item_index",
            one.execution_id,
        )
        return {
            row["step_key"]
            if row["item_index"] < 0
            else f"{row['step_key']}[{row['item_index']}]": row["status"]
            for row in rows
        }

    async def events(self, one: Planted) -> list[tuple[int, str, str]]:
        """Read the execution's events: sequence, type, status."""
        rows = await self.database.fetch(
            "select sequence, type, status from execution_events where execution_id = $1"
            " order by sequence",
            one.execution_id,
        )
        return [(row["sequence"], row["type"], row["status"]) for row in rows]

    async def requests(self, one: Planted) -> list[tuple[str, int, str]]:
        """Read the execution's scheduling requests: step, attempt number, status."""
        rows = await self.database.fetch(
            "select step_key, attempt_number, status from scheduling_requests"
            " where execution_id = $1 order by created_at, step_key, item_index, attempt_number",
            one.execution_id,
        )
        return [(row["step_key"], row["attempt_number"], row["status"]) for row in rows]

    async def dispatch(self, one: Planted) -> list[str]:
        """Put READY steps on a node that does not exist, as a scheduler would; the attempts."""
        await self.database.fetch(
            "update executions set status = 'RUNNING', started_at = coalesce(started_at, tdp_now())"
            " where execution_id = $1 and status in ('CREATED', 'QUEUED')",
            one.execution_id,
        )
        rows = await self.database.fetch(_DISPATCH, one.execution_id, IDS.new_id())
        return [row["attempt_id"] for row in rows]

    async def end_attempts(self, endings: Mapping[str, Ending]) -> None:
        """End attempts as the inbox does, and hint as it does."""

        async def run(connection: Connection) -> Aftermath:
            locked = await self.outcomes.lock(connection, sorted(endings))
            pairs = [
                (facts, endings[facts.attempt_id])
                for facts in locked.facts.values()
                if not facts.is_over
            ]
            return await self.outcomes.end(connection, pairs, locked.now)

        aftermath = await self.database.run_transaction(run)
        aftermath.give(self.hints)

    async def unfinished(self) -> int:
        """Count the executions that are not over."""
        rows = await self.database.fetch("select 1 from executions where completed_at is null")
        return len(rows)

    async def live_attempts(self) -> list[str]:
        """Return the ids of all live attempts."""
        rows = await self.database.fetch(
            "select attempt_id::text from attempts"
            " where status in ('DISPATCHED', 'ACCEPTED', 'RUNNING') order by attempt_id"
        )
        return [row["attempt_id"] for row in rows]

    async def succeed(self, attempt_ids: Sequence[str], output: object = None) -> None:
        """End attempts with success."""
        text = json.dumps({"n": 2} if output is None else output)
        await self.end_attempts({one: succeeded(text) for one in attempt_ids})

    async def fail(self, attempt_ids: Sequence[str], *, retryable: bool = False) -> None:
        """End attempts with a failure."""
        failure = Failure("BROKEN", "it broke", retryable=retryable)
        await self.end_attempts({one: failed(None, failure) for one in attempt_ids})


def _new_task(
    definition: str,
    input_json: str,
    priority: int,
    callback_url: str,
    timeout_s: float,
    application_id: str,
) -> NewTask:
    task_id, execution_id, event_id = TaskId(IDS.new_id()), ExecutionId(IDS.new_id()), IDS.new_id()
    event = ExecutionEvent(
        application_id=application_id,
        task_id=task_id,
        execution_id=execution_id,
        external_ref="ref",
        sequence=1,
        run=1,
        status=ExecutionStatus.CREATED,
        progress=0,
    )
    return NewTask(
        identity=RequestIdentity(f"application:{application_id}", "CreateTask", task_id, b"h"),
        answer="{}",
        task_id=task_id,
        execution_id=execution_id,
        application_id=application_id,
        name="task",
        external_ref="ref",
        workflow_name="w",
        workflow_version="1",
        priority=priority,
        input_json=input_json,
        callback_url=callback_url,
        labels_json="{}",
        traceparent="",
        snapshot_digest=digest_of(definition),
        snapshot_json=definition,
        timeout_s=timeout_s,
        event_id=event_id,
        envelope=envelope(event, ExecutionEventType.CREATED, event_id, CLOCK.now()),
    )
