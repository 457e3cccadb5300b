"""The stores of a replica: every adapter to its database."""

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Protocol

from control_plane.adapters.outbound.postgres.application_store import PostgresApplicationStore
from control_plane.adapters.outbound.postgres.bulk_store import PostgresBulkStore
from control_plane.adapters.outbound.postgres.callback_directory import PostgresCallbackDirectory
from control_plane.adapters.outbound.postgres.callback_store import PostgresCallbackStore
from control_plane.adapters.outbound.postgres.capability_schemas import CapabilitySchemas
from control_plane.adapters.outbound.postgres.command_store import PostgresCommandStore
from control_plane.adapters.outbound.postgres.control_store import PostgresTaskControlStore
from control_plane.adapters.outbound.postgres.engine_store import PostgresEngineStore
from control_plane.adapters.outbound.postgres.evidence_reader import PostgresEvidenceReader
from control_plane.adapters.outbound.postgres.execution_reader import PostgresExecutionReader
from control_plane.adapters.outbound.postgres.grant_store import PostgresGrantStore
from control_plane.adapters.outbound.postgres.inbox_store import PostgresInboxStore
from control_plane.adapters.outbound.postgres.intake_store import (
    PostgresIntakeStore,
)
from control_plane.adapters.outbound.postgres.lease_store import PostgresLeaseStore
from control_plane.adapters.outbound.postgres.node_directory import PostgresNodeDirectory
from control_plane.adapters.outbound.postgres.node_management_store import (
    PostgresNodeManagementStore,
)
from control_plane.adapters.outbound.postgres.node_store import PostgresNodeStore
from control_plane.adapters.outbound.postgres.operation_store import PostgresOperationStore
from control_plane.adapters.outbound.postgres.outcome_writer import OutcomeWriter
from control_plane.adapters.outbound.postgres.schedule_run_store import PostgresDueRuns
from control_plane.adapters.outbound.postgres.schedule_store import PostgresScheduleStore
from control_plane.adapters.outbound.postgres.scheduling_store import (
    PostgresSchedulingStore,
    SchedulingFigures,
)
from control_plane.adapters.outbound.postgres.snapshots import WorkflowSnapshots
from control_plane.adapters.outbound.postgres.standing_reader import PostgresStandingReader
from control_plane.adapters.outbound.postgres.task_acts import TaskActs
from control_plane.adapters.outbound.postgres.workflow_store import PostgresWorkflowStore
from control_plane.core.engine.deciding import Deciding
from control_plane.core.workflows.compiling import CompiledWorkflows
from control_plane.settings import ControlPlaneSettings
from control_plane.version import VERSION
from foundation.clock import Clock
from foundation.ids import IdSource
from foundation.postgres.pool import Database
from foundation.secrets import KeyRing


class Composed(Protocol):
    """What of a replica its stores stand on."""

    settings: ControlPlaneSettings
    clock: Clock
    ids: IdSource
    random: Random
    replica_id: str
    compiled: CompiledWorkflows
    database: Database
    heartbeats: Database
    keys: KeyRing


@dataclass(frozen=True, slots=True)
class Stores:
    """Every adapter to the database, over one pool and one for heartbeats."""

    applications: PostgresApplicationStore
    workflows: PostgresWorkflowStore
    intake: PostgresIntakeStore
    reader: PostgresExecutionReader
    control: PostgresTaskControlStore
    bulk: PostgresBulkStore
    operations: PostgresOperationStore
    evidence: PostgresEvidenceReader
    engine: PostgresEngineStore
    scheduling: PostgresSchedulingStore
    standing: PostgresStandingReader
    nodes: PostgresNodeStore
    directory: PostgresNodeDirectory
    management: PostgresNodeManagementStore
    commands: PostgresCommandStore
    inbox: PostgresInboxStore
    leases: PostgresLeaseStore
    grants: PostgresGrantStore
    callbacks: PostgresCallbackDirectory
    schedules: PostgresScheduleStore
    due_runs: PostgresDueRuns
    deliveries: PostgresCallbackStore


def stores_of(plane: Composed) -> Stores:
    """Return the replica's stores."""
    database, ids, figures = plane.database, plane.ids, plane.settings.figures
    snapshots = WorkflowSnapshots(plane.compiled)
    outcomes = OutcomeWriter(snapshots, ids, plane.random)
    schemas = CapabilitySchemas(database)
    acts = TaskActs(snapshots, ids, plane.clock)
    engine = PostgresEngineStore(database, snapshots, outcomes, ids)
    return Stores(
        applications=PostgresApplicationStore(database),
        workflows=PostgresWorkflowStore(database),
        intake=PostgresIntakeStore(database, ids),
        reader=PostgresExecutionReader(database),
        control=PostgresTaskControlStore(database, acts, ids),
        bulk=PostgresBulkStore(database, acts, ids),
        operations=PostgresOperationStore(database, snapshots, ids),
        evidence=PostgresEvidenceReader(database),
        engine=engine,
        scheduling=PostgresSchedulingStore(
            database,
            snapshots,
            ids,
            SchedulingFigures(
                lease_ttl_s=figures.lease_ttl_s, scheduling_ttl_s=figures.scheduling_ttl_s
            ),
        ),
        standing=PostgresStandingReader(database, snapshots),
        nodes=PostgresNodeStore(
            database, outcomes, schemas, figures, ids, replica_id=plane.replica_id
        ),
        directory=PostgresNodeDirectory(database, ids),
        management=PostgresNodeManagementStore(database, outcomes, ids),
        commands=PostgresCommandStore(database, figures),
        inbox=PostgresInboxStore(
            database,
            outcomes,
            schemas,
            partial(engine.advance_within, advancing=Deciding(ids)),
        ),
        leases=PostgresLeaseStore(
            database,
            plane.heartbeats,
            outcomes,
            figures,
            replica_id=plane.replica_id,
            version=VERSION,
        ),
        grants=PostgresGrantStore(database, plane.keys, snapshots),
        callbacks=PostgresCallbackDirectory(database, plane.keys, plane.clock),
        schedules=PostgresScheduleStore(database),
        due_runs=PostgresDueRuns(
            database,
            ids,
            claim_ttl_s=plane.settings.claim_ttl_s,
            recheck_s=plane.settings.sweep_interval_s,
        ),
        deliveries=PostgresCallbackStore(database),
    )
