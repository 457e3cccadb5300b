"""The command outbox on PostgreSQL, and what commands need to know of orders."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from business_gateway.core.callbacks.commands import CommandFacts
from business_gateway.core.callbacks.ports import OrderListener
from foundation.outbox.model import Mark, OutboxStatus
from foundation.outbox.policy import OutboxPolicy
from foundation.outbox.postgres_store import PostgresOutboxStore
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database

COMMAND_TABLE: Final = "command_outbox"
_SQL: Final = NamedSql.load("business_gateway.sql.queries", "commands.sql")


class CommandOutboxStore(PostgresOutboxStore):
    """The outbox of commands; a DEAD one makes its order need attention, in one transaction."""

    def __init__(self, database: Database, policy: OutboxPolicy, listener: OrderListener) -> None:
        super().__init__(database, policy, table=COMMAND_TABLE, after_mark=self._note_refusals)
        self._listener = listener
        self._refused: list[str] = []

    async def mark(self, marks: Sequence[Mark]) -> frozenset[UUID]:
        """See OutboxStore; orders that changed are announced once that is committed."""
        applied = await super().mark(marks)
        refused, self._refused = self._refused, []
        for order_id in refused:
            self._listener.announce(order_id)
        return applied

    async def _note_refusals(self, connection: Connection, marks: Sequence[Mark]) -> None:
        dead = [one.outbox_id for one in marks if one.status is OutboxStatus.DEAD]
        if not dead:
            return
        rows = await connection.fetch(_SQL.note_refusals, dead)
        self._refused += [str(row["order_id"]) for row in rows]


class PostgresCommandOrders:
    """Implements CommandOrders."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def facts(self, order_ids: Sequence[str]) -> Sequence[CommandFacts]:
        """See CommandOrders."""
        rows = await self._database.fetch(_SQL.command_facts, list(order_ids))
        return [
            CommandFacts(
                order_id=str(row["order_id"]),
                order_status=row["order_status"],
                task_id=None if row["task_id"] is None else str(row["task_id"]),
                submit_status=row["submit_status"],
            )
            for row in rows
        ]

    async def close_unsubmitted(self, order_id: str) -> bool:
        """See CommandOrders."""
        return await self._database.fetchrow(_SQL.close_unsubmitted, order_id) is not None
