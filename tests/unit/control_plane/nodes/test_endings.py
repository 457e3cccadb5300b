"""How attempts end: pure rules of reports, stops, losses and retries."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.core.engine.retry import AttemptEnd
from control_plane.core.errors import TransitionForbiddenError
from control_plane.core.executions.attempt_state import ATTEMPT_MACHINE, AttemptStatus, StopReason
from control_plane.core.executions.domain import AttemptId, ExecutionId, StepKey, StepRef
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.outcomes import (
    AttemptFacts,
    Ending,
    aftermath_of,
    conclude,
    expired,
    failed,
    missing,
    never_sent,
    settled,
    stopped,
    succeeded,
    success_pending,
)
from control_plane.core.executions.reports import (
    ATTEMPT_ENDED,
    ATTEMPT_UNKNOWN,
    LEASE_LOST,
    NODE_MISMATCH,
    RESULT_PENDING,
    ResultSeen,
    judge_success,
    refusal_of,
)
from control_plane.core.executions.step_state import STEP_MACHINE, StepStatus
from control_plane.core.workflows.domain import RetryPolicy, StepDefinition

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STEP = StepDefinition(StepKey("work"), retry=RetryPolicy(max_attempts=3, jitter=0.0))
BROKE = Failure("BROKE", "it broke", retryable=True)
DICE = Random(1)
FACTS = AttemptFacts(
    attempt_id=AttemptId("a"),
    execution_id=ExecutionId("e"),
    ref=StepRef(StepKey("work")),
    number=1,
    task_id="t",
    application_id="app",
    node_id="n",
    lease_version=1,
    status=AttemptStatus.RUNNING,
    stop_reason=None,
    pending_result="",
    step_status=StepStatus.RUNNING,
    step_attempt_number=1,
    failure_count=0,
    loss_count=0,
    ready_at=NOW,
    capability="c",
    capability_version="1",
    closing=False,
    canceling=False,
    snapshot_digest="d",
)
STOPS = st.sampled_from([None, *StopReason])
LIVE = st.sampled_from([one for one in AttemptStatus if not ATTEMPT_MACHINE.is_terminal(one)])
ENDINGS = st.one_of(
    st.just(succeeded("{}")),
    st.just(missing()),
    st.builds(lambda stop: failed(stop, BROKE), STOPS),
    st.builds(lambda stop: failed(stop, BROKE, infrastructure=True), STOPS),
    st.builds(stopped, STOPS, STOPS),
    st.builds(expired, STOPS),
    st.builds(never_sent, st.sampled_from([StopReason.CANCEL, StopReason.TIMEOUT])),
)


@given(ENDINGS, LIVE, st.booleans(), st.integers(0, 4), st.integers(0, 11))
def test_every_ending_moves_attempt_and_step_as_their_machines_allow(
    ending: Ending,
    status: AttemptStatus,
    closing: bool,  # noqa: FBT001 - given by Hypothesis
    failures: int,
    losses: int,
) -> None:
    """Whatever ends however, the attempt is terminal, the step moves legally, counters grow."""
    facts = replace(
        FACTS, status=status, closing=closing, failure_count=failures, loss_count=losses
    )
    done = conclude(facts, ending, STEP, NOW, DICE)
    assert ATTEMPT_MACHINE.is_terminal(ending.status)
    assert done.step is not None
    assert done.step.status in {StepStatus.READY} | STEP_MACHINE.terminal
    assert STEP_MACHINE.allows(StepStatus.RUNNING, done.step.status)
    assert (done.step.retry_at is not None) == (done.step.status is StepStatus.READY)
    assert done.step.attempt_number == 1 + (done.step.status is StepStatus.READY)
    used = done.step.failure_count + done.step.loss_count - failures - losses
    assert used == (ending.end not in (None, AttemptEnd.CANCELED))
    if closing:
        assert done.step.status is not StepStatus.READY


@pytest.mark.parametrize("status", sorted(ATTEMPT_MACHINE.terminal))
def test_what_is_over_never_ends_again(status: AttemptStatus) -> None:
    """A second end, even an equal one, is a defect of the caller."""
    with pytest.raises(TransitionForbiddenError):
        conclude(replace(FACTS, status=status), expired(None), STEP, NOW, DICE)


def test_a_step_that_moved_on_is_left_alone() -> None:
    """An attempt that its step no longer waits for ends by itself."""
    assert (
        conclude(replace(FACTS, step_attempt_number=2), expired(None), None, NOW, DICE).step is None
    )
    waiting = replace(FACTS, step_status=StepStatus.CANCELED)
    assert conclude(waiting, succeeded("{}"), None, NOW, DICE).step is None


def test_the_asked_delay_of_a_failure_is_kept() -> None:
    """A capability that says when to come back is believed before the policy."""
    ending = failed(None, BROKE, next_delay_s=77.0)
    move = conclude(FACTS, ending, STEP, NOW, DICE).step
    assert move is not None
    assert move.retry_at == NOW + timedelta(seconds=77)


def test_a_drain_counts_as_a_loss_and_not_as_a_failure() -> None:
    """Work that a node gives back does not use up the retry policy."""
    for ending in (failed(None, BROKE, infrastructure=True), stopped(None, StopReason.DRAIN)):
        move = conclude(FACTS, ending, STEP, NOW, DICE).step
        assert move is not None
        assert (move.failure_count, move.loss_count) == (0, 1)


@pytest.mark.parametrize("reason", ["HEARTBEAT_TIMEOUT", "RUN_TIMEOUT"])
def test_work_that_its_node_found_too_slow_has_timed_out(reason: str) -> None:
    """The attempt is TIMED_OUT and tried again; the step is, once its policy is used up."""
    slow = failed(None, Failure(reason, "no sign of life", retryable=True))
    assert slow.status is AttemptStatus.TIMED_OUT
    once = StepDefinition(StepKey("s"), retry=RetryPolicy(max_attempts=1))
    for step, status in ((STEP, StepStatus.READY), (once, StepStatus.TIMED_OUT)):
        move = conclude(FACTS, slow, step, NOW, DICE).step
        assert move is not None
        assert (move.status, move.failure_count) == (status, 1)


def test_a_cancel_is_never_taken_from_the_node() -> None:
    """A node that says it was cancelled, unasked, has lost the work."""
    assert stopped(None, StopReason.CANCEL).status is AttemptStatus.LOST
    assert stopped(None, StopReason.TIMEOUT).status is AttemptStatus.TIMED_OUT
    assert stopped(StopReason.CANCEL, None).status is AttemptStatus.CANCELED


def test_a_pending_result_frees_capacity_once_and_settles_to_its_output() -> None:
    """Capacity is free from the report on; the output comes back from what was kept."""
    ending = success_pending(FACTS, '{"n":1}', "coll", 2)
    first = conclude(FACTS, ending, None, NOW, DICE)
    assert first.frees_capacity
    assert first.step is None
    pending = replace(FACTS, pending_result=ending.pending_result)
    second = conclude(pending, settled(pending, None), None, NOW, DICE)
    assert not second.frees_capacity
    assert second.step is not None
    assert (second.step.status, second.step.output_json) == (StepStatus.SUCCEEDED, '{"n":1}')
    refused = conclude(pending, settled(pending, BROKE), STEP, NOW, DICE)
    assert refused.step is not None
    assert refused.step.status is StepStatus.READY


def test_refusals_name_the_first_thing_that_does_not_fit() -> None:
    """Attempt, node, lease and state are checked in this order."""
    assert refusal_of(None, "n", 1) == ATTEMPT_UNKNOWN
    assert refusal_of(FACTS, "m", 2) == NODE_MISMATCH
    assert refusal_of(FACTS, "n", 2) == LEASE_LOST
    assert refusal_of(replace(FACTS, status=AttemptStatus.LOST), "n", 1) == LEASE_LOST
    assert refusal_of(replace(FACTS, status=AttemptStatus.FAILED), "n", 1) == ATTEMPT_ENDED
    assert refusal_of(replace(FACTS, pending_result="{}"), "n", 1) == RESULT_PENDING
    assert refusal_of(FACTS, "n", 1) == ""


@pytest.mark.parametrize(
    ("stop", "result", "accepted", "status"),
    [
        (None, ResultSeen("{}", 0, "", 0), True, AttemptStatus.SUCCEEDED),
        (None, ResultSeen("{}", 2, "c", 2), True, AttemptStatus.RUNNING),
        (None, ResultSeen("{}", 2, "c", 1), False, AttemptStatus.FAILED),
        (None, ResultSeen("{}", 0, "", 0, "wrong"), False, AttemptStatus.FAILED),
        (StopReason.CANCEL, ResultSeen("{}", 0, "", 0), True, AttemptStatus.SUCCEEDED),
        (StopReason.CANCEL, ResultSeen("{}", 1, "", 0), False, AttemptStatus.CANCELED),
        (StopReason.TIMEOUT, ResultSeen("{}", 0, "", 0), False, AttemptStatus.TIMED_OUT),
    ],
)
def test_successes_are_judged_by_stop_count_and_schema(
    stop: StopReason | None,
    result: ResultSeen,
    accepted: bool,  # noqa: FBT001 - a column of the table
    status: AttemptStatus,
) -> None:
    """Every success ends its attempt, accepted or not."""
    verdict = judge_success(replace(FACTS, stop_reason=stop), result)
    assert verdict.accepted is accepted
    assert bool(verdict.reason) is not accepted
    assert verdict.ending is not None
    assert verdict.ending.status is status


def test_the_aftermath_wakes_whom_it_concerns() -> None:
    """A retry asks the scheduler, a pending result the committer; freed slots are told."""
    retry = conclude(FACTS, expired(None), STEP, NOW, DICE)
    after = aftermath_of([retry], ["n"])
    assert after.execution_ids == {"e"}
    assert after.node_ids == {"n"}
    assert after.frees_capacity
    assert after.asks_again
    assert not after.commits_artifacts
    pending = conclude(FACTS, success_pending(FACTS, "{}", "c", 1), None, NOW, DICE)
    both = after | aftermath_of([pending], [])
    assert both.commits_artifacts
    assert both.asks_again
