"""The engine's driver on PostgreSQL: one transaction and few statements for a whole batch."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from control_plane.adapters.outbound.postgres.event_writer import NewEvent, append_events
from control_plane.adapters.outbound.postgres.execution_limits import (
    Admitted,
    admit,
    frees_slots,
    settle,
    waits_to_enter,
)
from control_plane.adapters.outbound.postgres.outcome_writer import OutcomeWriter
from control_plane.adapters.outbound.postgres.snapshots import WorkflowSnapshots
from control_plane.core.engine.decisions import StepChange
from control_plane.core.engine.facts import ExecutionFacts, StepFacts
from control_plane.core.engine.ports import (
    Advance,
    AdvancedBatch,
    Advancing,
    DueExecutions,
    LoadedExecution,
)
from control_plane.core.executions.attempt_state import StopReason
from control_plane.core.executions.domain import ExecutionId, StepKey, StepRef, TaskId
from control_plane.core.executions.execution_state import ClosingReason, ExecutionStatus
from control_plane.core.executions.outcomes import Aftermath, StopOrder
from control_plane.core.executions.step_state import StepStatus
from control_plane.core.scheduling.requirements import affinity_to_json
from foundation.errors import TdpError
from foundation.failpoints import failpoint
from foundation.ids import IdSource
from foundation.postgres.errors import is_connection_loss, may_run_again
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "engine.sql")
_ERROR_CHARS_MAX: Final = 2_000
_STEP_COLUMNS: Final = 15
_REQUEST_COLUMNS: Final = 10
_VOID_COLUMNS: Final = 4
_EXECUTION_COLUMNS: Final = 11


AdvanceWithin = Callable[[Connection, Sequence[str]], Awaitable[AdvancedBatch]]
"""Advances executions within a transaction that holds their locks; `advance_within` for short."""


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """How failing advances are tried again: waits in seconds, and when one is set aside."""

    first_wait_s: float = 1.0
    wait_s_max: float = 300.0
    failures_max: int = 10


class PostgresEngineStore:
    """Implements EngineStore."""

    def __init__(
        self,
        database: Database,
        snapshots: WorkflowSnapshots,
        outcomes: OutcomeWriter,
        ids: IdSource,
        failures: FailurePolicy | None = None,
    ) -> None:
        self._database = database
        self._snapshots = snapshots
        self._outcomes = outcomes
        self._ids = ids
        self._failures = failures or FailurePolicy()

    async def advance(self, execution_ids: Sequence[str], advancing: Advancing) -> AdvancedBatch:
        """Lock, load, decide and write the executions; see the port."""
        try:
            return await self._advance_together(execution_ids, advancing)
        except Exception as error:
            if strikes_all(error):
                raise
            if len(execution_ids) == 1:
                return await self._failed_alone(execution_ids[0], error)
        batches = [await self.advance([one], advancing) for one in execution_ids]
        return _merged(batches)

    async def advance_within(
        self, connection: Connection, execution_ids: Sequence[str], advancing: Advancing
    ) -> AdvancedBatch:
        """Advance executions that the caller's transaction has locked and changed.

        Whatever fails here leaves the caller's part as it is. In no field of the answer, and
        for the driver to advance, are those that failed so and those that are to stop
        attempts or touch limits: the caller holds nodes' locks, which come last.
        """
        try:
            async with connection.transaction():  # A savepoint.
                return await self._advance_in(connection, execution_ids, advancing, stopping=False)
        except Exception as error:
            if strikes_all(error):
                raise
            return AdvancedBatch()

    async def due(self, count_max: int) -> DueExecutions:
        """Return the executions that are due; see the port."""
        rows = await self._database.fetch(_SQL.due_executions, count_max)
        due = [row["execution_id"] for row in rows if row["due_in_s"] <= 0]
        later = [row["due_in_s"] for row in rows if row["due_in_s"] > 0]
        if len(due) == count_max:
            later = [0.0]
        return DueExecutions(due, min(later, default=None))

    async def _advance_together(
        self, execution_ids: Sequence[str], advancing: Advancing
    ) -> AdvancedBatch:
        async def run(connection: Connection) -> AdvancedBatch:
            batch = await self._advance_in(connection, execution_ids, advancing)
            await failpoint("engine.commit.before")
            return batch

        batch = await self._database.run_transaction(run)
        await failpoint("engine.commit.after")
        return batch

    async def _advance_in(
        self,
        connection: Connection,
        execution_ids: Sequence[str],
        advancing: Advancing,
        *,
        stopping: bool = True,
    ) -> AdvancedBatch:
        locked = await connection.fetch(_SQL.lock_executions, execution_ids)
        if not locked:
            return AdvancedBatch()
        loaded, errors = await self._load(connection, locked)
        admitted = await self._admitted(connection, loaded, errors, stopping=stopping)
        advances: list[Advance] = []
        for execution in admitted.executions:
            try:
                advances.append(advancing(execution))
            except Exception as error:  # noqa: BLE001 - stored with the execution it belongs to
                errors[execution.facts.execution_id] = error
        if not stopping:
            advances = [one for one in advances if not one.decision.stops and not frees_slots(one)]
        aftermath = await self._write(connection, advances)
        aftermath |= await settle(connection, admitted, advances)
        await self._note_failures(connection, errors)
        batch = _batch(advances, errors, aftermath)
        held_due_at = admitted.held_due_at
        if held_due_at is None:
            return batch
        held_due_in_s = (held_due_at - loaded[0].now).total_seconds()
        due_in_s = held_due_in_s if batch.due_in_s is None else min(batch.due_in_s, held_due_in_s)
        return replace(batch, due_in_s=due_in_s)

    async def _admitted(
        self,
        connection: Connection,
        loaded: Sequence[LoadedExecution],
        errors: dict[str, Exception],
        *,
        stopping: bool,
    ) -> Admitted:
        if stopping:
            return await admit(connection, loaded, errors)
        return Admitted([one for one in loaded if not waits_to_enter(one)])

    async def _load(
        self, connection: Connection, locked: Sequence[Record]
    ) -> tuple[list[LoadedExecution], dict[str, Exception]]:
        rows = await connection.fetch(_SQL.load_steps, [row["execution_id"] for row in locked])
        workflows = await self._snapshots.get(
            connection, (row["snapshot_digest"] for row in locked)
        )
        now: datetime = rows[0]["now"]
        steps: defaultdict[str, dict[StepRef, StepFacts]] = defaultdict(dict)
        for row in rows:
            if row["step_key"] is not None:
                facts = _step_facts(row)
                steps[row["execution_id"]][facts.ref] = facts
        loaded: list[LoadedExecution] = []
        errors: dict[str, Exception] = {}
        for row in locked:
            workflow = workflows[row["snapshot_digest"]]
            if isinstance(workflow, Exception):
                errors[row["execution_id"]] = workflow
                continue
            loaded.append(
                LoadedExecution(
                    facts=_execution_facts(row, steps[row["execution_id"]]),
                    workflow=workflow,
                    now=now,
                    last_sequence=row["last_sequence"],
                    next_due_at=row["next_due_at"],
                    advance_failures=row["advance_failures"],
                    priority=row["priority"],
                    with_callback=row["with_callback"],
                )
            )
        return loaded, errors

    async def _write(self, connection: Connection, advances: Sequence[Advance]) -> Aftermath:
        changed = [one for one in advances if not one.changes_nothing]
        if not changed:
            return Aftermath()
        await connection.execute(
            _SQL.apply_decisions,
            *_columns((row for one in changed for row in _step_rows(one)), _STEP_COLUMNS),
            *_columns((row for one in changed for row in _request_rows(one)), _REQUEST_COLUMNS),
            *_columns((row for one in changed for row in _void_rows(one)), _VOID_COLUMNS),
            *_columns((_execution_row(one) for one in changed), _EXECUTION_COLUMNS),
        )
        events = [event for one in changed for event in _new_events(one)]
        await append_events(connection, self._ids, events)
        return await self._outcomes.stop(
            connection, [order for one in changed for order in _stop_orders(one)]
        )

    async def _note_failures(self, connection: Connection, errors: dict[str, Exception]) -> None:
        if not errors:
            return
        policy = self._failures
        await connection.execute(
            _SQL.note_failures,
            list(errors),
            [_error_text(error) for error in errors.values()],
            timedelta(seconds=policy.first_wait_s),
            timedelta(seconds=policy.wait_s_max),
            policy.failures_max,
        )

    async def _failed_alone(self, execution_id: str, error: Exception) -> AdvancedBatch:
        async def run(connection: Connection) -> None:
            await self._note_failures(connection, {execution_id: error})

        await self._database.run_transaction(run)
        return AdvancedBatch(failed=frozenset({execution_id}), due_in_s=self._failures.first_wait_s)


def strikes_all(error: Exception) -> bool:
    """Whether no execution can be to blame, so that the batch is tried again as it is."""
    if isinstance(error, TdpError):
        return error.retryable
    return is_connection_loss(error) or may_run_again(error)


def _batch(
    advances: Sequence[Advance], errors: dict[str, Exception], aftermath: Aftermath
) -> AdvancedBatch:
    due_in_s = [
        (one.decision.next_due_at - one.execution.now).total_seconds()
        for one in advances
        if one.decision.next_due_at is not None
    ]
    return AdvancedBatch(
        sequences={
            one.execution.facts.execution_id: one.execution.last_sequence + len(one.events)
            for one in advances
        },
        failed=frozenset(errors),
        told=frozenset(one.execution.facts.execution_id for one in advances if one.events),
        asks_for_nodes=any(one.decision.requests for one in advances),
        due_in_s=min(due_in_s, default=None),
        aftermath=aftermath,
    )


def _merged(batches: Sequence[AdvancedBatch]) -> AdvancedBatch:
    aftermath = Aftermath()
    for one in batches:
        aftermath |= one.aftermath
    return AdvancedBatch(
        sequences={key: value for one in batches for key, value in one.sequences.items()},
        failed=frozenset(key for one in batches for key in one.failed),
        told=frozenset(key for one in batches for key in one.told),
        asks_for_nodes=any(one.asks_for_nodes for one in batches),
        due_in_s=min((one.due_in_s for one in batches if one.due_in_s is not None), default=None),
        aftermath=aftermath,
    )


def _columns(rows: Iterable[Sequence[object]], count: int) -> list[list[object]]:
    """Turn rows into columns; `count` of them where there is no row."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return columns or [[] for _ in range(count)]


def _step_rows(advance: Advance) -> Iterable[Sequence[object]]:
    decision = advance.decision
    for change in decision.creates:
        yield (True, *_step_row(advance, change))
    for change in decision.moves:
        yield (False, *_step_row(advance, change))


def _step_row(advance: Advance, change: StepChange) -> Sequence[object]:
    execution = advance.execution
    definition = execution.workflow.steps[change.ref.step_key].definition
    return (
        execution.facts.execution_id,
        change.ref.step_key,
        change.ref.item_index,
        change.place,
        change.to_status.value,
        change.attempt_number,
        change.progress_percent,
        definition.capability,
        definition.capability_version,
        change.input_json or None,
        change.output_json or None,
        change.failure_json or None,
        change.deadline_at,
        change.ready_at,
    )


def _request_rows(advance: Advance) -> Iterable[Sequence[object]]:
    for one in advance.decision.requests:
        yield (
            advance.execution.facts.execution_id,
            one.ref.step_key,
            one.ref.item_index,
            one.attempt_number,
            advance.execution.priority,
            one.requirement.capability,
            one.requirement.capability_version,
            affinity_to_json(one.requirement.affinity),
            one.available_at,
            one.limits_json or None,
        )


def _void_rows(advance: Advance) -> Iterable[Sequence[object]]:
    for one in advance.decision.voids:
        yield (
            advance.execution.facts.execution_id,
            one.ref.step_key,
            one.ref.item_index,
            one.attempt_number,
        )


def _execution_row(advance: Advance) -> Sequence[object]:
    facts, decision = advance.execution.facts, advance.decision
    change = decision.execution
    last_sequence = advance.execution.last_sequence + len(advance.events)
    if change is None:
        closing_as, progress = facts.closing_as, facts.progress_percent
        status, output_json, failure_json = facts.status, "", facts.failure_json
        path: Sequence[ExecutionStatus] = ()
    else:
        closing_as, progress = change.closing_as, change.progress_percent
        status, output_json, failure_json = change.status, change.output_json, change.failure_json
        path = change.path
    rose = progress > facts.progress_percent
    return (
        facts.execution_id,
        status.value,
        None if closing_as is None else closing_as.value,
        progress,
        len(path) or int(rose),
        last_sequence,
        output_json or None,
        failure_json or None,
        decision.next_due_at,
        rose,
        ExecutionStatus.RUNNING in path,
    )


def _new_events(advance: Advance) -> Iterable[NewEvent]:
    execution = advance.execution
    for event in advance.events:
        yield NewEvent(
            execution_id=execution.facts.execution_id,
            event_id=event.event_id,
            sequence=event.sequence,
            type=event.type,
            status=event.status,
            progress_percent=event.progress_percent,
            envelope=event.envelope,
            application_id=execution.facts.application_id,
            with_callback=execution.with_callback,
        )


def _stop_orders(advance: Advance) -> Iterable[StopOrder]:
    for stop in advance.decision.stops:
        yield StopOrder(
            advance.execution.facts.execution_id, stop.ref, stop.attempt_number, stop.reason
        )


def _execution_facts(row: Record, steps: dict[StepRef, StepFacts]) -> ExecutionFacts:
    closing_as = row["closing_as"]
    return ExecutionFacts(
        execution_id=ExecutionId(row["execution_id"]),
        task_id=TaskId(row["task_id"]),
        application_id=row["application_id"],
        run=row["run"],
        external_ref=row["external_ref"],
        status=ExecutionStatus(row["status"]),
        closing_as=None if closing_as is None else ClosingReason(closing_as),
        paused=row["paused"],
        progress_percent=row["progress_percent"],
        progress_event_at=row["progress_event_at"],
        deadline_at=row["deadline_at"],
        input_json=row["input"],
        failure_json=row["failure"] or "",
        steps=steps,
    )


def _step_facts(row: Record) -> StepFacts:
    stop_reason = row["stop_reason"]
    return StepFacts(
        ref=StepRef(StepKey(row["step_key"]), row["item_index"]),
        status=StepStatus(row["status"]),
        attempt_number=row["attempt_number"],
        progress_percent=row["progress_percent"],
        input_json=row["input"] or "",
        output_json=row["output"] or "",
        failure_json=row["failure"] or "",
        not_before=row["not_before"],
        deadline_at=row["deadline_at"],
        ready_at=row["ready_at"],
        has_request=row["has_request"],
        stop_reason=None if stop_reason is None else StopReason(stop_reason),
    )


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".replace("\x00", "\\0")[:_ERROR_CHARS_MAX]
