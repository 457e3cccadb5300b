"""What operators do with nodes, in PostgreSQL: cordon, drain, place, remove."""

import json
from datetime import timedelta
from typing import Final

from control_plane.adapters.outbound.postgres.idempotency_store import (
    recall,
    remember,
    run_once,
)
from control_plane.adapters.outbound.postgres.outcome_writer import OutcomeWriter
from control_plane.core.executions.outcomes import Aftermath, removed
from control_plane.core.idempotency import RequestIdentity
from control_plane.core.nodes.commands import DrainPayload
from control_plane.core.nodes.domain import ManagementChange, NodePlacement
from control_plane.core.nodes.errors import NodeBusyError, NodeUnknownError
from control_plane.core.scheduling.domain import Management
from foundation.errors import AbortedError
from foundation.failpoints import failpoint
from foundation.ids import IdSource
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database

_SQL: Final = NamedSql.load("control_plane.sql.queries", "node_management.sql")
# Each try takes in what was dispatched during the one before: two are rare, three do not happen.
_REMOVAL_TRIES_MAX: Final = 10


class _DispatchedMeanwhileError(AbortedError):
    """Something was dispatched to the node after its attempts had been locked."""

    reason = "NODE_DISPATCHED_TO"


class PostgresNodeManagementStore:
    """Implements NodeManagementStore."""

    def __init__(self, database: Database, outcomes: OutcomeWriter, ids: IdSource) -> None:
        self._database = database
        self._outcomes = outcomes
        self._ids = ids

    async def set_management(
        self, identity: RequestIdentity, node_id: str, change: ManagementChange
    ) -> bool:
        """Say what a node may do, and order it; see the port."""
        drains = change.management is Management.DRAINING

        async def write(connection: Connection) -> None:
            ordered = await connection.fetchval(
                _SQL.set_management,
                node_id,
                change.management.value,
                change.actor,
                change.reason,
                timedelta(seconds=change.grace_s) if change.grace_s > 0 else None,
                self._ids.new_id(),
                DrainPayload(change.grace_s).to_json() if drains else "{}",
            )
            if ordered is None:
                raise _unknown(node_id)

        await failpoint("node.manage.before")
        _, created = await run_once(self._database, identity, node_id, write)
        await failpoint("node.manage.after")
        return created

    async def set_placement(
        self, identity: RequestIdentity, node_id: str, placement: NodePlacement
    ) -> bool:
        """Replace labels, weight and group; see the port."""

        async def write(connection: Connection) -> None:
            labels = json.dumps(dict(placement.labels), ensure_ascii=False)
            found = await connection.fetchval(
                _SQL.set_placement, node_id, labels, placement.weight, placement.group
            )
            if found is None:
                raise _unknown(node_id)

        _, created = await run_once(self._database, identity, node_id, write)
        return created

    async def remove(
        self, identity: RequestIdentity, node_id: str, *, loses_attempts: bool
    ) -> tuple[bool, Aftermath]:
        """Forget a node and its credential; see the port."""

        async def run(connection: Connection) -> tuple[bool, Aftermath]:
            if not await remember(connection, identity, node_id):
                await recall(connection, identity)
                return False, Aftermath()
            return True, await self._remove_in(connection, node_id, loses_attempts=loses_attempts)

        await failpoint("node.remove.before")
        for _ in range(_REMOVAL_TRIES_MAX - 1):
            try:
                done = await self._database.run_transaction(run)
                break
            except _DispatchedMeanwhileError:
                continue
        else:
            done = await self._database.run_transaction(run)
        await failpoint("node.remove.after")
        return done

    async def _remove_in(
        self, connection: Connection, node_id: str, *, loses_attempts: bool
    ) -> Aftermath:
        held = await _live_attempts(connection, node_id)
        if held and not loses_attempts:
            raise NodeBusyError(
                f"node {node_id} holds {len(held)} live attempts: drain it first, or say that "
                "they may be lost, to be tried again elsewhere"
            )
        locked = await self._outcomes.lock(connection, held)
        live = set(await _live_attempts(connection, node_id))
        endings = [
            (facts, removed(facts.stop_reason))
            for attempt_id, facts in locked.facts.items()
            if attempt_id in live
        ]
        aftermath = await self._outcomes.end(connection, endings, locked.now)
        if await connection.fetchval(_SQL.lock_node_for_removal, node_id) is None:
            raise _unknown(node_id)
        # With the row locked nothing more is dispatched to the node.
        if await _live_attempts(connection, node_id):
            raise _DispatchedMeanwhileError(
                f"work keeps being dispatched to node {node_id}: cordon it, then remove it"
            )
        await connection.execute(_SQL.remove_node, node_id)
        return aftermath


async def _live_attempts(connection: Connection, node_id: str) -> list[str]:
    rows = await connection.fetch(_SQL.live_attempts_of_node, node_id)
    return [str(row["attempt_id"]) for row in rows]


def _unknown(node_id: str) -> NodeUnknownError:
    return NodeUnknownError(f"no node {node_id}: list the nodes for their ids")
