"""Nodes and join tokens in PostgreSQL, as operators see and change them."""

import json
from datetime import timedelta
from typing import Final

from control_plane.adapters.outbound.postgres.idempotency_store import (
    recall,
    remember,
    run_once,
)
from control_plane.core.idempotency import RequestIdentity
from control_plane.core.nodes.domain import JoinToken, NodeView
from control_plane.core.nodes.errors import (
    JoinTokenExistsError,
    JoinTokenUnknownError,
)
from control_plane.core.scheduling.domain import Management, Runtime
from control_plane.core.workflows.domain import Resources
from foundation.ids import IdSource
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "nodes.sql")


class PostgresNodeDirectory:
    """Implements NodeDirectory."""

    def __init__(self, database: Database, ids: IdSource) -> None:
        self._database = database
        self._ids = ids

    async def list_nodes(self, after_name: str, count_max: int) -> list[NodeView]:
        """Return nodes by name; see the port."""
        return [
            _view(row)
            for row in await self._database.fetch(_SQL.list_nodes, after_name, None, count_max)
        ]

    async def get_node(self, node_id: str) -> NodeView | None:
        """Return one node; see the port."""
        row = await self._database.fetchrow(_SQL.list_nodes, "", node_id, 1)
        return None if row is None else _view(row)

    async def create_join_token(
        self,
        identity: RequestIdentity,
        token_sha256: bytes,
        ttl: timedelta,
        use_count_max: int,
        node_group: str,
    ) -> tuple[JoinToken, bool]:
        """Register a token; see the port."""
        token_id = self._ids.new_id()

        async def run(connection: Connection) -> tuple[JoinToken, bool]:
            if not await remember(connection, identity, token_id):
                first_id = await recall(connection, identity)
                return await _read_token(connection, first_id), False
            expires_at = await connection.fetchval(
                _SQL.insert_join_token, token_id, token_sha256, node_group, use_count_max, ttl
            )
            if expires_at is None:
                known = await connection.fetchval(_SQL.find_join_token_by_hash, token_sha256)
                raise JoinTokenExistsError(
                    "this token was registered before: make a new one", existing_id=str(known)
                )
            return JoinToken(token_id, expires_at), True

        return await self._database.run_transaction(run)

    async def revoke_join_token(self, identity: RequestIdentity, join_token_id: str) -> bool:
        """End a token; see the port."""

        async def change(connection: Connection) -> None:
            if await connection.fetchval(_SQL.revoke_join_token, join_token_id) is None:
                raise JoinTokenUnknownError(f"no join token {join_token_id}: check the id")

        _, created = await run_once(self._database, identity, join_token_id, change)
        return created


async def _read_token(connection: Connection, token_id: str) -> JoinToken:
    expires_at = await connection.fetchval(_SQL.read_join_token, token_id)
    if expires_at is None:
        raise JoinTokenUnknownError(f"join token {token_id} was removed: make a new one")
    return JoinToken(token_id, expires_at)


def _view(row: Record) -> NodeView:
    capabilities = json.loads(row["capabilities_json"])
    return NodeView(
        node_id=str(row["node_id"]),
        name=row["name"],
        group=row["node_group"],
        management=Management(row["management"]),
        runtime=Runtime(row["runtime"]),
        generation=row["generation"],
        labels=json.loads(row["labels_json"]),
        weight=row["weight"],
        capabilities=[(one["name"], one["version"], one["refusal"]) for one in capabilities],
        slot_count=row["slot_count"],
        running_count=row["running_count"],
        resources=_resources(row, ""),
        reserved=_resources(row, "reserved_"),
        unacked_command_count=row["unacked_command_count"],
        last_seen_at=row["last_seen_at"],
        enrolled_at=row["enrolled_at"],
        agent_version=row["agent_version"],
        managed_by=row["managed_by"],
        management_reason=row["management_reason"],
        drain_deadline_at=row["drain_deadline_at"],
        process_slot_count=row["process_slot_count"],
        process_running_count=row["process_running_count"],
        cpu_used_millis=row["cpu_used_millis"],
        memory_available_bytes=row["memory_available_bytes"],
    )


def _resources(row: Record, prefix: str) -> Resources:
    return Resources(
        row[f"{prefix}cpu_millis"],
        row[f"{prefix}memory_bytes"],
        row[f"{prefix}disk_bytes"],
        row[f"{prefix}gpu_count"],
    )
