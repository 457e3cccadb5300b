"""A small world in the database: attempts dispatched as the scheduler leaves them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

from control_plane.adapters.outbound.cel import CelCompiler
from control_plane.adapters.outbound.postgres.capability_schemas import CapabilitySchemas
from control_plane.adapters.outbound.postgres.command_store import PostgresCommandStore
from control_plane.adapters.outbound.postgres.inbox_store import PostgresInboxStore
from control_plane.adapters.outbound.postgres.lease_store import PostgresLeaseStore
from control_plane.adapters.outbound.postgres.node_store import PostgresNodeStore
from control_plane.adapters.outbound.postgres.outcome_writer import OutcomeWriter
from control_plane.adapters.outbound.postgres.snapshots import WorkflowSnapshots
from control_plane.core.engine.ports import AdvancedBatch
from control_plane.core.executions.attempt_state import StopReason
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.outcomes import Aftermath
from control_plane.core.nodes.commands import RunPayload
from control_plane.core.nodes.domain import (
    ArtifactsReported,
    CapabilityDeclaration,
    EventFate,
    Fact,
    HeldAttempt,
    Hello,
    NodeEvent,
    OpenedSession,
    ReportedArtifact,
    WorkFailed,
    WorkStopped,
    WorkSucceeded,
    lease,
)
from control_plane.core.nodes.leases import TEST_FIGURES, LeaseFigures, ListedLease
from control_plane.core.workflows.compiling import CompiledWorkflows
from control_plane.core.workflows.domain import Resources
from foundation.clock import SystemClock
from foundation.ids import SystemIds
from foundation.postgres.pool import Connection, Database

IDS = SystemIds(SystemClock())
CAPABILITY, VERSION = "demo.work", "1.0.0"
OBJECT_SCHEMA = '{"type":"object"}'
DEFINITION = {
    "name": "demo",
    "version": "1.0.0",
    "input_schema": {"type": "object"},
    "timeout": "1h",
    "steps": [
        {
            "key": "work",
            "kind": "capability",
            "capability": CAPABILITY,
            "capability_version": VERSION,
            "retry": {"max_attempts": 2, "initial_delay": "1s", "jitter": 0},
            "timeouts": {"queue": "10m", "run": "30s"},
        },
        {
            "key": "once",
            "kind": "capability",
            "capability": CAPABILITY,
            "capability_version": VERSION,
            "at_most_once": True,
        },
        {
            "key": "clean",
            "kind": "capability",
            "capability": CAPABILITY,
            "capability_version": VERSION,
        },
    ],
    "failure_step": "clean",
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the tests have to know of a dispatched attempt."""

    attempt_id: str
    execution_id: str
    node_id: str
    step_key: str = "work"
    number: int = 1
    lease_version: int = 1

    @property
    def lease(self) -> ListedLease:
        return lease(self.attempt_id, self.lease_version)


@dataclass(slots=True)
class World:
    """Stores over one database, and what the tests put into it."""

    database: Database
    figures: LeaseFigures = TEST_FIGURES
    replica_id: str = field(default_factory=IDS.new_id)
    application_id: str = field(default_factory=IDS.new_id)
    outcomes: OutcomeWriter = field(init=False)
    schemas: CapabilitySchemas = field(init=False)
    nodes: PostgresNodeStore = field(init=False)
    commands: PostgresCommandStore = field(init=False)
    inbox: PostgresInboxStore = field(init=False)
    leases: PostgresLeaseStore = field(init=False)

    def __post_init__(self) -> None:
        compiled = CompiledWorkflows(CelCompiler())
        self.outcomes = OutcomeWriter(WorkflowSnapshots(compiled), IDS, Random(1))
        self.schemas = CapabilitySchemas(self.database)
        self.nodes = PostgresNodeStore(
            self.database,
            self.outcomes,
            self.schemas,
            self.figures,
            IDS,
            replica_id=self.replica_id,
        )
        self.commands = PostgresCommandStore(self.database, self.figures, ack_timeout_s=5.0)
        self.inbox = PostgresInboxStore(self.database, self.outcomes, self.schemas, leave_all)
        self.leases = PostgresLeaseStore(
            self.database,
            self.database,
            self.outcomes,
            self.figures,
            replica_id=self.replica_id,
            version="test",
        )

    async def accept(self, events: Sequence[NodeEvent]) -> tuple[Sequence[EventFate], Aftermath]:
        accepted = await self.inbox.accept(events)
        return accepted.fates, accepted.aftermath

    async def value(self, statement: str, *arguments: object) -> Any:  # noqa: ANN401 - a column
        row = await self.database.fetchrow(statement, *arguments)
        return None if row is None else row[0]

    async def rows(self, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.database.fetch(statement, *arguments)]

    async def add_node(self, name: str = "node-1", *, credential: bytes = b"") -> str:
        node_id = IDS.new_id()
        digest = credential or node_id.encode()[:32].ljust(32, b"0")
        await self.database.fetch(
            "insert into nodes (node_id, name, credential_sha256, slot_count, cpu_millis)"
            " values ($1, $2, $3, 8, 8000)",
            node_id,
            name,
            digest,
        )
        return node_id

    def hello(self, node_id: str, *held: Attempt, **changes: object) -> Hello:
        fields: dict[str, Any] = {
            "node_id": node_id,
            "boot_id": IDS.new_id(),
            "incarnation_id": node_id,
            "agent_version": "1.2.3",
            "capabilities": [
                CapabilityDeclaration(CAPABILITY, VERSION, OBJECT_SCHEMA, OBJECT_SCHEMA)
            ],
            "resources": Resources(8000, 2**30, 2**40, 0),
            "slot_count": 8,
            "last_command_sequence": 0,
            "held": [HeldAttempt(one.lease, finished=False) for one in held],
            "job_credits": 8,
            "ready": True,
        }
        return Hello(**(fields | changes))

    async def open(self, node_id: str, *held: Attempt, **changes: object) -> OpenedSession:
        return await self.nodes.open_session(self.hello(node_id, *held, **changes))

    async def add_execution(self, *keys: str, status: str = "RUNNING") -> str:
        """Make a task with a running execution whose steps are READY with their requests."""
        task_id, execution_id = IDS.new_id(), IDS.new_id()
        await self.database.fetch(
            "insert into workflow_snapshots values ('digest', $1) on conflict do nothing",
            json.dumps(DEFINITION),
        )
        await self.database.fetch(
            "insert into tasks (task_id, application_id, name, external_ref, workflow_name,"
            " workflow_version, priority, input, callback_url, current_execution_id, current_run)"
            " values ($1, $2, 't', '', 'demo', '1.0.0', 0, '{}', '', $3, 1)",
            task_id,
            self.application_id,
            execution_id,
        )
        await self.database.fetch(
            "insert into executions (execution_id, task_id, application_id, run, status,"
            " snapshot_digest, started_at) values ($1, $2, $3, 1, $4, 'digest', tdp_now())",
            execution_id,
            task_id,
            self.application_id,
            status,
        )
        for position, key in enumerate(keys or ("work",)):
            await self.database.fetch(
                "insert into steps (execution_id, step_key, position, status, attempt_number,"
                " capability, capability_version, input, ready_at)"
                " values ($1, $2, $3, 'READY', 1, $4, $5, '{}', tdp_now())",
                execution_id,
                key,
                position,
                CAPABILITY,
                VERSION,
            )
            await self.database.fetch(
                "insert into scheduling_requests (execution_id, step_key, item_index,"
                " attempt_number, application_id, priority, capability, capability_version,"
                " requirement) values ($1, $2, -1, 1, $3, 7, $4, $5, '{\"r\":1}')",
                execution_id,
                key,
                self.application_id,
                CAPABILITY,
                VERSION,
            )
        return execution_id

    async def dispatch(
        self, execution_id: str, node_id: str, key: str = "work", *, run_timeout_s: float = 30.0
    ) -> Attempt:
        """Do what the dispatch transaction does for a READY step."""
        async with self.database.transaction() as connection:
            step = await connection.fetchrow(
                "update steps set status = 'RUNNING', started_at = tdp_now() where"
                " execution_id = $1 and step_key = $2 and status = 'READY'"
                " returning attempt_number",
                execution_id,
                key,
            )
            assert step is not None, "the step is not READY"
            number = step["attempt_number"]
            attempt = Attempt(IDS.new_id(), execution_id, node_id, key, number, number)
            await connection.execute(
                "update scheduling_requests set status = 'DISPATCHED' where execution_id = $1"
                " and step_key = $2 and attempt_number = $3",
                execution_id,
                key,
                number,
            )
            await connection.execute(
                "insert into attempts (attempt_id, execution_id, step_key, item_index, number,"
                " task_id, application_id, node_id, lease_version, lease_expires_at, status,"
                " run_deadline_at, reserved_cpu_millis, takes_process_slot)"
                " select $1, $2, $3, -1, $4::integer,"
                " task_id, application_id, $5, $4::integer, tdp_now() + $6, 'DISPATCHED',"
                " tdp_now() + $7, 100, true from executions where execution_id = $2",
                attempt.attempt_id,
                execution_id,
                key,
                number,
                node_id,
                timedelta(seconds=self.figures.lease_ttl_s),
                timedelta(seconds=run_timeout_s),
            )
            sequence = await connection.fetchval(
                "update nodes set running_count = running_count + 1,"
                " process_running_count = process_running_count + 1, reserved_cpu_millis ="
                " reserved_cpu_millis + 100, last_command_sequence = last_command_sequence + 1"
                " where node_id = $1 returning last_command_sequence",
                node_id,
            )
            await connection.execute(
                "insert into node_commands (node_id, sequence, command_id, kind, attempt_id,"
                " payload) values ($1, $2, $3, 'RUN', $4, $5)",
                node_id,
                sequence,
                IDS.new_id(),
                attempt.attempt_id,
                _run_payload(attempt).to_json(),
            )
        return attempt

    async def new_attempt(self, node_id: str, key: str = "work") -> Attempt:
        return await self.dispatch(await self.add_execution(key), node_id, key)

    async def move_clock(self, name: str, seconds: float) -> None:
        """Let the database's clock go forward, for new connections."""
        await self.database.fetch(
            f"alter database {name} set tdp.clock_offset = '{seconds} seconds'"
        )
        await self.database.replace_connections()

    async def fetch_attempt(self, attempt: Attempt) -> dict[str, Any]:
        (row,) = await self.database.fetch(
            "select * from attempts where attempt_id = $1", attempt.attempt_id
        )
        return dict(row)

    async def fetch_step(self, attempt: Attempt) -> dict[str, Any]:
        (row,) = await self.database.fetch(
            "select * from steps where execution_id = $1 and step_key = $2",
            attempt.execution_id,
            attempt.step_key,
        )
        return dict(row)

    async def fetch_node(self, node_id: str) -> dict[str, Any]:
        (row,) = await self.database.fetch("select * from nodes where node_id = $1", node_id)
        return dict(row)

    async def allocate(self, attempt: Attempt, *paths: str) -> None:
        """Make places for artifacts of an attempt, each with `ref:` and its path as reference."""
        for path in paths:
            await self.database.fetch(
                "insert into artifacts (attempt_id, boot_id, relative_path, execution_id, step_key,"
                " item_index, collection_ref, resource_ref, type, media_type, size_bytes_max)"
                " values ($1, $2, $3, $4, 'work', -1, 'c', 'ref:' || $3, 't', 'm', 10)",
                attempt.attempt_id,
                attempt.node_id,
                path,
                attempt.execution_id,
            )

    async def dump(self) -> dict[str, list[tuple[Any, ...]]]:
        """Everything that a batch may change, without times and made ids, in a stable order."""
        return {name: await self.rows(statement) for name, statement in _DUMPS.items()}


_DUMPS = {
    "attempts": "select attempt_id, status, stop_reason, failure, pending_result, usage,"
    " lease_expires_at is null, completed_at is null, accepted_at is null from attempts"
    " order by attempt_id",
    "steps": "select execution_id, step_key, status, attempt_number, failure_count, loss_count,"
    " output, failure, progress_percent from steps order by 1, 2",
    "requests": "select execution_id, step_key, attempt_number, priority, requirement, status"
    " from scheduling_requests order by 1, 2, 3",
    "nodes": "select node_id, running_count, process_running_count, reserved_cpu_millis,"
    " last_command_sequence, acked_command_sequence from nodes order by 1",
    "commands": "select node_id, kind, attempt_id, payload::text, status from node_commands"
    " order by node_id, attempt_id, kind",
    "inbox": "select event_id, attempt_id, accepted, reason, payload, duplicate_count"
    " from attempt_inbox order by 1",
    "commits": "select outbox_id, destination, payload from artifact_commits order by 1",
    "timeline": "select execution_id, step_key, attempt_id, type from timeline order by 1, 2, 3, 4",
    "executions": "select execution_id, status, next_due_at is null from executions order by 1",
}


def _run_payload(attempt: Attempt) -> RunPayload:
    return RunPayload(
        attempt_id=attempt.attempt_id,
        lease_version=attempt.lease_version,
        task_id=attempt.execution_id,
        execution_id=attempt.execution_id,
        step_key=attempt.step_key,
        item_index=-1,
        attempt_number=attempt.number,
        capability=CAPABILITY,
        capability_version=VERSION,
        input_json='{"a":1}',
        run_timeout_s=30.0,
    )


async def leave_all(_: Connection, __: Sequence[str]) -> AdvancedBatch:
    """Leave every execution to the engine, which these tests do without."""
    return AdvancedBatch()


def event(attempt: Attempt, fact: Fact, **changes: object) -> NodeEvent:
    fields: dict[str, Any] = {
        "event_id": IDS.new_id(),
        "node_id": attempt.node_id,
        "attempt_id": attempt.attempt_id,
        "lease_version": attempt.lease_version,
        "incarnation_id": attempt.node_id,
        "boot_id": attempt.node_id,
        "fact": fact,
    }
    return NodeEvent(**(fields | changes))


def success(attempt: Attempt, output: str = '{"ok":true}', **changes: object) -> NodeEvent:
    return event(attempt, WorkSucceeded(output, usage_json='{"duration_ms":5}'), **changes)


def failure(attempt: Attempt, *, retryable: bool = True, **changes: object) -> NodeEvent:
    return event(attempt, WorkFailed(Failure("BROKE", "it broke", retryable=retryable)), **changes)


def stop_report(attempt: Attempt, reason: StopReason | None, **changes: object) -> NodeEvent:
    return event(attempt, WorkStopped(reason), **changes)


def reported(*paths: str) -> ArtifactsReported:
    """The report of the uploads to such places."""
    return ArtifactsReported(
        [ReportedArtifact(path, f"ref:{path}", 5, b"s" * 32, "image/png") for path in paths]
    )
