"""Fills a control plane's database with finished work, to measure and plan against.

Each execution brings about 26 rows. Nothing is removed again.
"""

from typing import Final

from foundation.clock import SystemClock
from foundation.ids import SystemIds
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, DatabaseConfig

_SQL: Final = NamedSql.load("tools.bench", "history.sql")
_OF_APPLICATION: Final = frozenset({"fill_callbacks", "fill_requests"})
_OF_NODE: Final = frozenset(
    f"fill_{one}"
    for one in (
        "attempts", "commands", "inbox", "timeline", "artifacts", "grants", "commits",
    )
)  # fmt: skip


async def fill(database: Database, execution_count: int) -> None:
    """Fill in one transaction, and let the planner know."""
    ids = SystemIds(SystemClock())
    application_id, node_id = ids.new_id(), ids.new_id()

    async def run(connection: Connection) -> None:
        await connection.execute("set local statement_timeout = 0")
        for name in _SQL:
            arguments: tuple[object, ...] = ()
            if name == "fill_tasks":
                arguments = (application_id, execution_count)
            elif name in _OF_APPLICATION:
                arguments = (application_id,)
            elif name in _OF_NODE:
                arguments = (node_id,)
            await connection.execute(_SQL[name], *arguments, timeout=None)

    async with database.acquire() as connection:
        async with connection.transaction():
            await run(connection)
        await connection.execute("set statement_timeout = 0; analyze; reset statement_timeout")


async def load(dsn: str, execution_count: int) -> None:
    """Fill the database at a DSN, for as long as it takes."""
    config = DatabaseConfig(dsn=dsn, application_name="tdp-history", statement_timeout_s=36_000)
    async with Database(config) as database:
        await fill(database, execution_count)
