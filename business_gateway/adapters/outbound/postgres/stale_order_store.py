"""Orders that the platform has to be asked about, on PostgreSQL."""

from collections.abc import Sequence
from typing import Final

from business_gateway.core.callbacks.ports import StaleOrder
from foundation.failpoints import failpoint
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Database, Record

_SQL: Final = NamedSql.load("business_gateway.sql.queries", "callbacks.sql")


class PostgresStaleOrders:
    """Implements StaleOrderStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take_stale(self, quiet_s: float, limit: int) -> Sequence[StaleOrder]:
        """See StaleOrderStore."""
        await failpoint("gateway.compensate.take.before")
        rows = await self._database.fetch(_SQL.take_stale, quiet_s, limit)
        await failpoint("gateway.compensate.take.after")
        return [_stale(row) for row in rows]

    async def take_gaps(self, order_ids: Sequence[str]) -> Sequence[StaleOrder]:
        """See StaleOrderStore."""
        rows = await self._database.fetch(_SQL.take_gaps, list(order_ids))
        return [_stale(row) for row in rows]

    async def next_stale_in_s(self, quiet_s: float) -> float | None:
        """See StaleOrderStore."""
        row = await self._database.fetchrow(_SQL.next_stale, quiet_s)
        return None if row is None or row["due_in_s"] is None else max(0.0, row["due_in_s"])

    async def close_gap(self, order_id: str, run: int) -> None:
        """See StaleOrderStore."""
        await self._database.fetch(_SQL.close_gap, order_id, run)


def _stale(row: Record) -> StaleOrder:
    return StaleOrder(
        order_id=str(row["order_id"]),
        task_id=str(row["task_id"]),
        execution_id=str(row["execution_id"]),
        run=row["run"],
        contiguous=row["last_contiguous_sequence"],
    )
