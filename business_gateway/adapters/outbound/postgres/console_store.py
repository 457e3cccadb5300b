"""Reads of the gateway's tables that only the page makes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import asyncpg

from business_gateway.adapters.outbound.postgres.order_rows import order_of
from business_gateway.core.console.ports import Document
from business_gateway.core.orders.documents import time_text
from business_gateway.core.orders.domain import Order
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Database

_SQL: Final = NamedSql.load("business_gateway.sql.queries", "console.sql")
_DEAD_ROWS: Final = 100
_CHANGE_ROWS: Final = 500


class PostgresConsoleTables:
    """Implements ConsoleTables."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def orders(self, order_ids: Sequence[str]) -> Sequence[Order]:
        """See ConsoleTables."""
        rows = await self._database.fetch(_SQL.console_orders, list(order_ids))
        return [order_of(row) for row in rows]

    async def queues(self) -> Document:
        """See ConsoleTables."""
        counts = await self._database.fetch(_SQL.console_command_counts)
        dead = await self._database.fetch(_SQL.console_dead_commands, _DEAD_ROWS)
        return {
            "commands": [_document(row) for row in counts],
            "dead": [_document(r) for r in dead],
        }

    async def callbacks(self, before_event_id: str | None, limit: int) -> Sequence[Document]:
        """See ConsoleTables."""
        rows = await self._database.fetch(_SQL.console_callbacks, before_event_id, limit)
        return [_document(row) for row in rows]

    async def changes(self, order_id: str) -> Sequence[Document]:
        """See ConsoleTables."""
        rows = await self._database.fetch(_SQL.console_changes, order_id, _CHANGE_ROWS)
        return [_document(row) for row in reversed(rows)]


def _document(row: asyncpg.Record) -> dict[str, Any]:
    return {
        name: time_text(value) if isinstance(value, datetime) else value
        for name, value in row.items()
    }
