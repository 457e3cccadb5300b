"""What a schedule is, which of its due times are handled, and which of its runs start.

A run is one due time or one trigger. Its states:

    PENDING ──> STARTED | FAILED          its task was created, or finally refused
    PENDING ──> WAITING | SKIPPED         an earlier task is not over: the overlap policy decides
    WAITING ──> STARTED | SKIPPED | FAILED
    MISSED                                its due time passed too long ago

The settled states are STARTED, SKIPPED, MISSED and FAILED.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NewType, assert_never

from control_plane.core.schedules.calendar import Calendar

ScheduleId = NewType("ScheduleId", str)
RunId = NewType("RunId", str)

CATCH_UP_DEFAULT: Final = timedelta(hours=1)
CATCH_UP_MIN: Final = timedelta(seconds=10)
CATCH_UP_MAX: Final = timedelta(days=366)
DUE_PER_TURN_MAX: Final = 20
"""Due times of one schedule that become runs in one transaction; the rest come right after."""


class OverlapPolicy(StrEnum):
    """What happens to a run while a task of an earlier one is not over."""

    ALLOW = "ALLOW"
    SKIP = "SKIP"
    BUFFER_ONE = "BUFFER_ONE"
    CANCEL_OTHER = "CANCEL_OTHER"


class RunStatus(StrEnum):
    """What became of a run; see the module."""

    PENDING = "PENDING"
    WAITING = "WAITING"
    STARTED = "STARTED"
    SKIPPED = "SKIPPED"
    MISSED = "MISSED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class ScheduledTask:
    """The task that each run creates; fields as in CreateTask, documents are JSON text."""

    name: str
    external_ref: str
    workflow_name: str
    workflow_version: str
    input_json: str
    due_time_key: str
    priority: int
    callback_url: str
    step_constraints_json: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """When tasks are created, and which."""

    calendar: Calendar
    overlap: OverlapPolicy
    catch_up: timedelta
    task: ScheduledTask


@dataclass(frozen=True, slots=True)
class DuePlan:
    """What the due times up to now make of a schedule.

    `runs` are due times to handle; `missed` is one that passed too long ago, standing for all
    up to the window's start; `next_time` is what to wait for, None if there is nothing more.
    """

    runs: tuple[datetime, ...]
    missed: datetime | None
    next_time: datetime | None


def plan_due(spec: ScheduleSpec, next_time: datetime, now: datetime) -> DuePlan:
    """Return what to do at `now` about a schedule that was due at `next_time`."""
    window_start = now - spec.catch_up
    missed = next_time if next_time < window_start else None
    runs: list[datetime] = []
    for due in _due_from(spec.calendar, next_time, window_start):
        if due > now or len(runs) == DUE_PER_TURN_MAX:
            return DuePlan(tuple(runs), missed, due)
        runs.append(due)
    return DuePlan(tuple(runs), missed, None)


def _due_from(
    calendar: Calendar, next_time: datetime, window_start: datetime
) -> Iterator[datetime]:
    """Return the due times from `next_time` on, leaving out those before the window."""
    if next_time < window_start:
        # A moment before, since a due time at the window's very start is still inside.
        yield from calendar.after(window_start - timedelta(microseconds=1))
        return
    yield next_time
    yield from calendar.after(next_time)


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that is not settled.

    `starting` says that its task may exist already, or that it is between two tries: it keeps
    its place, and its own turn decides about it.
    """

    run_id: str
    due_at: datetime
    starting: bool


@dataclass(frozen=True, slots=True)
class LiveTask:
    """A task of an earlier run that is not over."""

    task_id: str


class Move(StrEnum):
    """What to do with an open run."""

    START = "START"
    WAIT = "WAIT"
    SKIP = "SKIP"


@dataclass(frozen=True, slots=True)
class RunMove:
    """A decision about one run, and why in a sentence."""

    run_id: str
    move: Move
    reason: str = ""


@dataclass(frozen=True, slots=True)
class OverlapDecision:
    """Decisions about the open runs of one schedule, and the tasks to be cancelled for them."""

    moves: tuple[RunMove, ...]
    cancel: tuple[str, ...] = ()


def decide_overlap(
    policy: OverlapPolicy, open_runs: Sequence[OpenRun], live: Sequence[LiveTask]
) -> OverlapDecision:
    """Decide about the open runs, oldest first, while the `live` tasks are not over."""
    match policy:
        case OverlapPolicy.ALLOW:
            starts = (one for one in open_runs if not one.starting)
            return OverlapDecision(tuple(RunMove(one.run_id, Move.START) for one in starts))
        case OverlapPolicy.SKIP:
            return OverlapDecision(tuple(_one_at_a_time(open_runs, live, places=0)))
        case OverlapPolicy.BUFFER_ONE:
            return OverlapDecision(tuple(_one_at_a_time(open_runs, live, places=1)))
        case OverlapPolicy.CANCEL_OTHER:
            return _newest_wins(open_runs, live)
        case _:
            assert_never(policy)


def _one_at_a_time(
    open_runs: Sequence[OpenRun], live: Sequence[LiveTask], *, places: int
) -> Iterator[RunMove]:
    """Start a run only when nothing goes on; `places` runs may wait, the rest are skipped."""
    occupied = f"task {live[0].task_id} is not over" if live else ""
    for run in open_runs:
        if run.starting:
            occupied = occupied or _starting(run)
        elif not occupied:
            yield RunMove(run.run_id, Move.START)
            occupied = _starting(run)
        elif places:
            places -= 1
            yield RunMove(run.run_id, Move.WAIT, f"It waits: {occupied}.")
        else:
            yield RunMove(run.run_id, Move.SKIP, f"It was left out: {occupied}.")


def _newest_wins(open_runs: Sequence[OpenRun], live: Sequence[LiveTask]) -> OverlapDecision:
    """Leave the newest run, which waits until what goes on before it has been cancelled."""
    if not open_runs:
        return OverlapDecision(())
    newest = open_runs[-1]
    moves = [
        RunMove(one.run_id, Move.SKIP, f"The run due at {_text(newest.due_at)} took its place.")
        for one in open_runs[:-1]
        if not one.starting
    ]
    starting = next((one for one in open_runs if one.starting), None)
    cancel = tuple(one.task_id for one in live)
    if newest.starting:
        return OverlapDecision(tuple(moves))
    if live:
        why = f"It waits: task {live[0].task_id} is being cancelled for it."
        moves.append(RunMove(newest.run_id, Move.WAIT, why))
    elif starting is not None:
        moves.append(RunMove(newest.run_id, Move.WAIT, f"It waits: {_starting(starting)}."))
    else:
        moves.append(RunMove(newest.run_id, Move.START))
    return OverlapDecision(tuple(moves), cancel)


def _starting(run: OpenRun) -> str:
    return f"the run due at {_text(run.due_at)} is starting"


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
