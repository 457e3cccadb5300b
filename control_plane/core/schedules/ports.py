"""What schedules need of their stores, and of whoever creates tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from control_plane.core.idempotency import RequestIdentity
from control_plane.core.schedules.domain import ScheduledTask, ScheduleSpec
from foundation.principals import Principal


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as it is shown."""

    run_id: str
    schedule_id: str
    due_at: datetime
    triggered: bool
    status: str
    reason: str
    task_id: str
    failure_count: int
    available_at: datetime | None
    settled_at: datetime | None


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """A schedule as it is shown."""

    schedule_id: str
    application_id: str
    name: str
    spec: ScheduleSpec
    version: int
    paused: bool
    pause_reason: str
    paused_by: str
    next_time: datetime | None
    last_run: RunView | None
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A checked schedule."""

    schedule_id: str
    application_id: str
    name: str
    spec: ScheduleSpec
    paused: bool


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """Which schedules a list shows; None and "" mean any."""

    owner: str | None
    name: str
    before_id: str | None
    limit: int


class ScheduleStore(Protocol):
    """Keeps schedules; each change answers the subject's id and whether this call made it.

    `owner` None may touch every application's schedules. What is not there, not the owner's or
    deleted is ScheduleNotFoundError. Due times are found from the database's time.
    """

    async def answered(self, identity: RequestIdentity) -> str | None:
        """Return what a request was answered before; IdempotencyKeyReusedError."""
        ...

    async def create(self, identity: RequestIdentity, schedule: NewSchedule) -> tuple[str, bool]:
        """Store one; ScheduleNameTakenError, TooManySchedulesError, ApplicationNotFoundError."""
        ...

    async def get(
        self, schedule_id: str, owner: str | None, *, deleted_too: bool = False
    ) -> ScheduleView:
        """Read one; ScheduleNotFoundError."""
        ...

    async def list(self, page: SchedulePage) -> Sequence[ScheduleView]:
        """Read a page, newest first."""
        ...

    async def update(
        self,
        identity: RequestIdentity,
        schedule_id: str,
        owner: str | None,
        spec: ScheduleSpec,
        expected_version: int,
    ) -> tuple[str, bool]:
        """Replace what it does; ScheduleChangedError if the version is not the expected one."""
        ...

    async def set_paused(
        self,
        identity: RequestIdentity,
        schedule_id: str,
        owner: str | None,
        reason: str | None,
        actor: str,
    ) -> tuple[str, bool]:
        """Pause it for a reason, or let it go on (None)."""
        ...

    async def delete(
        self, identity: RequestIdentity, schedule_id: str, owner: str | None
    ) -> tuple[str, bool]:
        """End it."""
        ...

    async def trigger(
        self, identity: RequestIdentity, schedule_id: str, owner: str | None, run_id: str
    ) -> tuple[str, bool]:
        """Add a run that is due now; the subject is the run."""
        ...


class RunReader(Protocol):
    """Reads runs and the time."""

    async def run(self, run_id: str) -> RunView | None:
        """Read one; None once it is history that was dropped."""
        ...

    async def runs(
        self, schedule_id: str, before: tuple[datetime, str] | None, limit: int
    ) -> Sequence[RunView]:
        """Read a page of a schedule's, newest first."""
        ...

    async def now(self) -> datetime:
        """Read the time that decides what is due."""
        ...


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A run whose task is to be created now; refusals are repeated until `retry_until`."""

    run_id: str
    schedule_id: str
    application_id: str
    due_at: datetime
    triggered: bool
    task: ScheduledTask
    failure_count: int
    retry_until: datetime


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A task that is to be cancelled for a newer run of its schedule."""

    schedule_id: str
    application_id: str
    task_id: str


@dataclass(frozen=True, slots=True)
class Turn:
    """What one claim found: runs to start, tasks to cancel; the claim's id and time."""

    claim_id: str
    now: datetime
    starts: tuple[ClaimedRun, ...]
    cancellations: tuple[Cancellation, ...]


@dataclass(frozen=True, slots=True)
class Settlement:
    """What became of a claimed run: its task, or why there is none and when to try again."""

    run_id: str
    task_id: str | None
    reason: str = ""
    retry_in_s: float | None = None


class DueRuns(Protocol):
    """The steps by which due times become tasks, one transaction each."""

    async def plan(self) -> int:
        """Make runs of the due times that have come; return how many schedules were moved on."""
        ...

    async def claim(self) -> Turn:
        """Decide about the open runs that are due, and claim those that start."""
        ...

    async def settle(self, claim_id: str, settlements: Sequence[Settlement]) -> None:
        """Note what became of the claimed runs."""
        ...

    async def due_in_s(self) -> float | None:
        """Return the seconds until there is something to do, None without anything."""
        ...


class TaskStarter(Protocol):
    """Creates and cancels tasks by the rules of TaskService, for a schedule's application."""

    async def check(
        self, principal: Principal, application_id: str, task: ScheduledTask, name: str
    ) -> None:
        """Raise what CreateTask would refuse the task for, now; nothing is stored."""
        ...

    async def start(self, run: ClaimedRun) -> str:
        """Create the run's task, or find it, and return its id; raises as CreateTask."""
        ...

    async def cancel(self, cancellation: Cancellation) -> None:
        """Ask for the cancellation of a task; one that is gone is none."""
        ...
