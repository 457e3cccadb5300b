"""Scheduling on PostgreSQL: claims in one statement, dispatch of a batch in one transaction."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import structlog

from control_plane.adapters.outbound.postgres.dispatch_writer import (
    DispatchedRow,
    DispatchWriter,
    LockedRow,
)
from control_plane.adapters.outbound.postgres.engine_store import strikes_all
from control_plane.adapters.outbound.postgres.input_schemas import InputSchemas
from control_plane.adapters.outbound.postgres.limit_store import (
    lock_limits,
    sweep_limits,
    wake_waiting,
)
from control_plane.adapters.outbound.postgres.scheduling_rows import (
    claimed_requests,
    key_columns,
    key_of,
    node_facts,
    opening_columns,
    shares_of,
)
from control_plane.adapters.outbound.postgres.snapshots import WorkflowSnapshots
from control_plane.core.executions.execution_state import ClosingReason, ExecutionStatus
from control_plane.core.executions.outcomes import Aftermath
from control_plane.core.executions.step_state import StepStatus
from control_plane.core.scheduling.dispatching import Fate, LockedRequest, judge
from control_plane.core.scheduling.domain import (
    NodeFacts,
    NodeId,
    Requirement,
    takes_process_slot,
)
from control_plane.core.scheduling.planning import Placement, Plan, RequestKey
from control_plane.core.scheduling.ports import (
    ClaimedRequests,
    DispatchedBatch,
    Opening,
    ParkedKind,
    ParkedRequest,
    Planning,
    ReassessedKind,
    Served,
)
from control_plane.core.scheduling.requirements import affinity_to_json, requirement_from
from foundation.failpoints import failpoint
from foundation.ids import IdSource
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "scheduling.sql")
_REQUIREMENTS_MAX: Final = 1_000
_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SchedulingFigures:
    """Times in seconds: of leases, of heartbeats, of claims, and how long a request is parked."""

    lease_ttl_s: float = 60.0
    scheduling_ttl_s: float = 15.0
    claim_ttl_s: float = 15.0
    parked_s: float = 300.0


class PostgresSchedulingStore:
    """Implements SchedulingStore."""

    def __init__(
        self,
        database: Database,
        snapshots: WorkflowSnapshots,
        ids: IdSource,
        figures: SchedulingFigures,
    ) -> None:
        self._database = database
        self._snapshots = snapshots
        self._figures = figures
        self._schemas = InputSchemas()
        self._writer = DispatchWriter(ids, figures.lease_ttl_s, figures.parked_s)

    async def serve(
        self, count_max: int, openings: Sequence[Opening], planning: Planning
    ) -> Served | None:
        """Take, plan, dispatch and park in one transaction; see the port."""

        async def run(connection: Connection) -> Served:
            served = await self._serve_in(connection, count_max, openings, planning)
            if served.taken.requests:
                await failpoint("dispatch.commit.before")
            return served

        try:
            served = await self._database.run_transaction(run)
        except Exception as error:
            if strikes_all(error):
                raise
            _log.warning("batch_not_served", exc_info=error)
            return None
        if served.taken.requests:
            await failpoint("dispatch.commit.after")
        return served

    async def _serve_in(
        self,
        connection: Connection,
        count_max: int,
        openings: Sequence[Opening],
        planning: Planning,
    ) -> Served:
        rows = await connection.fetch(_SQL.take_requests, count_max, *opening_columns(openings))
        taken = claimed_requests(rows)
        if not taken.requests:
            return Served(taken, Plan((), ()), DispatchedBatch())
        figures = self._figures
        found = await connection.fetch(
            _SQL.read_nodes, figures.scheduling_ttl_s, figures.lease_ttl_s
        )
        nodes = [node_facts(row) for row in found]
        running: Mapping[str, int] = {}
        if planning.asks_for_shares(taken.requests, nodes):
            running = shares_of(await connection.fetch(_SQL.count_running))
        plan = planning.plan(taken, nodes, running)
        done = DispatchedBatch()
        if plan.placements:
            done = await self._dispatch_locked(connection, plan.placements)
        woken = Aftermath()
        if plan.unplaced:
            woken = await self._park_in(connection, None, planning.park(plan, nodes))
        return Served(taken, plan, done, woken)

    async def claim(
        self, claim_id: str, count_max: int, openings: Sequence[Opening]
    ) -> ClaimedRequests:
        """Take requests that are due and parked ones for the openings; see the port."""
        return claimed_requests(
            await self._database.fetch(
                _SQL.claim_requests,
                claim_id,
                count_max,
                timedelta(seconds=self._figures.claim_ttl_s),
                *opening_columns(openings),
            )
        )

    async def nodes(self) -> Sequence[NodeFacts]:
        """Return all nodes as they are now; see the port."""
        figures = self._figures
        rows = await self._database.fetch(
            _SQL.read_nodes, figures.scheduling_ttl_s, figures.lease_ttl_s
        )
        return [node_facts(row) for row in rows]

    async def running_by_application(self) -> Mapping[str, int]:
        """Count each application's live attempts; see the port."""
        return shares_of(await self._database.fetch(_SQL.count_running))

    async def dispatch(self, claim_id: str, placements: Sequence[Placement]) -> DispatchedBatch:
        """Make proposals facts, as far as everything still allows it; see the port."""
        unique = _first_of_each(placements)
        try:
            return await self._dispatch_together(claim_id, unique)
        except Exception as error:
            if strikes_all(error):
                raise
            if len(unique) == 1:
                # Its claim is left to end: so it is tried again, later and seldom.
                _log.exception("dispatch_refused", request=str(unique[0].request.key))
                return DispatchedBatch()
        batches = [await self.dispatch(claim_id, [one]) for one in unique]
        return DispatchedBatch(
            fates={key: fate for one in batches for key, fate in one.fates.items()},
            node_ids=frozenset(node_id for one in batches for node_id in one.node_ids),
            started=frozenset(started for one in batches for started in one.started),
            to_advance=frozenset(again for one in batches for again in one.to_advance),
            wakes_requests=any(one.wakes_requests for one in batches),
        )

    async def park(self, claim_id: str, requests: Sequence[ParkedRequest]) -> Aftermath:
        """Put claimed requests back, with the reasons; see the port."""

        async def run(connection: Connection) -> Aftermath:
            return await self._park_in(connection, claim_id, requests)

        return await self._database.run_transaction(run)

    async def _park_in(
        self, connection: Connection, claim_id: str | None, requests: Sequence[ParkedRequest]
    ) -> Aftermath:
        if not requests:
            return Aftermath()
        texts: dict[int, str] = {}
        for one in requests:
            # Requests that ask for the same share one object of reasons.
            if id(one.reasons) not in texts:
                texts[id(one.reasons)] = json.dumps(list(one.reasons), ensure_ascii=False)
        await connection.execute(
            _SQL.park_requests,
            claim_id,
            *key_columns([one.key for one in requests]),
            [texts[id(one.reasons)] for one in requests],
            [one.never for one in requests],
            timedelta(seconds=self._figures.parked_s),
        )
        keys = sorted({key for one in requests for key in one.limit_keys})
        return await wake_waiting(connection, keys)

    async def sweep_limits(self) -> Aftermath:
        """Wake whoever waits for a limit that has slots left; see the port."""
        return await sweep_limits(self._database)

    async def parked_requirements(self) -> Sequence[ParkedKind]:
        """Return what the parked requests ask for; see the port."""
        rows = await self._database.fetch(_SQL.parked_requirements, _REQUIREMENTS_MAX)
        return [
            ParkedKind(
                requirement_from(row["capability"], row["capability_version"], row["requirement"]),
                row["never_satisfiable"],
            )
            for row in rows
        ]

    async def reassess(self, kinds: Sequence[ReassessedKind]) -> None:
        """Say anew whether a node could ever meet what is asked for; see the port."""
        await self._database.fetch(
            _SQL.reassess_requests,
            [one.requirement.capability for one in kinds],
            [one.requirement.capability_version for one in kinds],
            [affinity_to_json(one.requirement.affinity) for one in kinds],
            [one.never for one in kinds],
            [json.dumps(list(one.reasons), ensure_ascii=False) for one in kinds],
        )

    async def _dispatch_together(
        self, claim_id: str, placements: Sequence[Placement]
    ) -> DispatchedBatch:
        async def run(connection: Connection) -> DispatchedBatch:
            batch = await self._dispatch_in(connection, claim_id, placements)
            await failpoint("dispatch.commit.before")
            return batch

        batch = await self._database.run_transaction(run)
        await failpoint("dispatch.commit.after")
        return batch

    async def _dispatch_in(
        self, connection: Connection, claim_id: str, placements: Sequence[Placement]
    ) -> DispatchedBatch:
        lost = dict.fromkeys((one.request.key for one in placements), Fate.LOST)
        ours = await _lock_claimed(connection, claim_id, placements)
        if not ours:
            return DispatchedBatch(lost)
        batch = await self._dispatch_locked(connection, ours)
        return replace(batch, fates=lost | dict(batch.fates))

    async def _dispatch_locked(
        self, connection: Connection, ours: Sequence[Placement]
    ) -> DispatchedBatch:
        """Dispatch requests that the transaction has locked."""
        rows, now = await self._locked(connection, ours)
        uses = [use for one in ours for use in one.request.limits]
        limits, locked_at = await lock_limits(connection, uses)
        now = locked_at or now
        nodes, sequences = await self._lock_nodes(connection, rows)
        judged = judge(
            [one.facts for one in rows], nodes, now, limits, self._figures.scheduling_ttl_s
        )
        dispatched = [
            DispatchedRow(
                one,
                judged.fates[one.key],
                _in_process(one, nodes),
                judged.waits.get(one.key),
            )
            for one in rows
        ]
        batch = await self._writer.write(connection, dispatched, sequences, now)
        if not uses:
            return batch
        woken = await wake_waiting(connection, limits.with_room())
        return replace(
            batch,
            to_advance=batch.to_advance | woken.execution_ids,
            wakes_requests=woken.asks_again,
        )

    async def _locked(
        self, connection: Connection, ours: Sequence[Placement]
    ) -> tuple[list[LockedRow], datetime]:
        """Lock the executions, and read, in the order of the placements, what these rest on."""
        keys = [one.request.key for one in ours]
        execution_ids = list({key.execution_id for key in keys})
        stored = await connection.fetch(_SQL.lock_requesting, execution_ids)
        executions = {row["execution_id"]: row for row in stored}
        steps = await connection.fetch(_SQL.read_steps, *key_columns(keys))
        step_by_key = {key_of(row): row for row in steps}
        workflows = await self._snapshots.get(
            connection, (row["snapshot_digest"] for row in stored)
        )
        await self._schemas.load(connection, {_offered(one.request.requirement) for one in ours})
        rows: list[LockedRow] = []
        for placement in ours:
            key = placement.request.key
            row, step = executions[key.execution_id], step_by_key[key]
            workflow = workflows[row["snapshot_digest"]]
            if isinstance(workflow, Exception):
                raise workflow
            definition = workflow.steps[key.step.step_key].definition
            facts = self._facts(
                placement,
                row,
                step,
                is_failure_step=workflow.definition.failure_step == definition.key,
            )
            rows.append(LockedRow(facts, definition, row, step))
        return rows, steps[0]["now"]

    def _facts(
        self, placement: Placement, row: Record, step: Record, *, is_failure_step: bool
    ) -> LockedRequest:
        closing_as, attempt_node_id = row["closing_as"], step["attempt_node_id"]
        return LockedRequest(
            placement=placement,
            execution_status=ExecutionStatus(row["status"]),
            closing_as=None if closing_as is None else ClosingReason(closing_as),
            paused=row["paused"],
            is_failure_step=is_failure_step,
            step_status=StepStatus(step["status"]),
            step_attempt_number=step["step_attempt_number"],
            step_deadline_at=step["deadline_at"],
            attempt_node_id=None if attempt_node_id is None else NodeId(attempt_node_id),
            input_problem=self._schemas.problem_of(
                *_offered(placement.request.requirement), step["input"] or "null"
            ),
        )

    async def _lock_nodes(
        self, connection: Connection, rows: Sequence[LockedRow]
    ) -> tuple[dict[NodeId, NodeFacts], dict[NodeId, int]]:
        """Lock the proposed nodes; return them, and the sequences of their newest commands."""
        node_ids = {one.facts.placement.node_id for one in rows}
        found = await connection.fetch(
            _SQL.lock_nodes,
            self._figures.scheduling_ttl_s,
            self._figures.lease_ttl_s,
            sorted(node_ids),
        )
        nodes = {NodeId(row["node_id"]): node_facts(row) for row in found}
        return nodes, {NodeId(row["node_id"]): row["last_command_sequence"] for row in found}


async def _lock_claimed(
    connection: Connection, claim_id: str, placements: Sequence[Placement]
) -> list[Placement]:
    """Lock those of the requests that are still the claim's."""
    columns = key_columns([one.request.key for one in placements])
    locked = {key_of(row) for row in await connection.fetch(_SQL.lock_requests, claim_id, *columns)}
    return [one for one in placements if one.request.key in locked]


async def release_requests(connection: Connection, execution_id: str) -> None:
    """Make the parked requests of an execution due, in the transaction that resumes it."""
    await connection.execute(_SQL.release_requests, execution_id)


def _in_process(row: LockedRow, nodes: Mapping[NodeId, NodeFacts]) -> bool:
    placement = row.facts.placement
    node = nodes.get(placement.node_id)
    return node is not None and takes_process_slot(node, placement.request.requirement)


def _first_of_each(placements: Sequence[Placement]) -> list[Placement]:
    first: dict[RequestKey, Placement] = {}
    for one in placements:
        first.setdefault(one.request.key, one)
    return list(first.values())


def _offered(requirement: Requirement) -> tuple[str, str]:
    return requirement.capability, requirement.capability_version
