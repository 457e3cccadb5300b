"""Schedules on PostgreSQL, as they are shown and changed."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

from control_plane.adapters.outbound.postgres.idempotency_store import recall, remember
from control_plane.core.applications.errors import ApplicationNotFoundError
from control_plane.core.idempotency import RequestIdentity
from control_plane.core.schedules.calendar import Calendar
from control_plane.core.schedules.domain import OverlapPolicy, ScheduleSpec
from control_plane.core.schedules.errors import (
    ScheduleChangedError,
    ScheduleNameTakenError,
    ScheduleNotFoundError,
    TooManySchedulesError,
)
from control_plane.core.schedules.ports import NewSchedule, RunView, SchedulePage, ScheduleView
from control_plane.core.schedules.specification import task_of_text, task_text
from control_plane.limits import SCHEDULES_PER_APPLICATION_MAX
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "schedules.sql")
_DELETED_TOO: Final = False
_Change = Callable[[Connection, Record], Awaitable[None]]


class PostgresScheduleStore:
    """Implements ScheduleStore and RunReader."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def answered(self, identity: RequestIdentity) -> str | None:
        """Return what a request was answered before; IdempotencyKeyReusedError."""
        async with self._database.acquire() as connection:
            try:
                return await recall(connection, identity)
            except LookupError:
                return None

    async def create(self, identity: RequestIdentity, schedule: NewSchedule) -> tuple[str, bool]:
        """Store one; see the port."""

        async def insert(connection: Connection) -> tuple[str, bool]:
            if not await remember(connection, identity, schedule.schedule_id):
                return await recall(connection, identity), False
            await _check_room(connection, schedule)
            spec = schedule.spec
            now = await connection.fetchval(_SQL.database_now)
            await connection.execute(
                _SQL.insert_schedule,
                schedule.schedule_id,
                schedule.application_id,
                schedule.name,
                *_spec_columns(spec),
                schedule.paused,
                None if schedule.paused else spec.calendar.next_after(now),
            )
            return schedule.schedule_id, True

        return await self._database.run_transaction(insert)

    async def get(
        self, schedule_id: str, owner: str | None, *, deleted_too: bool = False
    ) -> ScheduleView:
        """Read one; ScheduleNotFoundError."""
        row = await self._database.fetchrow(
            _SQL.shown_schedules, schedule_id, owner, None, "", deleted_too, 1
        )
        if row is None:
            raise _not_found(schedule_id)
        return _view(row)

    async def list(self, page: SchedulePage) -> Sequence[ScheduleView]:
        """Read a page, newest first."""
        rows = await self._database.fetch(
            _SQL.shown_schedules,
            None,
            page.owner,
            page.before_id,
            page.name,
            _DELETED_TOO,
            page.limit,
        )
        return [_view(row) for row in rows]

    async def update(
        self,
        identity: RequestIdentity,
        schedule_id: str,
        owner: str | None,
        spec: ScheduleSpec,
        expected_version: int,
    ) -> tuple[str, bool]:
        """Replace what it does; see the port."""

        async def change(connection: Connection, row: Record) -> None:
            if expected_version not in (0, row["version"]):
                raise ScheduleChangedError(
                    f"schedule {schedule_id} has version {row['version']}, not {expected_version}: "
                    "read it again, and repeat the change with a new key"
                )
            next_time = None if row["paused"] else spec.calendar.next_after(row["now"])
            await connection.execute(
                _SQL.update_schedule, schedule_id, *_spec_columns(spec), next_time
            )

        return await self._change(identity, schedule_id, owner, change)

    async def set_paused(
        self,
        identity: RequestIdentity,
        schedule_id: str,
        owner: str | None,
        reason: str | None,
        actor: str,
    ) -> tuple[str, bool]:
        """Pause it for a reason, or let it go on (None)."""
        paused = reason is not None

        async def change(connection: Connection, row: Record) -> None:
            if row["paused"] == paused:
                return
            calendar = Calendar(row["cron"], row["time_zone"])
            next_time = None if paused else calendar.next_after(row["now"])
            await connection.execute(
                _SQL.set_schedule_paused,
                schedule_id,
                paused,
                reason or "",
                actor if paused else "",
                next_time,
            )

        return await self._change(identity, schedule_id, owner, change)

    async def delete(
        self, identity: RequestIdentity, schedule_id: str, owner: str | None
    ) -> tuple[str, bool]:
        """End it."""

        async def change(connection: Connection, row: Record) -> None:
            del row
            await connection.execute(_SQL.delete_schedule, schedule_id)

        return await self._change(identity, schedule_id, owner, change)

    async def trigger(
        self, identity: RequestIdentity, schedule_id: str, owner: str | None, run_id: str
    ) -> tuple[str, bool]:
        """Add a run that is due now; the subject is the run."""

        async def change(connection: Connection, row: Record) -> None:
            del row
            await connection.execute(_SQL.insert_triggered_run, schedule_id, run_id)

        return await self._change(identity, schedule_id, owner, change, subject_id=run_id)

    async def run(self, run_id: str) -> RunView | None:
        """Read one run; None once it is history that was dropped."""
        row = await self._database.fetchrow(_SQL.shown_runs, run_id, None, None, None, 1)
        return None if row is None else _run(row)

    async def runs(
        self, schedule_id: str, before: tuple[datetime, str] | None, limit: int
    ) -> Sequence[RunView]:
        """Read a page of a schedule's runs, newest first."""
        due_at, run_id = before or (None, None)
        rows = await self._database.fetch(_SQL.shown_runs, None, schedule_id, due_at, run_id, limit)
        return [_run(row) for row in rows]

    async def now(self) -> datetime:
        """Read the time that decides what is due."""
        row = await self._database.fetchrow(_SQL.database_now)
        assert row is not None
        now: datetime = row["now"]
        return now

    async def _change(
        self,
        identity: RequestIdentity,
        schedule_id: str,
        owner: str | None,
        change: _Change,
        *,
        subject_id: str | None = None,
    ) -> tuple[str, bool]:
        """Change a schedule under its lock, once for each identity."""

        async def run(connection: Connection) -> tuple[str, bool]:
            if not await remember(connection, identity, subject_id or schedule_id):
                return await recall(connection, identity), False
            row = await connection.fetchrow(_SQL.lock_schedule, schedule_id, owner)
            if row is None:
                raise _not_found(schedule_id)
            await change(connection, row)
            return subject_id or schedule_id, True

        return await self._database.run_transaction(run)


def schedule_spec(row: Record) -> ScheduleSpec:
    """Return the spec that a row with the columns of `schedules` holds."""
    return ScheduleSpec(
        calendar=Calendar(row["cron"], row["time_zone"]),
        overlap=OverlapPolicy(row["overlap"]),
        catch_up=row["catch_up"],
        task=task_of_text(row["task"]),
    )


async def _check_room(connection: Connection, schedule: NewSchedule) -> None:
    if not await connection.fetchval(_SQL.lock_application, schedule.application_id):
        raise ApplicationNotFoundError(
            f"there is no application {schedule.application_id}: register it first"
        )
    taken = await connection.fetchval(_SQL.schedule_of_name, schedule.application_id, schedule.name)
    if taken is not None:
        raise ScheduleNameTakenError(
            f"the application has a schedule named {schedule.name!r}: choose another name, or "
            "update that one",
            existing_id=taken,
        )
    count = await connection.fetchval(_SQL.count_schedules, schedule.application_id)
    if count >= SCHEDULES_PER_APPLICATION_MAX:
        raise TooManySchedulesError(
            f"the application has {count} schedules, at most {SCHEDULES_PER_APPLICATION_MAX} "
            "may be: delete some"
        )


def _spec_columns(spec: ScheduleSpec) -> tuple[object, ...]:
    return (
        spec.calendar.cron,
        spec.calendar.time_zone,
        spec.overlap.value,
        spec.catch_up,
        task_text(spec.task),
    )


def _not_found(schedule_id: str) -> ScheduleNotFoundError:
    return ScheduleNotFoundError(f"there is no schedule {schedule_id}: check its id")


def _view(row: Record) -> ScheduleView:
    return ScheduleView(
        schedule_id=row["schedule_id"],
        application_id=row["application_id"],
        name=row["name"],
        spec=schedule_spec(row),
        version=row["version"],
        paused=row["paused"],
        pause_reason=row["pause_reason"],
        paused_by=row["paused_by"],
        next_time=row["next_time"],
        last_run=None if row["run_id"] is None else _run(row),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        deleted_at=row["deleted_at"],
    )


def _run(row: Record) -> RunView:
    return RunView(
        run_id=row["run_id"],
        schedule_id=row["schedule_id"],
        due_at=row["due_at"],
        triggered=row["triggered"],
        status=row["status"],
        reason=row["reason"],
        task_id=row["task_id"] or "",
        failure_count=row["failure_count"],
        available_at=row["available_at"],
        settled_at=row["settled_at"],
    )
