"""When a step's time is over, in each of its states."""

from datetime import datetime, timedelta

from control_plane.core.workflows.domain import StepTimeouts


def queue_deadline_at(
    timeouts: StepTimeouts, ready_at: datetime, available_at: datetime
) -> datetime | None:
    """When a READY step times out: its queue time from `available_at`, its total from `ready_at`.

    `ready_at` is when the step first became READY, `available_at` when this attempt may be
    dispatched (later than now in a back-off). None when nothing bounds it.
    """
    return _earliest(_after(available_at, timeouts.queue), _after(ready_at, timeouts.total))


def run_deadline_at(
    timeouts: StepTimeouts, ready_at: datetime, dispatched_at: datetime
) -> datetime:
    """When an attempt times out: its run time from dispatch, the step's total from `ready_at`."""
    run_until = dispatched_at + timeouts.run
    return min(run_until, _after(ready_at, timeouts.total) or run_until)


def wait_deadline_at(timeouts: StepTimeouts, ready_at: datetime) -> datetime | None:
    """When an approval that nobody answered times out."""
    return _after(ready_at, timeouts.total)


def total_deadline_at(timeouts: StepTimeouts, ready_at: datetime) -> datetime | None:
    """When the step's total time is over, which no pause stops; None without one."""
    return _after(ready_at, timeouts.total)


def resumed_deadline_at(
    timeouts: StepTimeouts,
    *,
    ready_at: datetime,
    available_at: datetime,
    deadline_at: datetime,
    paused_at: datetime,
    now: datetime,
) -> datetime:
    """When a READY step times out after a pause from `paused_at` until `now`.

    `deadline_at` is what held before. Only queue time stood still, and only as far as it had
    begun: `available_at` is when this attempt might have been dispatched.
    """
    total_at = _after(ready_at, timeouts.total)
    if timeouts.queue is None or (total_at is not None and deadline_at >= total_at):
        return deadline_at
    stood_still = max(now - max(paused_at, available_at), timedelta(0))
    moved_at = deadline_at + stood_still
    return moved_at if total_at is None else min(moved_at, total_at)


def _after(start: datetime, span: timedelta | None) -> datetime | None:
    return None if span is None else start + span


def _earliest(*moments: datetime | None) -> datetime | None:
    return min((moment for moment in moments if moment is not None), default=None)
