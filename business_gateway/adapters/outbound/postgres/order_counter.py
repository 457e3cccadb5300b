"""Counts the orders that are open, for the gauges."""

from typing import Final

from business_gateway.core.orders.ports import OpenOrders
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Database

_SQL: Final = NamedSql.load("business_gateway.sql.queries", "operations.sql")


class PostgresOrderCounter:
    """Implements OrderCounter."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def count_open(self) -> OpenOrders:
        """See OrderCounter."""
        async with self._database.acquire() as connection:
            rows = await connection.fetch(_SQL.open_orders)
            health = await connection.fetchrow(_SQL.order_health)
        assert health is not None, "counts always answer a row"
        return OpenOrders(
            {row["status"]: row["order_count"] for row in rows},
            health["gap_count"],
            health["quiet_s_max"],
        )
