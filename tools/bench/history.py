"""Fills a control plane's database with finished work, to measure and plan against.

    python -m tools.bench.history DSN [EXECUTIONS]

Each execution brings about 26 rows. The database is one for measurements: nothing is removed again.
"""

import asyncio
import sys
from typing import Final

from foundation.clock import SystemClock
from foundation.ids import SystemIds
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, DatabaseConfig

EXECUTIONS_DEFAULT: Final = 1_000_000
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


async def _fill(dsn: str, execution_count: int) -> None:
    config = DatabaseConfig(dsn=dsn, application_name="tdp-history", statement_timeout_s=36_000)
    async with Database(config) as database:
        await fill(database, execution_count)


def main(arguments: list[str]) -> int:
    """Fill the database at a DSN; 0, or 2 where none is named."""
    if not arguments:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    count = int(arguments[1]) if len(arguments) > 1 else EXECUTIONS_DEFAULT
    asyncio.run(_fill(arguments[0], count))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
