"""Nodes that are rows only, schedulers over them, and what must hold of every dispatch."""

import json
from dataclasses import dataclass

from control_plane.adapters.outbound.postgres.scheduling_store import (
    PostgresSchedulingStore,
    SchedulingFigures,
)
from control_plane.core.scheduling.application import Scheduler
from control_plane.core.scheduling.domain import NodeId
from control_plane.core.scheduling.planning import Placement
from foundation.postgres.pool import Database, Record
from tests.integration.control_plane.engine.plant import CLOCK, IDS, Plant

# Long, since these nodes send no heartbeats and tests may run on a busy machine.
FIGURES = SchedulingFigures(lease_ttl_s=600.0, scheduling_ttl_s=300.0)

_NODE = """
insert into nodes (
    node_id, name, credential_sha256, runtime, replica_id, labels, node_group, slot_count,
    cpu_millis, memory_bytes, last_seen_at, process_slot_count
) values (
    $1::text::uuid, $1, sha256($1::text::bytea), 'READY', $2, $3::jsonb, $4, $5, $6, $7,
    tdp_now(), $8
)
"""
_CROWDED = """
select node.name
from nodes as node
left join attempts as attempt
    on attempt.node_id = node.node_id and attempt.status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
group by node.node_id
having count(attempt.attempt_id) <> node.running_count
    or node.running_count > node.slot_count
    or count(*) filter (where attempt.takes_process_slot) <> node.process_running_count
    or (node.process_slot_count > 0 and node.process_running_count > node.process_slot_count)
    or coalesce(sum(attempt.reserved_cpu_millis), 0) <> node.reserved_cpu_millis
    or (node.cpu_millis > 0 and node.reserved_cpu_millis > node.cpu_millis)
"""
_UNMATCHED = """
select attempt.attempt_id
from attempts as attempt
full join node_commands as command
    on command.attempt_id = attempt.attempt_id and command.kind = 'RUN'
where attempt.attempt_id is null or command.attempt_id is null
    or command.node_id <> attempt.node_id
"""
_GAPS = """
select node.name
from nodes as node
left join node_commands as command on command.node_id = node.node_id
group by node.node_id
having count(command.sequence) <> node.last_command_sequence
    or coalesce(max(command.sequence), 0) <> node.last_command_sequence
"""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """What a node of a test is like."""

    slots: int = 4
    process_slots: int = 0
    capability: str = "c"
    group: str = ""
    cpu_millis: int = 0
    memory_bytes: int = 0
    labels: tuple[tuple[str, str], ...] = ()


class Yard:
    """A database with nodes, an engine, and a scheduler."""

    def __init__(self, database: Database, figures: SchedulingFigures = FIGURES) -> None:
        self.database = database
        self.plant = Plant(database)
        self.figures = figures
        self.store = self.new_store()
        self.scheduler = self.new_scheduler(self.store)
        self.replica_id = IDS.new_id()

    def new_store(self) -> PostgresSchedulingStore:
        """Return another replica's store on the same database."""
        return PostgresSchedulingStore(self.database, self.plant.snapshots, IDS, self.figures)

    def new_scheduler(self, store: PostgresSchedulingStore) -> Scheduler:
        """Return another replica's scheduler."""
        return Scheduler(
            store, IDS, self.plant.hints, CLOCK, heartbeat_ttl_s=self.figures.scheduling_ttl_s
        )

    async def add_node(self, spec: NodeSpec | None = None, node_id: str = "") -> NodeId:
        """Add a node in session that offers one capability."""
        spec, node_id = spec or NodeSpec(), node_id or IDS.new_id()
        await self.database.fetch(
            "insert into replicas (replica_id, version) values ($1, 'test')"
            " on conflict (replica_id) do update set stamped_at = tdp_now()",
            self.replica_id,
        )
        await self.database.fetch(
            _NODE,
            node_id,
            self.replica_id,
            json.dumps(dict(spec.labels)),
            spec.group,
            spec.slots,
            spec.cpu_millis,
            spec.memory_bytes,
            spec.process_slots,
        )
        await self.database.fetch(
            "insert into node_capabilities (node_id, capability, version) values ($1, $2, '1')",
            node_id,
            spec.capability,
        )
        return NodeId(node_id)

    async def claim(self, count: int = 500) -> tuple[str, list[Placement]]:
        """Claim what is due, all for the first node."""
        claim_id = IDS.new_id()
        claimed = await self.store.claim(claim_id, count, [])
        nodes = await self.store.nodes()
        return claim_id, [Placement(one, nodes[0].node_id) for one in claimed.requests]

    async def attempts(self) -> list[Record]:
        """Return all attempts."""
        return await self.database.fetch("select * from attempts order by attempt_id")

    async def requests(self) -> list[Record]:
        """Return all requests."""
        return await self.database.fetch(
            "select * from scheduling_requests order by execution_id, step_key, item_index"
        )

    async def somebody_waits_for_a_lock(self) -> bool:
        """Whether some statement on this database is held up by another's lock."""
        rows = await self.database.fetch(
            "select 1 from pg_stat_activity"
            " where datname = current_database() and wait_event_type = 'Lock'"
        )
        return bool(rows)

    async def check(self) -> None:
        """Assert what holds after any number of dispatches, by whomever."""
        assert await self.database.fetch(_CROWDED) == []
        assert await self.database.fetch(_UNMATCHED) == []
        assert await self.database.fetch(_GAPS) == []
