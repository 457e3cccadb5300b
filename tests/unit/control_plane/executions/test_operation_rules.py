"""What acts are allowed when, and what they make of a step, rule by rule."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from control_plane.core.engine.deadlines import resumed_deadline_at
from control_plane.core.engine.reuse import StepUnknownError
from control_plane.core.executions.attempt_state import ATTEMPT_MACHINE, AttemptStatus
from control_plane.core.executions.domain import StepKey, StepRef
from control_plane.core.executions.execution_state import EXECUTION_MACHINE, ExecutionStatus
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.operation_rules import (
    AttemptNotRunningError,
    AttemptStanding,
    ExecutionCancelingError,
    ExecutionEndedError,
    Signal,
    StepNotWaitingError,
    StepStartedError,
    check_extension,
    check_going_on,
    check_live,
    instance_of,
    signaled,
    skipped,
)
from control_plane.core.executions.step_state import STEP_MACHINE, StepStatus
from control_plane.core.workflows.domain import StepTimeouts
from foundation.errors import InvalidArgumentError

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
ASK = StepRef(StepKey("ask"))
YES = Signal(approved=True, payload_json='{"n":1.10}', actor="operator:kim", reason="好")
S = StepStatus


@pytest.mark.parametrize("status", list(ExecutionStatus))
def test_only_live_executions_take_acts(status: ExecutionStatus) -> None:
    """What is over refuses everything, what is being cancelled all but a resume."""
    if EXECUTION_MACHINE.is_terminal(status):
        with pytest.raises(ExecutionEndedError, match="rerun"):
            check_live("e", status)
        with pytest.raises(ExecutionEndedError):
            check_going_on("e", status)
    elif status is ExecutionStatus.CANCELING:
        check_live("e", status)
        with pytest.raises(ExecutionCancelingError):
            check_going_on("e", status)
    else:
        check_going_on("e", status)


@pytest.mark.parametrize("status", list(StepStatus))
def test_only_a_waiting_step_takes_a_signal(status: StepStatus) -> None:
    """Early, late and misdirected signals are refused, each in its words."""
    if status is S.WAITING:
        assert signaled(ASK, status, YES, NOW).status is S.SUCCEEDED
        return
    words = {S.PENDING: "once it waits", S.READY: "only approvals", S.RUNNING: "only approvals"}
    with pytest.raises(StepNotWaitingError, match=words.get(status, "too late")):
        signaled(ASK, status, YES, NOW)


def test_a_signals_document_stays_exact() -> None:
    """The output holds who, when and why, and the document as it was sent."""
    output = signaled(ASK, S.WAITING, YES, NOW).output_json
    assert '"payload":{"n":1.10}' in output
    document = json.loads(output)
    assert document["signaled_by"] == "operator:kim"
    assert document["signaled_at"] == "2026-01-01T12:00:00.000+00:00"
    assert document["reason"] == "好"
    large = replace(YES, payload_json=json.dumps("x" * 262_140))
    with pytest.raises(InvalidArgumentError, match="payload_json"):
        signaled(ASK, S.WAITING, large, NOW)


def test_a_rejection_names_who_and_why() -> None:
    """It is a failure that is not tried again."""
    end = signaled(ASK, S.WAITING, replace(YES, approved=False, reason=""), NOW)
    failure = Failure.from_json(end.failure_json)
    assert end.status is S.FAILED
    assert (failure.reason, failure.retryable) == ("APPROVAL_REJECTED", False)
    assert failure.message == "step ask: rejected by operator:kim: no reason was given"


@pytest.mark.parametrize("status", list(StepStatus))
def test_what_has_started_is_not_skipped(status: StepStatus) -> None:
    """The rule agrees with the step's state machine; a repeated skip changes nothing."""
    instances = {-1: status}
    if status is S.SKIPPED:
        assert skipped(ASK, instances) == ()
    elif STEP_MACHINE.allows(status, S.SKIPPED):
        assert list(skipped(ASK, instances)) == [-1]
    else:
        with pytest.raises(StepStartedError):
            skipped(ASK, instances)


def test_a_for_each_step_is_skipped_with_its_items() -> None:
    """None of them may have started; those that are skipped already are left alone."""
    waiting = {-1: S.PENDING, 0: S.READY, 1: S.SKIPPED, 2: S.PENDING}
    assert list(skipped(ASK, waiting)) == [-1, 0, 2]
    for started in (S.RUNNING, S.SUCCEEDED, S.FAILED):
        with pytest.raises(StepStartedError, match="item 2 of step ask"):
            skipped(ASK, {**waiting, 2: started})
    assert list(skipped(StepRef(StepKey("ask"), 2), waiting)) == [2]
    with pytest.raises(StepUnknownError, match="no items yet"):
        skipped(StepRef(StepKey("ask"), 2), {-1: S.PENDING})


def test_instances_are_told_from_mistakes() -> None:
    """What the engine has not made yet is PENDING; what it never will make is unknown."""
    first = StepRef(StepKey("ask"), 0)
    assert instance_of(ASK, {}, has_items=False) is S.PENDING
    assert instance_of(first, {-1: S.PENDING}, has_items=True) is S.PENDING
    assert instance_of(first, {-1: S.PENDING, 0: S.RUNNING}, has_items=True) is S.RUNNING
    with pytest.raises(StepUnknownError, match="it has 1, from 0"):
        instance_of(StepRef(StepKey("ask"), 1), {-1: S.PENDING, 0: S.READY}, has_items=True)
    with pytest.raises(StepUnknownError, match="send item_index -1"):
        instance_of(first, {-1: S.PENDING}, has_items=False)


@pytest.mark.parametrize("status", list(AttemptStatus))
def test_only_a_live_attempt_gets_more_time(status: AttemptStatus) -> None:
    """One that is over, was told to stop, has its result or ran out of time is refused."""
    attempt = AttemptStanding("a", status, "", is_pending=False, run_deadline_at=NOW + HOUR)
    if ATTEMPT_MACHINE.is_terminal(status):
        with pytest.raises(AttemptNotRunningError, match="has ended"):
            check_extension(attempt, NOW)
        return
    check_extension(attempt, NOW)
    for changed in (
        replace(attempt, stop_reason="CANCEL"),
        replace(attempt, is_pending=True),
        replace(attempt, run_deadline_at=None),
        replace(attempt, run_deadline_at=NOW),
    ):
        with pytest.raises(AttemptNotRunningError):
            check_extension(changed, NOW)


@pytest.mark.parametrize(
    ("queue_h", "total_h", "available_h", "paused_h", "deadline_h", "expected_h"),
    [
        # Ready at 0, paused at 1, resumed at 4: three hours stood still.
        (2, None, 0, 1, 2, 5),
        # A back-off until 3 had not begun to count: one hour stood still.
        (2, None, 3, 1, 5, 6),
        # A back-off beyond the pause: nothing stood still.
        (2, None, 6, 1, 8, 8),
        # The total time goes on and bounds what is left.
        (2, 4.5, 0, 1, 2, 4.5),
        (9, 5, 0, 1, 5, 5),
        (None, 5, 0, 1, 5, 5),
    ],
)
def test_a_pause_gives_back_queue_time_only(
    queue_h: float | None,
    total_h: float | None,
    available_h: float,
    paused_h: float,
    deadline_h: float,
    expected_h: float,
) -> None:
    """Only the part of the pause in which queue time would have run counts."""
    timeouts = StepTimeouts(
        queue=None if queue_h is None else HOUR * queue_h,
        total=None if total_h is None else HOUR * total_h,
    )
    moved = resumed_deadline_at(
        timeouts,
        ready_at=NOW,
        available_at=NOW + HOUR * available_h,
        deadline_at=NOW + HOUR * deadline_h,
        paused_at=NOW + HOUR * paused_h,
        now=NOW + HOUR * 4,
    )
    assert moved == NOW + HOUR * expected_h
