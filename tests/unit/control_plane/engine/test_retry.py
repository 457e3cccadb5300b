"""What follows from each end of an attempt."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.core.engine.retry import (
    LOSSES_MAX,
    AttemptCounters,
    AttemptEnd,
    AttemptOutcome,
    Retry,
    StepEnds,
    after_attempt,
)
from control_plane.core.executions.domain import StepKey
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.step_state import StepStatus
from control_plane.core.workflows.domain import RetryPolicy, StepDefinition

DICE = Random(1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = RetryPolicy(
    max_attempts=3,
    initial_delay=timedelta(seconds=2),
    multiplier=3,
    max_delay=timedelta(seconds=10),
    jitter=0,
    non_retryable_reasons=frozenset({"BAD"}),
)
STEP = StepDefinition(StepKey("s"), retry=POLICY)
ONCE = replace(STEP, at_most_once=True, retry=replace(POLICY, max_attempts=1))


def _outcome(
    end: AttemptEnd, reason: str = "X", *, retryable: bool = True, next_delay_s: float | None = None
) -> AttemptOutcome:
    delay = None if next_delay_s is None else timedelta(seconds=next_delay_s)
    return AttemptOutcome(end, Failure(reason, "m", retryable=retryable), delay)


def _after(
    outcome: AttemptOutcome,
    counters: AttemptCounters = AttemptCounters(1),  # noqa: B008 - immutable
    step: StepDefinition = STEP,
    *,
    total_deadline_at: datetime | None = None,
    closing: bool = False,
) -> Retry | StepEnds:
    return after_attempt(
        step,
        counters,
        outcome,
        NOW,
        DICE,
        total_deadline_at=total_deadline_at,
        closing=closing,
    )


@pytest.mark.parametrize(("failures", "delay_s"), [(0, 2), (1, 6)])
def test_failures_wait_longer_each_time(failures: int, delay_s: int) -> None:
    """The policy's wait, and the next attempt's number."""
    result = _after(_outcome(AttemptEnd.FAILED), AttemptCounters(failures + 1, failures))
    assert result == Retry(
        NOW + timedelta(seconds=delay_s), AttemptCounters(failures + 2, failures + 1)
    )


def test_the_last_attempt_ends_the_step() -> None:
    """max_attempts counts the first; a run time-out ends it TIMED_OUT."""
    used_up = AttemptCounters(3, 2)
    failed = _after(_outcome(AttemptEnd.FAILED), used_up)
    timed_out = _after(_outcome(AttemptEnd.TIMED_OUT), used_up)
    assert isinstance(failed, StepEnds)
    assert failed.status is StepStatus.FAILED
    assert isinstance(timed_out, StepEnds)
    assert timed_out.status is StepStatus.TIMED_OUT


@pytest.mark.parametrize(
    "outcome",
    [
        _outcome(AttemptEnd.FAILED, retryable=False),
        _outcome(AttemptEnd.FAILED, "BAD"),
        _outcome(AttemptEnd.TIMED_OUT, "BAD"),
    ],
)
def test_what_a_retry_cannot_help_is_final_at_once(outcome: AttemptOutcome) -> None:
    """Not retryable by the capability's word, or by the policy's list."""
    assert isinstance(_after(outcome), StepEnds)


def test_a_run_timeout_is_retried_by_the_policy() -> None:
    """Even though nobody could say that it is retryable."""
    assert isinstance(_after(_outcome(AttemptEnd.TIMED_OUT, retryable=False)), Retry)


def test_the_capability_may_choose_the_wait() -> None:
    """Its delay replaces the policy's, within a day."""
    chosen = _after(_outcome(AttemptEnd.FAILED, next_delay_s=90))
    absurd = _after(_outcome(AttemptEnd.FAILED, next_delay_s=10**7))
    assert isinstance(chosen, Retry)
    assert chosen.at == NOW + timedelta(seconds=90)
    assert isinstance(absurd, Retry)
    assert absurd.at == NOW + timedelta(days=1)


@pytest.mark.parametrize("end", [AttemptEnd.LOST, AttemptEnd.DRAINED, AttemptEnd.REJECTED])
def test_losses_have_a_budget_of_their_own(end: AttemptEnd) -> None:
    """Ten are repeated, the first at once, none uses up the policy, the eleventh is final."""
    counters = AttemptCounters(1, failures=2)
    for count in range(1, LOSSES_MAX + 1):
        result = _after(_outcome(end, retryable=False), counters)
        assert isinstance(result, Retry)
        assert (result.at == NOW) == (count == 1)
        counters = result.counters
    assert counters == AttemptCounters(11, failures=2, losses=10)
    last = _after(_outcome(end), counters)
    assert isinstance(last, StepEnds)
    assert last.status is StepStatus.FAILED


def test_at_most_once_is_never_repeated_after_it_may_have_run() -> None:
    """A loss counts as a failure there; only a refusal before the start is repeated."""
    for end in (AttemptEnd.LOST, AttemptEnd.DRAINED, AttemptEnd.FAILED, AttemptEnd.TIMED_OUT):
        assert isinstance(_after(_outcome(end), step=ONCE), StepEnds)
    assert isinstance(_after(_outcome(AttemptEnd.REJECTED), step=ONCE), Retry)


def test_a_cancelled_attempt_cancels_its_step() -> None:
    """And uses up nothing."""
    result = _after(_outcome(AttemptEnd.CANCELED))
    assert isinstance(result, StepEnds)
    assert (result.status, result.counters) == (StepStatus.CANCELED, AttemptCounters(1))


def test_nothing_is_retried_past_the_total_time_or_while_closing() -> None:
    """A retry that would start too late, or in an execution that is ending, is none."""
    soon = NOW + timedelta(seconds=2)
    assert isinstance(_after(_outcome(AttemptEnd.FAILED), total_deadline_at=soon), StepEnds)
    later = NOW + timedelta(seconds=3)
    assert isinstance(_after(_outcome(AttemptEnd.FAILED), total_deadline_at=later), Retry)
    assert isinstance(_after(_outcome(AttemptEnd.LOST), closing=True), StepEnds)


@given(st.lists(st.sampled_from(list(AttemptEnd)), max_size=60), st.integers(1, 8), st.booleans())
def test_retrying_always_ends(ends: list[AttemptEnd], attempts: int, once: bool) -> None:  # noqa: FBT001 - given
    """Attempt numbers grow by one, and there are never more than both budgets allow."""
    step = replace(STEP, at_most_once=once, retry=replace(POLICY, max_attempts=attempts))
    counters = AttemptCounters(1)
    for end in ends:
        result = _after(_outcome(end), counters, step)
        if isinstance(result, StepEnds):
            return
        assert result.counters.attempt_number == counters.attempt_number + 1
        assert result.at >= NOW
        counters = result.counters
        assert counters.attempt_number <= attempts + LOSSES_MAX
