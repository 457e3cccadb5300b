"""Durable commands in PostgreSQL: marked as SENT before they are written, acked cumulatively."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from control_plane.core.nodes.commands import CommandKind
from control_plane.core.nodes.domain import CommandAck, CommandDemand, SentCommand
from control_plane.core.nodes.leases import LeaseFigures
from foundation.failpoints import failpoint
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Database, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "node_commands.sql")


class PostgresCommandStore:
    """Implements CommandStore; a command unacknowledged for `ack_timeout_s` is sent again."""

    def __init__(
        self, database: Database, figures: LeaseFigures, *, ack_timeout_s: float = 10.0
    ) -> None:
        self._database = database
        self._ttl = timedelta(seconds=figures.lease_ttl_s)
        self._ack_timeout = timedelta(seconds=ack_timeout_s)

    async def take(self, demands: Sequence[CommandDemand]) -> list[SentCommand]:
        """Mark the sessions' next commands as SENT and return them; see the port."""
        if not demands:
            return []
        await failpoint("command.mark.before")
        rows = await self._database.fetch(
            _SQL.take_commands,
            [one.session.node_id for one in demands],
            [one.session.generation for one in demands],
            [one.credit_count for one in demands],
            [one.window_size for one in demands],
            self._ttl,
            self._ack_timeout,
        )
        await failpoint("command.mark.after")
        return [_sent(row) for row in rows]

    async def ack(self, acks: Sequence[CommandAck]) -> Sequence[int]:
        """Note what nodes have stored; see the port."""
        newest: dict[tuple[str, int], int] = {}
        for one in acks:
            key = (one.session.node_id, one.session.generation)
            newest[key] = max(newest.get(key, 0), one.sequence)
        # Only one generation of a node can be current: the highest decides nothing by itself.
        counts: dict[str, int] = {}
        for group in _one_a_node(newest):
            rows = await self._database.fetch(
                _SQL.ack_commands,
                [key[0] for key in group],
                [key[1] for key in group],
                [newest[key] for key in group],
            )
            counts.update({str(row["node_id"]): row["acked_count"] for row in rows})
        return [counts.get(one.session.node_id, 0) for one in acks]

    async def undelivered(self, node_ids: Sequence[str]) -> list[str]:
        """Return the nodes with commands to be sent; see the port."""
        rows = await self._database.fetch(_SQL.undelivered_nodes, node_ids, self._ack_timeout)
        return [str(row["node_id"]) for row in rows]


def _sent(row: Record) -> SentCommand:
    return SentCommand(
        node_id=str(row["node_id"]),
        sequence=row["sequence"],
        command_id=str(row["command_id"]),
        kind=CommandKind(row["kind"]),
        payload=row["payload"],
        is_first=row["is_first"],
        lease_remaining_s=row["lease_remaining_s"] or 0.0,
    )


def _one_a_node(newest: dict[tuple[str, int], int]) -> list[list[tuple[str, int]]]:
    """Split keys so that no group names a node twice."""
    groups: list[dict[str, tuple[str, int]]] = []
    for key in newest:
        for group in groups:
            if key[0] not in group:
                group[key[0]] = key
                break
        else:
            groups.append({key[0]: key})
    return [list(group.values()) for group in groups]
