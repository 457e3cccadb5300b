"""Nodes and their sessions in PostgreSQL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from control_plane.adapters.outbound.postgres.capability_schemas import CapabilitySchemas
from control_plane.adapters.outbound.postgres.idempotency_store import recall, remember
from control_plane.adapters.outbound.postgres.outcome_writer import OutcomeWriter
from control_plane.core.executions.attempt_state import ATTEMPT_MACHINE, AttemptStatus
from control_plane.core.executions.domain import AttemptId
from control_plane.core.executions.outcomes import Aftermath
from control_plane.core.executions.outcomes import missing as missing_ending
from control_plane.core.idempotency import RequestIdentity
from control_plane.core.nodes.domain import Hello, NodeState, OpenedSession, SessionRef
from control_plane.core.nodes.errors import (
    JoinTokenInvalidError,
    JoinTokenSpentError,
    NodeExistsError,
    NodeUnknownError,
)
from control_plane.core.nodes.leases import (
    DatabaseSeconds,
    IncarnationId,
    LeaseFacts,
    LeaseFigures,
    LeaseGuard,
    LeaseVersion,
    ListedLease,
    NodeId,
    Verdict,
    WelcomePlan,
    is_new_incarnation,
    plan_welcome,
)
from control_plane.core.scheduling.domain import Runtime
from foundation.failpoints import failpoint
from foundation.ids import IdSource
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "nodes.sql", "leases.sql")
ENROL: Final = "Enroll"


@dataclass(frozen=True, slots=True)
class _Enrolment:
    token_sha256: bytes
    key: str
    request_hash: bytes
    node_name: str
    credential_sha256: bytes


class PostgresNodeStore:
    """Implements NodeStore."""

    def __init__(
        self,
        database: Database,
        outcomes: OutcomeWriter,
        schemas: CapabilitySchemas,
        figures: LeaseFigures,
        ids: IdSource,
        *,
        replica_id: str,
    ) -> None:
        self._database = database
        self._outcomes = outcomes
        self._schemas = schemas
        self._figures = figures
        self._ttl = timedelta(seconds=figures.lease_ttl_s)
        self._ids = ids
        self._replica_id = replica_id

    async def enrol(
        self,
        token_sha256: bytes,
        key: str,
        request_hash: bytes,
        node_name: str,
        credential_sha256: bytes,
    ) -> str:
        """Make a node of a join token; see the port."""
        asked = _Enrolment(token_sha256, key, request_hash, node_name, credential_sha256)

        async def run(connection: Connection) -> str:
            return await self._enrol_in(connection, asked)

        await failpoint("enrol.commit.before")
        node_id = await self._database.run_transaction(run)
        await failpoint("enrol.commit.after")
        return node_id

    async def _enrol_in(self, connection: Connection, asked: _Enrolment) -> str:
        token = await connection.fetchrow(_SQL.find_join_token, asked.token_sha256)
        if token is None:
            raise JoinTokenInvalidError(
                "the bearer token is no join token that is registered here: create one with "
                "CreateJoinToken"
            )
        token_id = str(token["join_token_id"])
        identity = RequestIdentity(f"join_token:{token_id}", ENROL, asked.key, asked.request_hash)
        node_id = self._ids.new_id()
        if not await remember(connection, identity, node_id):
            return await recall(connection, identity)
        if await connection.fetchrow(_SQL.use_join_token, token["join_token_id"]) is None:
            raise JoinTokenSpentError(
                f"join token {token_id} is revoked, expired or used up: create a new one"
            )
        stored = await connection.fetchval(
            _SQL.insert_node, node_id, asked.node_name, asked.credential_sha256, token["node_group"]
        )
        if stored is None:
            raise await _taken(connection, asked)
        return node_id

    async def open_session(self, hello: Hello) -> OpenedSession:
        """Open the node's next session; see the port."""
        refusals = await self._schemas.register(hello.node_id, hello.capabilities)
        judged = await self._database.fetchrow(_SQL.judge_guard, self._ttl)
        assert judged is not None, "the migration made the row of lease_guard"
        now_s = DatabaseSeconds(judged["as_of"].timestamp())
        guard = LeaseGuard(now_s, DatabaseSeconds(judged["hold_until"].timestamp()))

        async def run(connection: Connection) -> OpenedSession:
            return await self._open_in(connection, hello, guard, refusals)

        await failpoint("session.open.before")
        opened = await self._database.run_transaction(run)
        await failpoint("session.open.after")
        return opened

    async def _open_in(
        self,
        connection: Connection,
        hello: Hello,
        guard: LeaseGuard,
        refusals: Mapping[tuple[str, str], str],
    ) -> OpenedSession:
        held = [one.lease for one in hello.held]
        rows = await connection.fetch(
            _SQL.lock_held_attempts, hello.node_id, [one.attempt_id for one in held]
        )
        node = await connection.fetchrow(_SQL.lock_node, hello.node_id)
        if node is None:
            raise NodeUnknownError(
                f"node {hello.node_id} is not enrolled (any more): enrol it again"
            )
        acked = _acked_sequence(node, hello)
        facts = [_lease_facts(row, acked) for row in rows]
        plan = plan_welcome(held, facts, NodeId(hello.node_id), guard, guard.stamped_at_s)
        generation = await connection.fetchval(
            _SQL.open_session, *self._columns(hello, acked, plan, refusals)
        )
        verdicts = {one: plan.verdicts[one.attempt_id] for one in held}
        if node["boot_id"] not in (None, hello.boot_id):
            resumed = [
                one.lease.attempt_id
                for one in hello.held
                if not one.finished and verdicts[one.lease] is Verdict.KEEP
            ]
            await connection.execute(_SQL.note_resumed, hello.node_id, hello.boot_id, resumed)
        return OpenedSession(generation, verdicts, plan.missing)

    def _columns(
        self,
        hello: Hello,
        acked: int,
        plan: WelcomePlan,
        refusals: Mapping[tuple[str, str], str],
    ) -> list[object]:
        runtime = Runtime.READY if hello.ready else Runtime.NOT_READY
        inline = {(one.name, one.version): one.inline for one in hello.capabilities}
        return [
            hello.node_id,
            hello.boot_id,
            hello.incarnation_id,
            self._replica_id,
            hello.agent_version,
            runtime.value,
            hello.not_ready_reason,
            hello.slot_count,
            hello.resources.cpu_millis,
            hello.resources.memory_bytes,
            hello.resources.disk_bytes,
            hello.resources.gpu_count,
            hello.last_command_sequence,
            acked,
            list(plan.renew),
            self._ttl,
            [name for name, _ in refusals],
            [version for _, version in refusals],
            list(refusals.values()),
            [inline[one] for one in refusals],
            hello.process_slot_count,
        ]

    async def lose_missing(self, session: SessionRef, missing: Sequence[ListedLease]) -> Aftermath:
        """End as LOST what the node should hold and doesn't; see the port."""
        if not missing:
            return Aftermath()
        ids = [one.attempt_id for one in missing]
        versions = [one.lease_version for one in missing]

        async def run(connection: Connection) -> Aftermath:
            locked = await self._outcomes.lock(connection, ids)
            rows = await connection.fetch(
                _SQL.confirm_missing, session.node_id, session.generation, ids, versions
            )
            lost = {AttemptId(str(row["attempt_id"])) for row in rows}
            endings = [(locked.facts[one], missing_ending()) for one in sorted(lost)]
            return await self._outcomes.end(connection, endings, locked.now)

        return await self._database.run_transaction(run)

    async def close_sessions(self, sessions: Sequence[SessionRef]) -> None:
        """Note that sessions are over; see the port."""
        await self._database.fetch(
            _SQL.close_sessions,
            [one.node_id for one in sessions],
            [one.generation for one in sessions],
        )

    async def write_states(self, states: Sequence[NodeState]) -> frozenset[str]:
        """Write what sessions show of their nodes; see the port."""
        newest = {one.session.node_id: one for one in states}
        rows = await self._database.fetch(
            _SQL.write_node_states,
            list(newest),
            [one.session.generation for one in newest.values()],
            [one.runtime.value for one in newest.values()],
            [one.not_ready_reason for one in newest.values()],
            [one.disk_bytes for one in newest.values()],
            [one.cpu_used_millis for one in newest.values()],
            [one.memory_available_bytes for one in newest.values()],
        )
        return frozenset(str(row["node_id"]) for row in rows)


async def _taken(connection: Connection, asked: _Enrolment) -> NodeExistsError:
    by_name = await connection.fetchval(_SQL.find_node_by_name, asked.node_name)
    if by_name is not None:
        return NodeExistsError(
            f"a node named {asked.node_name!r} is enrolled already: choose another name",
            existing_id=str(by_name),
        )
    other = await connection.fetchval(_SQL.find_node_by_credential, asked.credential_sha256)
    return NodeExistsError(
        "another node has this credential: make a new one", existing_id=str(other)
    )


def _acked_sequence(node: Record, hello: Hello) -> int:
    """Up to which sequence the node's journal holds every command, as far as is known."""
    known = node["incarnation_id"]
    acked: int = node["acked_command_sequence"]
    fresh = is_new_incarnation(
        known=None if known is None else IncarnationId(str(known)),
        told=IncarnationId(hello.incarnation_id),
        acked_watermark=acked,
        told_watermark=hello.last_command_sequence,
    )
    return acked if fresh else max(acked, hello.last_command_sequence)


def _lease_facts(row: Record, acked_sequence: int) -> LeaseFacts:
    status = AttemptStatus(row["status"])
    run_sequence = row["run_sequence"]
    is_stored = run_sequence is not None and run_sequence <= acked_sequence
    # A pending result holds no lease: for the node it is over, whatever the commit will say.
    is_over = ATTEMPT_MACHINE.is_terminal(status) or row["is_pending"]
    return LeaseFacts(
        attempt_id=AttemptId(str(row["attempt_id"])),
        node_id=NodeId(str(row["node_id"])),
        lease_version=LeaseVersion(row["lease_version"]),
        lease_expires_at_s=DatabaseSeconds(row["lease_expires_at_s"] or 0.0),
        is_terminal=is_over,
        is_accepted=is_stored or status in (AttemptStatus.ACCEPTED, AttemptStatus.RUNNING),
        stop_requested=row["stop_reason"] is not None,
    )
