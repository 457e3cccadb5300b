"""The use cases of schedules: create, read, change, pause, delete, trigger, look ahead."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Final

from control_plane.core.idempotency import RequestIdentity, principal_text, request_identity
from control_plane.core.schedules.calendar import Calendar, parse_calendar
from control_plane.core.schedules.errors import ScheduleInvalidError, ScheduleNotFoundError
from control_plane.core.schedules.ports import (
    NewSchedule,
    RunReader,
    RunView,
    SchedulePage,
    ScheduleStore,
    ScheduleView,
    TaskStarter,
)
from control_plane.core.schedules.specification import SpecAsSent, checked_name, checked_spec
from foundation.canonical_json import FieldValue, request_hash
from foundation.errors import InvalidArgumentError
from foundation.ids import IdSource, parse_id
from foundation.principals import Principal, PrincipalKind, Scope
from foundation.wakeup import Wakeup

REASON_CHARS_MAX: Final = 500
UPCOMING_DEFAULT: Final = 10
UPCOMING_MAX: Final = 100
_YEAR_MAX: Final = 9_000


@dataclass(frozen=True, slots=True)
class ScheduleParts:
    """What the use cases stand on; `due` is set when something may be due sooner than known."""

    store: ScheduleStore
    runs: RunReader
    starter: TaskStarter
    ids: IdSource
    due: Wakeup


class Schedules:
    """What applications and operators do with schedules."""

    def __init__(self, parts: ScheduleParts) -> None:
        self._store = parts.store
        self._runs = parts.runs
        self._starter = parts.starter
        self._ids = parts.ids
        self._due = parts.due

    async def create(
        self,
        principal: Principal,
        key: str,
        application_id: str,
        name: str,
        sent: SpecAsSent,
        *,
        paused: bool,
    ) -> tuple[ScheduleView, bool]:
        """Store a schedule; raises as ScheduleStore.create and as CreateTask."""
        owner = self._submitter(principal)
        identity = _identity(
            principal,
            "CreateSchedule",
            key,
            application_id=application_id,
            name=name,
            spec=sent.fields(),
            paused=paused,
        )
        answered = await self._store.answered(identity)
        if answered is not None:
            return await self._store.get(answered, owner, deleted_too=True), False
        named = checked_name(name)
        spec = checked_spec(sent, named)
        target = owner or _named_application(application_id)
        if application_id and parse_id(application_id, "application_id") != target:
            raise ScheduleNotFoundError(
                f"there is no application {application_id}: leave application_id empty for your own"
            )
        await self._starter.check(principal, target, spec.task, spec.task.name)
        schedule = NewSchedule(self._ids.new_id(), target, named, spec, paused)
        return await self._shown(owner, await self._store.create(identity, schedule))

    async def get(self, principal: Principal, schedule_id: str) -> ScheduleView:
        """Read one; ScheduleNotFoundError."""
        return await self._store.get(parse_id(schedule_id, "schedule_id"), _reader(principal))

    async def list(
        self, principal: Principal, application_id: str, page: SchedulePage
    ) -> Sequence[ScheduleView]:
        """Read a page; an operator may name an application, others see their own."""
        owner = _reader(principal)
        if owner is None and application_id:
            owner = parse_id(application_id, "application_id")
        return await self._store.list(replace(page, owner=owner))

    async def update(
        self,
        principal: Principal,
        key: str,
        schedule_id: str,
        sent: SpecAsSent,
        expected_version: int,
    ) -> tuple[ScheduleView, bool]:
        """Replace what a schedule does; raises as ScheduleStore.update and as CreateTask."""
        owner = self._submitter(principal)
        identity = _identity(
            principal,
            "UpdateSchedule",
            key,
            schedule_id=schedule_id,
            spec=sent.fields(),
            expected_version=expected_version,
        )
        answered = await self._store.answered(identity)
        if answered is not None:
            return await self._store.get(answered, owner, deleted_too=True), False
        if expected_version < 0:
            raise ScheduleInvalidError.of_field("expected_version", "is negative: 0 means any")
        wanted = parse_id(schedule_id, "schedule_id")
        current = await self._store.get(wanted, owner)
        spec = checked_spec(sent, current.name)
        await self._starter.check(principal, current.application_id, spec.task, spec.task.name)
        changed = await self._store.update(identity, wanted, owner, spec, expected_version)
        return await self._shown(owner, changed)

    async def pause(
        self, principal: Principal, key: str, schedule_id: str, reason: str
    ) -> tuple[ScheduleView, bool]:
        """Stop handling due times; ScheduleNotFoundError."""
        if len(reason) > REASON_CHARS_MAX:
            raise InvalidArgumentError.of_field(
                "reason", f"has {len(reason)} characters, over {REASON_CHARS_MAX}"
            )
        return await self._set_paused(principal, "PauseSchedule", key, schedule_id, reason)

    async def resume(
        self, principal: Principal, key: str, schedule_id: str
    ) -> tuple[ScheduleView, bool]:
        """Go on with the next due time; ScheduleNotFoundError."""
        return await self._set_paused(principal, "ResumeSchedule", key, schedule_id, None)

    async def delete(self, principal: Principal, key: str, schedule_id: str) -> bool:
        """End a schedule; returns whether this call did; ScheduleNotFoundError."""
        owner = self._submitter(principal)
        identity = _identity(principal, "DeleteSchedule", key, schedule_id=schedule_id)
        wanted = parse_id(schedule_id, "schedule_id")
        _, created = await self._store.delete(identity, wanted, owner)
        return created

    async def trigger(
        self, principal: Principal, key: str, schedule_id: str
    ) -> tuple[RunView | None, str, bool]:
        """Add a run that is due now; its id, and itself while it is kept."""
        owner = self._submitter(principal)
        identity = _identity(principal, "TriggerSchedule", key, schedule_id=schedule_id)
        wanted = parse_id(schedule_id, "schedule_id")
        run_id, created = await self._store.trigger(identity, wanted, owner, self._ids.new_id())
        self._due.set()
        return await self._runs.run(run_id), run_id, created

    async def runs(
        self,
        principal: Principal,
        schedule_id: str,
        before: tuple[datetime, str] | None,
        limit: int,
    ) -> Sequence[RunView]:
        """Read a page of a schedule's runs, newest first; ScheduleNotFoundError."""
        schedule = await self.get(principal, schedule_id)
        return await self._runs.runs(schedule.schedule_id, before, limit)

    async def upcoming(
        self,
        principal: Principal,
        schedule_id: str,
        expression: tuple[str, str],
        count: int,
        after: datetime | None,
    ) -> tuple[Calendar, Sequence[datetime]]:
        """Tell the next due times of a schedule, or of an (expression, time zone) tried out."""
        principal.require_scope(Scope.READ)
        if not 0 <= count <= UPCOMING_MAX:
            raise InvalidArgumentError.of_field("count", f"is {count}: send 1 to {UPCOMING_MAX}")
        if bool(schedule_id) == bool(expression[0]):
            raise InvalidArgumentError.of_field("schedule_id", "send either schedule_id or cron")
        if after is not None and after.year > _YEAR_MAX:
            raise InvalidArgumentError.of_field("after_time", f"is after the year {_YEAR_MAX}")
        if schedule_id:
            calendar = (await self.get(principal, schedule_id)).spec.calendar
        else:
            calendar = parse_calendar(*expression)
        start = after or await self._runs.now()
        return calendar, list(islice(calendar.after(start), count or UPCOMING_DEFAULT))

    async def _set_paused(
        self, principal: Principal, operation: str, key: str, schedule_id: str, reason: str | None
    ) -> tuple[ScheduleView, bool]:
        owner = self._submitter(principal)
        identity = _identity(
            principal, operation, key, schedule_id=schedule_id, reason=reason or ""
        )
        changed = await self._store.set_paused(
            identity,
            parse_id(schedule_id, "schedule_id"),
            owner,
            reason,
            principal_text(principal),
        )
        return await self._shown(owner, changed)

    async def _shown(
        self, owner: str | None, changed: tuple[str, bool]
    ) -> tuple[ScheduleView, bool]:
        schedule_id, created = changed
        self._due.set()
        return await self._store.get(schedule_id, owner, deleted_too=not created), created

    def _submitter(self, principal: Principal) -> str | None:
        principal.require_scope(Scope.SUBMIT)
        return _owner(principal)


def _reader(principal: Principal) -> str | None:
    principal.require_scope(Scope.READ)
    return _owner(principal)


def _owner(principal: Principal) -> str | None:
    """Return whose schedules the principal may touch: its own, or everyone's (None)."""
    principal.require_kind(PrincipalKind.APPLICATION, PrincipalKind.OPERATOR)
    return principal.id if principal.kind is PrincipalKind.APPLICATION else None


def _named_application(application_id: str) -> str:
    if not application_id:
        raise ScheduleInvalidError.of_field(
            "application_id", "is empty: an operator names the application that owns the schedule"
        )
    return parse_id(application_id, "application_id")


def _identity(
    principal: Principal, operation: str, key: str, **fields: FieldValue
) -> RequestIdentity:
    return request_identity(principal, operation, key, request_hash(operation, fields))
