"""Reads what the gauges show."""

from typing import Final

from control_plane.core.gauges.domain import (
    ExecutionFact,
    GaugeFacts,
    NodeFact,
    QueueFact,
)
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Database

QUEUES_MAX: Final = 200
"""Capability versions that are told apart; those with the most waiting come first."""
_SQL: Final = NamedSql.load("control_plane.sql.queries", "gauges.sql")


class PostgresGaugeReader:
    """Implements GaugeReader."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def facts(self) -> GaugeFacts:
        """Count everything once."""
        async with self._database.acquire() as connection:
            queues = await connection.fetch(_SQL.waiting_requests, QUEUES_MAX)
            executions = await connection.fetch(_SQL.live_executions)
            finished = await connection.fetch(_SQL.finished_executions)
            nodes = await connection.fetch(_SQL.node_slots)
            work = await connection.fetchrow(_SQL.open_work)
        assert work is not None, "counts always answer a row"
        return GaugeFacts(
            queues=[QueueFact(*row.values()) for row in queues],
            executions=[ExecutionFact(*row.values()) for row in executions],
            finished=[(row["status"], row["finished_count"]) for row in finished],
            nodes=[NodeFact(*row.values()) for row in nodes],
            open_command_count=work["open_command_count"],
            live_attempt_count=work["live_attempt_count"],
        )
