"""What the control plane's database says about a run: the truth behind the clients' view."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg

from foundation.clock import Clock
from foundation.postgres.named_sql import NamedSql
from tools.bench.errors import BenchError

_STEPS: Final = 2
_LOOK_PERIOD_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class FirstStep:
    """When the first step's attempt was dispatched and was taken by its node."""

    dispatched_at: datetime
    accepted_at: datetime


class Facts:
    """Reads the control plane's tables over one connection."""

    def __init__(
        self, connection: asyncpg.Connection[asyncpg.Record], sql: NamedSql, clock: Clock
    ) -> None:
        """Take a connection that nothing else uses meanwhile."""
        self._connection = connection
        self._sql = sql
        self._clock = clock

    async def wait_until_quiet(self, timeout_s: float) -> None:
        """Return when no execution is live and every event was published.

        Raises:
            BenchError: something was still under way after `timeout_s`.
        """
        ends_s = self._clock.monotonic() + timeout_s
        while True:
            unfinished = await self._connection.fetchval(self._sql.unfinished)
            if unfinished == 0:
                return
            if self._clock.monotonic() > ends_s:
                raise BenchError(f"{unfinished} executions and events are unfinished; see the logs")
            await asyncio.sleep(_LOOK_PERIOD_S)

    async def last_completion(self, execution_ids: Sequence[str]) -> datetime:
        """When the last of these executions was finished, by the database's clock."""
        moment: datetime = await self._connection.fetchval(self._sql.last_completion, execution_ids)
        return moment

    async def first_steps(self, execution_ids: Sequence[str]) -> dict[str, FirstStep]:
        """The first step's times by execution."""
        rows = await self._connection.fetch(self._sql.first_step_times, execution_ids)
        return {
            row["execution_id"]: FirstStep(row["dispatched_at"], row["accepted_at"]) for row in rows
        }

    async def check(self, execution_ids: Sequence[str]) -> None:
        """Check that each execution SUCCEEDED, with exactly one attempt for each of its steps.

        Raises:
            BenchError: one did not; names some of them.
        """
        wrong = await self._connection.fetch(self._sql.wrong_executions, execution_ids)
        if wrong:
            raise BenchError(f"these executions did not succeed: {[tuple(row) for row in wrong]}")
        rows = await self._connection.fetch(self._sql.steps_attempted, execution_ids)
        doubled = [
            tuple(row) for row in rows if (row["succeeded"], row["attempts"]) != (_STEPS, _STEPS)
        ]
        if doubled or len(rows) != len(execution_ids):
            raise BenchError(
                f"of {len(execution_ids)} executions {len(doubled)} have other than one successful "
                f"attempt a step: {doubled[:10]}"
            )

    async def flush(self) -> None:
        """Write dirty pages now, so that the next phase does not pay for the last."""
        await self._connection.execute(self._sql.flush)

    async def log_statements(self, *, every: bool) -> None:
        """Make the server log each statement, or stop it from doing so."""
        await self._connection.execute(
            self._sql.log_every_statement if every else self._sql.log_no_statement
        )
        await self._connection.execute(self._sql.reload)

    async def setting(self, name: str) -> str:
        """A setting of the server as it is in force."""
        value: str = await self._connection.fetchval(self._sql.show_setting, name)
        return value


@asynccontextmanager
async def facts(dsn: str, sql: NamedSql, clock: Clock) -> AsyncIterator[Facts]:
    """Connect to the control plane's database until the block ends."""
    connection = await asyncpg.connect(dsn, server_settings={"application_name": "tdp-bench"})
    try:
        yield Facts(connection, sql, clock)
    finally:
        await connection.close()
