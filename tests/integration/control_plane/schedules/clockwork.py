"""Schedules on a real database without a running replica: turns are taken by hand."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random

from control_plane.adapters.outbound.cel import CelCompiler
from control_plane.adapters.outbound.postgres.control_store import PostgresTaskControlStore
from control_plane.adapters.outbound.postgres.execution_reader import PostgresExecutionReader
from control_plane.adapters.outbound.postgres.intake_store import PostgresIntakeStore
from control_plane.adapters.outbound.postgres.schedule_run_store import PostgresDueRuns
from control_plane.adapters.outbound.postgres.schedule_store import PostgresScheduleStore
from control_plane.adapters.outbound.postgres.snapshots import WorkflowSnapshots
from control_plane.adapters.outbound.postgres.task_acts import TaskActs
from control_plane.adapters.outbound.postgres.workflow_store import PostgresWorkflowStore
from control_plane.core.applications.endpoints import EndpointPolicy
from control_plane.core.executions.admission import Admission
from control_plane.core.executions.control import TaskControl
from control_plane.core.executions.intake import TaskIntake
from control_plane.core.executions.ports import IntakeFacts, IntakeLookup, NewTask
from control_plane.core.executions.queries import ExecutionQueries
from control_plane.core.idempotency import RequestIdentity
from control_plane.core.schedules.calendar import parse_calendar
from control_plane.core.schedules.domain import OverlapPolicy, ScheduledTask, ScheduleSpec
from control_plane.core.schedules.ports import NewSchedule, RunView
from control_plane.core.schedules.running import ScheduleRunner
from control_plane.core.schedules.starting import IntakeTaskStarter
from control_plane.core.wakeups import LocalHints
from control_plane.core.workflows.compiling import CompiledWorkflow, CompiledWorkflows
from control_plane.core.workflows.publishing import digest_of
from foundation.clock import SystemClock
from foundation.ids import SystemIds
from foundation.postgres.pool import Database

CLOCK = SystemClock()
IDS = SystemIds(CLOCK)
APPLICATION = "0190aaaa-0000-7000-8000-000000000001"
_DEFINITION = (
    '{"name":"w","steps":[{"capability":"c","capability_version":"1","key":"a"}],"version":"1"}'
)
_MINUTE = timedelta(minutes=1)


class _OneByOne:
    """Implements IntakeBatches without queues."""

    def __init__(self, store: PostgresIntakeStore) -> None:
        self._store = store

    async def look_up(self, lookup: IntakeLookup) -> IntakeFacts:
        return (await self._store.look_up([lookup]))[0]

    async def create(self, task: NewTask) -> bool:
        return (await self._store.create([task]))[0]


class _Unforeseen:
    """Implements WorkflowForesight without nodes."""

    async def warnings(self, workflow: CompiledWorkflow) -> tuple[str, ...]:
        return ()


class Clockwork:
    """An application with a workflow, and runners that each stand for a replica."""

    def __init__(self, database: Database, *, queued_max: int = 100_000) -> None:
        self.database = database
        self.store = PostgresScheduleStore(database)
        intake_store = PostgresIntakeStore(database, IDS)
        queries = ExecutionQueries(PostgresExecutionReader(database))
        hints = LocalHints()
        compiled = CompiledWorkflows(CelCompiler())
        intake = TaskIntake(
            _OneByOne(intake_store),
            compiled,
            _Unforeseen(),
            Admission(intake_store, CLOCK, queued_max),
            IDS,
            CLOCK,
            hints,
            EndpointPolicy(insecure_allowed=False, private_allowed=False),
        )
        acts = TaskActs(WorkflowSnapshots(compiled), IDS, CLOCK)
        control_store = PostgresTaskControlStore(database, acts, IDS)
        control = TaskControl(control_store, queries, hints)
        self.starter = IntakeTaskStarter(intake, control)

    def runner(self, *, claim_ttl_s: float = 0.0, recheck_s: float = 0.0) -> ScheduleRunner:
        """Return a replica's runner; claims and waits of no length are due again at once."""
        runs = PostgresDueRuns(self.database, IDS, claim_ttl_s=claim_ttl_s, recheck_s=recheck_s)
        return ScheduleRunner(runs, self.starter, Random(1), retry_cap_s=0.0)

    async def prepare(self) -> None:
        await self.database.fetch(
            "insert into applications (application_id, name) values ($1, 'shop')", APPLICATION
        )
        await PostgresWorkflowStore(self.database).publish(
            "w", "1", digest_of(_DEFINITION), _DEFINITION
        )

    async def add(
        self,
        overlap: OverlapPolicy = OverlapPolicy.ALLOW,
        *,
        due_minutes_ago: int = 0,
        catch_up: timedelta = timedelta(hours=1),
        cron: str = "* * * * *",
    ) -> str:
        """Store a schedule that was due so many minutes ago for the first time."""
        task = ScheduledTask("nightly", "", "w", "", "", "", 0, "", "", {"team": "a"})
        spec = ScheduleSpec(parse_calendar(cron, "UTC"), overlap, catch_up, task)
        schedule_id = IDS.new_id()
        identity = RequestIdentity("operator:test", "CreateSchedule", schedule_id, b"hash")
        await self.store.create(
            identity, NewSchedule(schedule_id, APPLICATION, schedule_id, spec, paused=False)
        )
        await self.be_due(schedule_id, due_minutes_ago)
        return schedule_id

    async def be_due(self, schedule_id: str, minutes_ago: int = 0) -> datetime:
        """Let the schedule's next due time be the full minute that was so many minutes ago."""
        now = (await self.store.now()).astimezone(UTC)
        due = now.replace(second=0, microsecond=0) - minutes_ago * _MINUTE
        await self.database.fetch(
            "update schedules set next_time = $2 where schedule_id = $1", schedule_id, due
        )
        return due

    async def settle(self, *runners: ScheduleRunner) -> None:
        """Take turns until nothing is due at once."""
        for _ in range(50):
            waits = [await one.run_once() for one in runners]
            if all(wait != 0.0 for wait in waits):
                return
        raise AssertionError("it never came to rest")

    async def runs(self, schedule_id: str) -> Sequence[RunView]:
        """Return the runs, oldest first."""
        return list(reversed(await self.store.runs(schedule_id, None, 1000)))

    async def statuses(self, schedule_id: str) -> list[str]:
        return [one.status for one in await self.runs(schedule_id)]

    async def labels(self, schedule_id: str) -> list[str]:
        """Return the due times of the schedule's tasks, as their labels say."""
        rows = await self.database.fetch(
            "select labels ->> 'tdp.due' as due from tasks where labels ->> 'tdp.schedule' = $1",
            schedule_id,
        )
        return sorted(row["due"] for row in rows)

    async def end(self, task_id: str) -> None:
        """Let a task be over."""
        await self.database.fetch(
            "update executions set status = 'CANCELED', completed_at = tdp_now()"
            " where task_id = $1",
            task_id,
        )
