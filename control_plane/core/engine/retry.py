"""What follows from the end of an attempt: another one, or the end of its step."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from random import Random
from typing import Final

from control_plane.core.executions.failures import Failure
from control_plane.core.executions.step_state import StepStatus
from control_plane.core.workflows.domain import StepDefinition
from foundation.backoff import exponential_s, jittered_s

LOSSES_MAX: Final = 10
# The first loss is repeated at once: it is the node's fault and seldom the work's. Further
# ones slow down, so that work that kills its node does not kill them all within a second.
LOSS_DELAY_BASE_S: Final = 1.0
LOSS_DELAY_CAP_S: Final = 30.0
WORKER_DELAY_MAX: Final = timedelta(hours=24)


class AttemptEnd(StrEnum):
    """How an attempt ended without success.

    LOST: the lease expired, or the node's journal was lost. DRAINED: the node gave the work
    back while it ran. REJECTED: the node refused it before it started.
    """

    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELED = "CANCELED"
    LOST = "LOST"
    DRAINED = "DRAINED"
    REJECTED = "REJECTED"


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """The end of an attempt as reported or concluded.

    `failure` says why, and whether a retry can help; `next_delay` is the wait that the
    capability asked for instead of the policy's, if any.
    """

    end: AttemptEnd
    failure: Failure
    next_delay: timedelta | None = None


@dataclass(frozen=True, slots=True)
class AttemptCounters:
    """What a step instance has used up: failures against its policy, losses against their own."""

    attempt_number: int
    failures: int = 0
    losses: int = 0


@dataclass(frozen=True, slots=True)
class Retry:
    """Another attempt, from `at` on; the step becomes READY again with these counters."""

    at: datetime
    counters: AttemptCounters


@dataclass(frozen=True, slots=True)
class StepEnds:
    """No further attempt: the step takes this status and failure."""

    status: StepStatus
    failure: Failure
    counters: AttemptCounters


def after_attempt(
    step: StepDefinition,
    counters: AttemptCounters,
    outcome: AttemptOutcome,
    now: datetime,
    random: Random,
    *,
    total_deadline_at: datetime | None = None,
    closing: bool = False,
) -> Retry | StepEnds:
    """Decide what follows from an attempt that ended without success.

    `counters` are those before this end. `closing` says that the execution is ending, so
    that nothing is tried again. Pure but for `random`, which spreads the waits.
    """
    if outcome.end is AttemptEnd.CANCELED:
        return StepEnds(StepStatus.CANCELED, outcome.failure, counters)
    if _is_loss(step, outcome.end):
        counted = _counted(counters, losses=1)
        delay_s = _loss_delay_s(counted.losses, random)
        exhausted = counted.losses > LOSSES_MAX
    else:
        counted = _counted(counters, failures=1)
        delay_s = _failure_delay_s(step, counted.failures, outcome, random)
        exhausted = counted.failures >= step.retry.max_attempts or not _helps(step, outcome)
    at = now + timedelta(seconds=delay_s)
    too_late = total_deadline_at is not None and at >= total_deadline_at
    if exhausted or too_late or closing:
        return StepEnds(_final_status(outcome.end), outcome.failure, counted)
    return Retry(at, AttemptCounters(counted.attempt_number + 1, counted.failures, counted.losses))


def _is_loss(step: StepDefinition, end: AttemptEnd) -> bool:
    """Whether the end counts against the losses; one that never started counts there always."""
    if end is AttemptEnd.REJECTED:
        return True
    return end in (AttemptEnd.LOST, AttemptEnd.DRAINED) and not step.at_most_once


def _helps(step: StepDefinition, outcome: AttemptOutcome) -> bool:
    if outcome.failure.reason in step.retry.non_retryable_reasons:
        return False
    return outcome.failure.retryable or outcome.end is not AttemptEnd.FAILED


def _counted(counters: AttemptCounters, failures: int = 0, losses: int = 0) -> AttemptCounters:
    return AttemptCounters(
        counters.attempt_number, counters.failures + failures, counters.losses + losses
    )


def _loss_delay_s(losses: int, random: Random) -> float:
    delay_s = exponential_s(losses - 1, base_s=LOSS_DELAY_BASE_S, cap_s=LOSS_DELAY_CAP_S)
    return jittered_s(delay_s, random)


def _failure_delay_s(
    step: StepDefinition, failures: int, outcome: AttemptOutcome, random: Random
) -> float:
    if outcome.next_delay is not None:
        return max(timedelta(0), min(outcome.next_delay, WORKER_DELAY_MAX)).total_seconds()
    policy = step.retry
    delay_s = exponential_s(
        failures,
        base_s=policy.initial_delay.total_seconds(),
        cap_s=policy.max_delay.total_seconds(),
        factor=policy.multiplier,
    )
    return jittered_s(delay_s, random, fraction=policy.jitter)


def _final_status(end: AttemptEnd) -> StepStatus:
    return StepStatus.TIMED_OUT if end is AttemptEnd.TIMED_OUT else StepStatus.FAILED
