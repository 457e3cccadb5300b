"""Reads where step instances stand, for explanations, on PostgreSQL."""

from typing import Final

from control_plane.adapters.outbound.postgres.snapshots import WorkflowSnapshots
from control_plane.core.executions.domain import StepKey, StepRef
from control_plane.core.executions.execution_state import ExecutionStatus
from control_plane.core.executions.step_state import StepStatus, is_complete
from control_plane.core.scheduling.domain import Requirement
from control_plane.core.scheduling.explaining import StepStanding
from control_plane.core.scheduling.requirements import requirement_from
from control_plane.core.workflows.compiling import CompiledStep, CompiledWorkflow
from control_plane.core.workflows.domain import StepKind
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "explaining.sql")


class PostgresStandingReader:
    """Implements StandingReader."""

    def __init__(self, database: Database, snapshots: WorkflowSnapshots) -> None:
        self._database = database
        self._snapshots = snapshots

    async def standing(self, execution_id: str, ref: StepRef) -> StepStanding | None:
        """Read where one step instance stands; see the port."""

        async def read(connection: Connection) -> StepStanding | None:
            digest = await connection.fetchval(_SQL.read_snapshot_digest, execution_id)
            workflow = (await self._snapshots.get(connection, [digest]))[digest]
            if isinstance(workflow, Exception):
                raise workflow
            step = workflow.steps.get(ref.step_key)
            if step is None:
                return None
            asked = ref if step.for_each is not None else StepRef(step.key)
            row = await connection.fetchrow(
                _SQL.read_explained_step, execution_id, asked.step_key, asked.item_index
            )
            assert row is not None, "the execution is there: its digest was read"
            unfinished = await _unfinished(connection, execution_id, workflow, step)
            return _standing(asked, row, step, unfinished)

        return await self._database.run_transaction(read)


async def _unfinished(
    connection: Connection, execution_id: str, workflow: CompiledWorkflow, step: CompiledStep
) -> list[StepKey]:
    needed = step.definition.depends_on
    rows = await connection.fetch(_SQL.read_holders, execution_id, list(needed)) if needed else []
    statuses = {row["step_key"]: StepStatus(row["status"]) for row in rows}
    return [
        key
        for key in needed
        if not is_complete(
            statuses.get(key, StepStatus.PENDING),
            continues_on_failure=workflow.steps[key].definition.continues_on_failure,
        )
    ]


def _standing(
    ref: StepRef, row: Record, step: CompiledStep, unfinished: list[StepKey]
) -> StepStanding:
    status = row["step_status"]
    return StepStanding(
        ref=ref,
        execution_status=ExecutionStatus(row["execution_status"]),
        paused=row["paused"],
        step_status=None if status is None else StepStatus(status),
        attempt_number=row["attempt_number"] or 0,
        requirement=_requirement(row, step),
        sentence=row["sentence"],
        is_parked=row["is_parked"],
        requested_at=row["requested_at"],
        node_name=row["node_name"],
        dispatched_at=row["dispatched_at"],
        unfinished=unfinished,
    )


def _requirement(row: Record, step: CompiledStep) -> Requirement | None:
    definition = step.definition
    if definition.kind is not StepKind.CAPABILITY:
        return None
    if row["requirement"] is not None:
        return requirement_from(row["capability"], row["capability_version"], row["requirement"])
    return Requirement(definition.capability, definition.capability_version, definition.affinity)
