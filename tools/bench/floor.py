"""The floor: how many single-row commits the same PostgreSQL does with nothing of ours above."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg

from foundation.clock import Clock
from foundation.postgres.named_sql import NamedSql
from tools.bench.cpu import CpuMeter
from tools.bench.errors import BenchError
from tools.dev_stack.postgres import PostgresServer
from tools.dev_stack.processes import Launch, run_to_end
from tools.dev_stack.programs import postgres_program

FLOOR_DATABASE: Final = "tdp_bench_floor"
CLIENTS: Final = (1, 16)
"""One shows what a commit takes; sixteen how many the server makes of them together."""

_SCRIPT: Final = Path(__file__).with_name("floor_commit.sql")
_RATE: Final = re.compile(r"^tps = ([0-9.]+)", re.MULTILINE)
_LATENCY: Final = re.compile(r"^latency average = ([0-9.]+) ms", re.MULTILINE)
_PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Floor:
    """Commits of one row each, by `clients` connections at once."""

    clients: int
    commits_per_s: float
    latency_ms: float
    postgres_cpu_ms_per_commit: float


class FloorMeasurement:
    """Drives pgbench, which comes with the server, against a database of its own."""

    def __init__(self, server: PostgresServer, sql: NamedSql, clock: Clock, folder: Path) -> None:
        """Take the running server, and the folder for pgbench's log."""
        self._server = server
        self._sql = sql
        self._clock = clock
        self._folder = folder

    async def measure(self, seconds: float) -> list[Floor]:
        """Measure for each number of clients.

        Raises:
            BenchError: pgbench failed; carries the end of its log.
        """
        dsn = await self._server.create_database(FLOOR_DATABASE)
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(self._sql.make_floor_table)
            await connection.execute(self._sql.flush)
        finally:
            await connection.close()
        return [await self._measure(dsn, clients, seconds) for clients in CLIENTS]

    async def _measure(self, dsn: str, clients: int, seconds: float) -> Floor:
        log_file = self._folder / f"pgbench-{clients}.log"
        command = (
            str(postgres_program("pgbench")),
            "--no-vacuum",
            "--protocol=prepared",
            f"--client={clients}",
            "--jobs=1",
            f"--time={max(1, round(seconds))}",
            f"--file={_SCRIPT}",
            dsn,
        )
        launch = Launch(command, log_file, environment={"HOME": os.devnull})
        with CpuMeter({"postgres": self._server.pid}, self._clock) as meter:
            status, tail = await run_to_end(launch, seconds + _PATIENCE_S)
        rate, latency = _RATE.search(tail), _LATENCY.search(tail)
        if status != 0 or rate is None or latency is None:
            raise BenchError(f"pgbench ended with status {status}; its log ends with:\n{tail}")
        commits = float(rate[1]) * seconds
        return Floor(
            clients,
            float(rate[1]),
            float(latency[1]),
            1_000 * meter.use.total_s / commits,
        )
