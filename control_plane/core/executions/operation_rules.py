"""What an operator may do to a live execution, step or attempt, and what it makes of them.

Pure: facts that are read under the execution's lock in, the change or the refusal out.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from control_plane.core.engine.reuse import StepUnknownError
from control_plane.core.errors import ControlPlaneError
from control_plane.core.executions.attempt_state import ATTEMPT_MACHINE, AttemptStatus
from control_plane.core.executions.domain import NO_ITEM, StepRef
from control_plane.core.executions.execution_state import EXECUTION_MACHINE, ExecutionStatus
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.step_state import STEP_MACHINE, StepStatus
from control_plane.limits import DOCUMENT_BYTES_MAX
from foundation.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

_NOT_STARTED: Final = frozenset({StepStatus.PENDING, StepStatus.READY, StepStatus.WAITING})


class ExecutionEndedError(ControlPlaneError, FailedPreconditionError):
    """The execution is over, so nothing about it can be changed."""

    reason = "EXECUTION_ENDED"


class ExecutionCancelingError(ControlPlaneError, FailedPreconditionError):
    """The execution is being cancelled, so nothing of it starts or is decided any more."""

    reason = "EXECUTION_CANCELING"


class StepNotWaitingError(ControlPlaneError, FailedPreconditionError):
    """The step does not wait for a signal: it is too early or too late, or it is no approval."""

    reason = "STEP_NOT_WAITING"


class StepStartedError(ControlPlaneError, FailedPreconditionError):
    """The step has started or ended, so it cannot be skipped."""

    reason = "STEP_STARTED"


class AttemptNotFoundError(ControlPlaneError, NotFoundError):
    """There is no such attempt, or it is another application's."""

    reason = "ATTEMPT_NOT_FOUND"


class AttemptNotRunningError(ControlPlaneError, FailedPreconditionError):
    """The attempt is over or was told to stop, so its time-out cannot be moved."""

    reason = "ATTEMPT_NOT_RUNNING"


@dataclass(frozen=True, slots=True)
class Signal:
    """The answer to an approval: by whom, why, and with which document (JSON text)."""

    approved: bool
    payload_json: str
    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class StepEnd:
    """How a step ends by a signal."""

    status: StepStatus
    output_json: str = ""
    failure_json: str = ""


@dataclass(frozen=True, slots=True)
class AttemptStanding:
    """What decides whether an attempt's time-out may be moved."""

    attempt_id: str
    status: AttemptStatus
    stop_reason: str
    is_pending: bool
    """Whether its result is there and waits for its artifacts' commit."""
    run_deadline_at: datetime | None


def check_live(execution_id: str, status: ExecutionStatus) -> None:
    """Raise ExecutionEndedError for an execution that is over."""
    if EXECUTION_MACHINE.is_terminal(status):
        raise ExecutionEndedError(
            f"execution {execution_id} has ended as {status}: rerun its task instead"
        )


def check_going_on(execution_id: str, status: ExecutionStatus) -> None:
    """Raise as `check_live`, and ExecutionCancelingError for one that is being cancelled."""
    check_live(execution_id, status)
    if status is ExecutionStatus.CANCELING:
        raise ExecutionCancelingError(
            f"execution {execution_id} is being cancelled: rerun its task once it has ended"
        )


def instance_of(
    ref: StepRef, instances: Mapping[int, StepStatus], *, has_items: bool
) -> StepStatus:
    """Return the status of a step instance, of a workflow that has the step.

    `instances` are the step's by item index; one that the engine has not made yet counts as
    PENDING. `has_items` says that the step has for_each. Raises StepUnknownError.
    """
    if ref.item_index in instances:
        return instances[ref.item_index]
    if ref.item_index == NO_ITEM or (has_items and len(instances) <= 1):
        return StepStatus.PENDING
    if not has_items:
        raise StepUnknownError(
            f"step {ref.step_key} has no item {ref.item_index}: send item_index -1, since it has "
            "no for_each"
        )
    raise StepUnknownError(
        f"step {ref.step_key} has no item {ref.item_index}: it has {len(instances) - 1}, from 0"
    )


def signaled(ref: StepRef, status: StepStatus, signal: Signal, now: datetime) -> StepEnd:
    """Decide what a signal makes of a step; StepNotWaitingError, InvalidArgumentError."""
    if status is not StepStatus.WAITING:
        raise StepNotWaitingError(f"step {ref} {_why_not_waiting(status)}")
    if not signal.approved:
        why = signal.reason or "no reason was given"
        message = f"step {ref}: rejected by {signal.actor}: {why}"
        failure = Failure("APPROVAL_REJECTED", message, ref.step_key, ref.item_index)
        return StepEnd(StepStatus.FAILED, failure_json=failure.to_json())
    output_json = _output_json(signal, now)
    size_bytes = len(output_json.encode())
    if size_bytes > DOCUMENT_BYTES_MAX:
        raise InvalidArgumentError.of_field(
            "payload_json",
            f"makes an output of {size_bytes} bytes, over {DOCUMENT_BYTES_MAX}: send a reference",
        )
    return StepEnd(StepStatus.SUCCEEDED, output_json=output_json)


def _why_not_waiting(status: StepStatus) -> str:
    if status is StepStatus.PENDING:
        return "is PENDING: signal it once it waits"
    if STEP_MACHINE.is_terminal(status):
        return f"has ended as {status}: the signal came too late"
    return f"is {status}: only approvals wait for a signal"


def _output_json(signal: Signal, now: datetime) -> str:
    head = {
        "approved": True,
        "signaled_by": signal.actor,
        "signaled_at": now.astimezone(UTC).isoformat(timespec="milliseconds"),
        "reason": signal.reason,
    }
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":"))
    # Spliced in unread, so that numbers stay exact.
    return f'{text[:-1]},"payload":{signal.payload_json}}}'


def signal_detail(signal: Signal) -> str:
    """Return what the timeline says of a signal, as JSON text; an approval's document is output."""
    head = {"approved": signal.approved, "reason": signal.reason}
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":"))
    return text if signal.approved else f'{text[:-1]},"payload":{signal.payload_json}}}'


def skipped(ref: StepRef, instances: Mapping[int, StepStatus]) -> Sequence[int]:
    """Return the item indexes to skip with the instance, none where it is skipped already.

    A for_each step is skipped with its items, as long as none of them has started. Raises
    StepStartedError, and StepUnknownError for an item that is not there yet.
    """
    if ref.item_index not in instances and ref.item_index != NO_ITEM:
        raise StepUnknownError(
            f"step {ref.step_key} has no items yet: skip the step as a whole, or one of them later"
        )
    status = instances.get(ref.item_index, StepStatus.PENDING)
    if status is StepStatus.SKIPPED:
        return ()
    if status not in _NOT_STARTED:
        raise StepStartedError(
            f"step {ref} {_standing(status)}: only what has not started can be skipped"
        )
    if ref.item_index != NO_ITEM:
        return (ref.item_index,)
    left = {item: one for item, one in instances.items() if one is not StepStatus.SKIPPED}
    for item, one in sorted(left.items()):
        if one not in _NOT_STARTED:
            raise StepStartedError(
                f"item {item} of step {ref} {_standing(one)}: skip the items that have not started"
            )
    return sorted({NO_ITEM, *left})


def _standing(status: StepStatus) -> str:
    return f"has ended as {status}" if STEP_MACHINE.is_terminal(status) else f"is {status}"


def check_extension(attempt: AttemptStanding, now: datetime) -> None:
    """Raise AttemptNotRunningError for an attempt whose time-out cannot be moved any more."""
    problem = _why_not_extended(attempt, now)
    if problem:
        raise AttemptNotRunningError(f"attempt {attempt.attempt_id} {problem}")


def _why_not_extended(attempt: AttemptStanding, now: datetime) -> str:
    if ATTEMPT_MACHINE.is_terminal(attempt.status):
        return f"has ended as {attempt.status}: there is nothing left to extend"
    if attempt.is_pending:
        return "has its result, whose artifacts are being committed: no time-out runs any more"
    if attempt.stop_reason:
        return f"was told to stop ({attempt.stop_reason}): the work is done anew or not at all"
    if attempt.run_deadline_at is None:
        return "has no run time-out, so none can pass"
    if attempt.run_deadline_at <= now:
        return f"has run out of time at {attempt.run_deadline_at.isoformat()}: it is being stopped"
    return ""
