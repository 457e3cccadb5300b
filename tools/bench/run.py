"""One run: start everything, floor, latencies, throughput, idle, check what came out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import psutil

from foundation.clock import Clock
from foundation.ids import IdSource
from foundation.postgres.named_sql import NamedSql
from tools.bench.client import Submitter, Watched, submitter
from tools.bench.cpu import CpuMeter
from tools.bench.facts import Facts, FirstStep, facts
from tools.bench.floor import Floor, FloorMeasurement
from tools.bench.history import load
from tools.bench.idle import Idle, measure_idle
from tools.bench.percentiles import Percentiles, percentiles
from tools.bench.plan import PRODUCTION, WORKFLOW_FILE, BenchPlan
from tools.dev_stack.platform import Platform, PlatformConfig, running_platform

Report = Callable[[str], None]
"""Told what is being done, a short phrase for people."""

_DURABILITY: Final = ("fsync", "synchronous_commit", "full_page_writes")
_SETTLING_S: Final = 2.0
"""Before the idle phase: lets the last heartbeat and back-off of the load pass."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """One execution at a time on an otherwise idle system, from just before CreateTask."""

    others_cores: float
    accepted: Percentiles
    first_step_dispatched: Percentiles
    first_step_on_node: Percentiles
    started_seen: Percentiles
    result_seen: Percentiles


@dataclass(frozen=True, slots=True)
class Throughput:
    """Many executions at once: from the first CreateTask to the last completion.

    `others_cores` were busy with strangers' work meanwhile: what is left bounds the rate.
    """

    executions: int
    seconds: float
    submit_seconds: float
    cpu_ms_per_execution: Mapping[str, float]
    others_cores: float

    @property
    def per_s(self) -> float:
        """Executions finished per second."""
        return self.executions / self.seconds

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds per execution over all processes."""
        return sum(self.cpu_ms_per_execution.values())


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Everything that one run measured."""

    cores: int
    durability: Mapping[str, str]
    floor: Sequence[Floor]
    latencies: Latencies
    throughput: Throughput
    idle: Idle

    @property
    def ratios(self) -> dict[str, float]:
        """What is worth comparing between machines: our costs in units of this run's floor."""
        alone, together = self.floor[0], self.floor[-1]
        return {
            "executions_per_floor_commit": self.throughput.per_s / together.commits_per_s,
            "floor_commits_per_execution": together.commits_per_s / self.throughput.per_s,
            "cpu_in_floor_commits": self.throughput.cpu_ms / together.postgres_cpu_ms_per_commit,
            "result_p50_in_floor_latencies": self.latencies.result_seen.p50_ms / alone.latency_ms,
            "cores_busy": self.throughput.cpu_ms * self.throughput.per_s / 1_000,
        }


class Bench:
    """The phases of one run on a running platform."""

    def __init__(
        self, plan: BenchPlan, platform: Platform, sql: NamedSql, clock: Clock, report: Report
    ) -> None:
        """Take the platform, and whom to tell what is going on."""
        self._plan = plan
        self._platform = platform
        self._sql = sql
        self._clock = clock
        self._report = report

    async def run(self, run_id: str) -> BenchResult:
        """Run all phases, one after the other.

        Raises:
            BenchError: something failed or came out wrong.
        """
        plan, platform = self._plan, self._platform
        dsn = platform.stack.postgres_dsn(platform.surroundings.control_database)
        async with (
            facts(dsn, self._sql, self._clock) as known,
            submitter(
                platform.control_target(),
                platform.client_key,
                channels=plan.channels,
                run=run_id,
                clock=self._clock,
            ) as client,
        ):
            await self._history(dsn)
            durability = {name: await known.setting(name) for name in _DURABILITY}
            floor = await self._floor()
            await self._warm_up(client, known)
            latencies = await self._latencies(client, known)
            throughput = await self._throughput(client, known)
            idle = await self._idle(known)
        return BenchResult(psutil.cpu_count() or 1, durability, floor, latencies, throughput, idle)

    async def _history(self, dsn: str) -> None:
        if self._plan.history:
            self._report(f"history: {self._plan.history} finished executions")
            await load(dsn, self._plan.history)

    def _roots(self) -> dict[str, int]:
        """The process trees whose CPU is counted; S3 has no part in these executions."""
        stack = self._platform.stack
        return {
            "postgres": stack.postgres.pid,
            "nats": stack.nats.pid,
            **{process.name: process.pid for process in self._platform.processes},
        }

    def _meter(self) -> CpuMeter:
        # Of this process its own use alone: its children are the others of the table.
        roots = {**self._roots(), "submitter": psutil.Process().pid}
        return CpuMeter(roots, self._clock, alone=("submitter",))

    async def _floor(self) -> list[Floor]:
        self._report("floor: single-row commits of the database alone")
        folder = self._plan.data_folder / "logs"
        measurement = FloorMeasurement(
            self._platform.stack.postgres, self._sql, self._clock, folder
        )
        return await measurement.measure(self._plan.floor_s)

    async def _warm_up(self, client: Submitter, known: Facts) -> None:
        self._report(f"warm-up: {self._plan.warm_up} executions")
        await client.submit_many(self._plan.warm_up, self._plan.concurrency)
        await known.wait_until_quiet(self._plan.timeout_s)

    async def _latencies(self, client: Submitter, known: Facts) -> Latencies:
        self._report(f"latency: {self._plan.samples} executions, one at a time")
        await known.flush()
        with self._meter() as meter:
            watched = [await client.submit_and_watch() for _ in range(self._plan.samples)]
        ids = [one.execution_id for one in watched]
        await known.check(ids)
        return latencies_of(watched, await known.first_steps(ids), meter.use.others_cores)

    async def _throughput(self, client: Submitter, known: Facts) -> Throughput:
        plan = self._plan
        self._report(f"throughput: {plan.executions} executions, {plan.concurrency} calls at once")
        await known.flush()
        began_at, began_s = self._clock.now(), self._clock.monotonic()
        with self._meter() as meter:
            ids = await client.submit_many(plan.executions, plan.concurrency)
            submit_s = self._clock.monotonic() - began_s
            await known.wait_until_quiet(plan.timeout_s)
        await known.check(ids)
        ended_at = await known.last_completion(ids)
        return Throughput(
            plan.executions,
            (ended_at - began_at).total_seconds(),
            submit_s,
            meter.use.per_item_ms(plan.executions),
            meter.use.others_cores,
        )

    async def _idle(self, known: Facts) -> Idle:
        self._report(f"idle: {self._plan.idle_s:g} s without work")
        await known.flush()
        await asyncio.sleep(_SETTLING_S)
        log_file = self._platform.stack.postgres.log_file
        return await measure_idle(known, log_file, self._roots(), self._plan.idle_s, self._clock)


def latencies_of(
    watched: Sequence[Watched], steps: Mapping[str, FirstStep], others_cores: float
) -> Latencies:
    """Put the submitter's view and the database's together; both read the same machine's clock."""

    def since_submission(one: Watched, name: str) -> float:
        moment = getattr(steps[one.execution_id], name)
        return float((moment - one.submitted_at).total_seconds())

    return Latencies(
        others_cores=others_cores,
        accepted=percentiles(one.accepted_s for one in watched),
        first_step_dispatched=percentiles(
            since_submission(one, "dispatched_at") for one in watched
        ),
        first_step_on_node=percentiles(since_submission(one, "accepted_at") for one in watched),
        started_seen=percentiles(one.started_s for one in watched),
        result_seen=percentiles(one.finished_s for one in watched),
    )


async def run_bench(plan: BenchPlan, clock: Clock, ids: IdSource, report: Report) -> BenchResult:
    """Start one control plane and one agent with production's durability, and measure them.

    Raises:
        BenchError: something failed or came out wrong.
        DevStackError: a server or process did not come up.
    """
    sql = NamedSql.load("tools.bench", "queries.sql")
    config = PlatformConfig(
        plan.data_folder,
        profile=PRODUCTION,
        gateways=0,
        agents=1,
        workflow_files=(WORKFLOW_FILE,),
    )
    async with running_platform(config, report) as platform:
        for process in platform.processes:
            report(f"{process.name} is process {process.pid}")
        return await Bench(plan, platform, sql, clock, report).run(ids.new_id())
