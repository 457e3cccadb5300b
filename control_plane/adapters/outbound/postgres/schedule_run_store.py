"""The runs of schedules on PostgreSQL: due times become runs, runs are claimed and settled."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from control_plane.adapters.outbound.postgres.schedule_store import schedule_spec
from control_plane.core.schedules.domain import (
    DuePlan,
    LiveTask,
    Move,
    OpenRun,
    OverlapDecision,
    OverlapPolicy,
    RunMove,
    RunStatus,
    decide_overlap,
    plan_due,
)
from control_plane.core.schedules.ports import Cancellation, ClaimedRun, Settlement, Turn
from control_plane.core.schedules.specification import task_of_text
from control_plane.limits import SCHEDULE_RUNS_KEPT
from foundation.ids import IdSource
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "schedule_runs.sql")
_SCHEDULES_PER_TURN_MAX: Final = 50
_MISSED: Final = "Due times from then on passed while no server ran, before the catch-up window."


class PostgresDueRuns:
    """Implements DueRuns."""

    def __init__(
        self, database: Database, ids: IdSource, *, claim_ttl_s: float, recheck_s: float
    ) -> None:
        self._database = database
        self._ids = ids
        self._claim_ttl_s = claim_ttl_s
        self._recheck_s = recheck_s

    async def plan(self) -> int:
        """Make runs of the due times that have come; return how many schedules were moved on."""

        async def run(connection: Connection) -> int:
            rows = await connection.fetch(_SQL.lock_due_schedules, _SCHEDULES_PER_TURN_MAX)
            if rows:
                plans = [
                    (row, plan_due(schedule_spec(row), row["next_time"], row["now"]))
                    for row in rows
                ]
                await self._store(connection, plans)
            return len(rows)

        return await self._database.run_transaction(run)

    async def _store(self, connection: Connection, plans: Sequence[tuple[Record, DuePlan]]) -> None:
        runs = [run for row, plan in plans for run in self._new_runs(row, plan)]
        columns = zip(*runs, strict=True) if runs else [[]] * 6
        await connection.execute(
            _SQL.store_due_runs,
            *(list(column) for column in columns),
            [row["schedule_id"] for row, _ in plans],
            [plan.next_time for _, plan in plans],
            SCHEDULE_RUNS_KEPT,
        )

    def _new_runs(
        self, row: Record, plan: DuePlan
    ) -> Iterator[tuple[str, str, datetime, str, str, str]]:
        """Return (run id, schedule id, due time, status, reason, task) of each new run."""
        schedule_id, task = row["schedule_id"], row["task"]
        if plan.missed is not None:
            missed = RunStatus.MISSED.value
            yield self._ids.new_id(), schedule_id, plan.missed, missed, _MISSED, task
        for due_at in plan.runs:
            yield self._ids.new_id(), schedule_id, due_at, RunStatus.PENDING.value, "", task

    async def claim(self) -> Turn:
        """Decide about the open runs that are due, and claim those that start."""
        return await self._database.run_transaction(self._claim)

    async def _claim(self, connection: Connection) -> Turn:
        claim_id = self._ids.new_id()
        schedules = await connection.fetch(
            _SQL.lock_schedules_with_due_runs, _SCHEDULES_PER_TURN_MAX
        )
        now = await connection.fetchval(_SQL.runs_now)
        if not schedules:
            return Turn(claim_id, now, (), ())
        ids = [row["schedule_id"] for row in schedules]
        await connection.execute(_SQL.forget_ended_tasks, ids)
        found: Mapping[str, list[Record]] = defaultdict(list)
        for row in await connection.fetch(_SQL.open_runs, ids):
            found[row["schedule_id"]].append(row)
        decisions = {
            row["schedule_id"]: _decided(OverlapPolicy(row["overlap"]), found[row["schedule_id"]])
            for row in schedules
        }
        moves = [move for decision in decisions.values() for move in decision.moves]
        await self._move(connection, [one for one in moves if one.move is not Move.START])
        starting = {one.run_id for one in moves if one.move is Move.START}
        starts = [
            row
            for rows in found.values()
            for row in rows
            if row["run_id"] in starting or (row["starting"] and row["due"])
        ]
        await connection.execute(
            _SQL.claim_runs, [row["run_id"] for row in starts], claim_id, self._claim_ttl_s
        )
        return Turn(
            claim_id,
            now,
            tuple(_claimed(row) for row in starts),
            tuple(_cancellations(decisions, found)),
        )

    async def _move(self, connection: Connection, moves: Sequence[RunMove]) -> None:
        statuses = {Move.WAIT: RunStatus.WAITING, Move.SKIP: RunStatus.SKIPPED}
        await connection.execute(
            _SQL.move_runs,
            [one.run_id for one in moves],
            [statuses[one.move].value for one in moves],
            [one.reason for one in moves],
            self._recheck_s,
        )

    async def settle(self, claim_id: str, settlements: Sequence[Settlement]) -> None:
        """Note what became of the claimed runs."""
        await self._database.fetch(
            _SQL.settle_runs,
            [one.run_id for one in settlements],
            [_status_of(one).value for one in settlements],
            [one.reason for one in settlements],
            [one.task_id for one in settlements],
            [one.retry_in_s for one in settlements],
            claim_id,
        )

    async def due_in_s(self) -> float | None:
        """Return the seconds until there is something to do, None without anything."""
        row = await self._database.fetchrow(_SQL.next_due_in_s)
        assert row is not None
        due_in_s: float | None = row["due_in_s"]
        return due_in_s


def _decided(policy: OverlapPolicy, rows: Sequence[Record]) -> OverlapDecision:
    live = [LiveTask(row["task_id"]) for row in rows if row["task_id"] is not None]
    open_runs = [
        OpenRun(row["run_id"], row["due_at"], row["starting"]) for row in rows if not row["settled"]
    ]
    return decide_overlap(policy, open_runs, live)


def _cancellations(
    decisions: Mapping[str, OverlapDecision], found: Mapping[str, Sequence[Record]]
) -> Iterator[Cancellation]:
    for schedule_id, decision in decisions.items():
        for task_id in decision.cancel:
            yield Cancellation(schedule_id, found[schedule_id][0]["application_id"], task_id)


def _claimed(row: Record) -> ClaimedRun:
    # The task of a deleted schedule is not tried again: one last look whether it exists.
    retry_until = row["due_at"] if row["deleted"] else row["due_at"] + row["catch_up"]
    return ClaimedRun(
        run_id=row["run_id"],
        schedule_id=row["schedule_id"],
        application_id=row["application_id"],
        due_at=row["due_at"],
        triggered=row["triggered"],
        task=task_of_text(row["task"]),
        failure_count=row["failure_count"],
        retry_until=retry_until,
    )


def _status_of(settlement: Settlement) -> RunStatus:
    if settlement.task_id is not None:
        return RunStatus.STARTED
    return RunStatus.FAILED if settlement.retry_in_s is None else RunStatus.PENDING
