"""What an outcome comes to, for every reason to stop."""

import pytest

from node_agent.core.execution.attempt import (
    Attempt,
    Drop,
    StopCause,
    Tell,
    Wait,
    end_of,
    interrupted,
)
from node_agent.core.execution.ports import (
    Failed,
    Outcome,
    Stopped,
    Succeeded,
    Usage,
    WorkFailure,
)
from node_agent.core.journal.domain import RunSpec, StopReason
from node_agent.core.journal.events import WorkFailed, WorkStopped, WorkSucceeded
from node_agent.core.session.lease_clock import AttemptId

DONE = Succeeded("{}", "", 0, Usage(1, 2, 3))
BROKEN = Failed(WorkFailure("BROKEN", "it broke", retryable=False), Usage(1, 2, 3))
HALTED = Stopped(Usage(1, 2, 3))


def attempt(cause: StopCause | None = None, reason: StopReason | None = None) -> Attempt:
    spec = RunSpec(AttemptId("a"), 1, "t", "e", "s", -1, 1, "test.work", "1", "{}")
    made = Attempt(spec, is_inline=False, stop_reason=reason)
    if cause is not None:
        made.ask_to_stop(cause)
    return made


@pytest.mark.parametrize("cause", [None, *(set(StopCause) - {StopCause.FORGOTTEN})])
def test_what_got_done_is_told_whatever_stopped_it(cause: StopCause | None) -> None:
    """The server decides whether it still counts."""
    done = end_of(attempt(cause), DONE)
    assert isinstance(done, Tell)
    assert isinstance(done.fact, WorkSucceeded)
    broken = end_of(attempt(cause), BROKEN)
    assert isinstance(broken, Tell)
    assert isinstance(broken.fact, WorkFailed)


@pytest.mark.parametrize("outcome", [DONE, BROKEN, HALTED])
def test_nothing_is_told_of_what_is_no_longer_ours(outcome: Outcome) -> None:
    """Neither success nor failure."""
    assert end_of(attempt(StopCause.FORGOTTEN), outcome) == Drop()


@pytest.mark.parametrize(
    ("cause", "reason", "told"),
    [
        (StopCause.ORDERED, StopReason.CANCEL, "CANCEL"),
        (StopCause.ORDERED, StopReason.TIMEOUT, "TIMEOUT"),
        (StopCause.ORDERED, None, "CANCEL"),
        (StopCause.TIMEOUT, None, "TIMEOUT"),
        (StopCause.DRAIN, None, "DRAIN"),
        (None, None, "DRAIN"),
    ],
)
def test_a_stop_is_told_with_its_reason(
    cause: StopCause | None, reason: StopReason | None, told: str
) -> None:
    """As ordered, or by our own clock, or because the agent ends."""
    assert end_of(attempt(cause, reason), HALTED) == Tell(WorkStopped(told, HALTED.usage))


def test_a_passed_lease_alone_tells_nothing() -> None:
    """It may yet be renewed."""
    assert end_of(attempt(StopCause.LEASE_PASSED), HALTED) == Wait()


@pytest.mark.parametrize("weightier", [StopCause.ORDERED, StopCause.FORGOTTEN, StopCause.DRAIN])
def test_the_weightier_cause_counts(weightier: StopCause) -> None:
    """In whatever order they come."""
    first, second = attempt(StopCause.LEASE_PASSED), attempt(weightier)
    first.ask_to_stop(weightier)
    second.ask_to_stop(StopCause.LEASE_PASSED)
    assert first.stop_cause == second.stop_cause == weightier


def test_an_output_over_the_bound_is_a_final_failure() -> None:
    """256 KiB pass, one byte more does not."""
    fits = end_of(attempt(), Succeeded('"' + "é" * (128 * 1024 - 1) + '"', "", 0, Usage()))
    assert isinstance(fits, Tell)
    assert isinstance(fits.fact, WorkSucceeded)
    big = end_of(attempt(), Succeeded('"' + "é" * (128 * 1024 - 1) + 'x"', "", 0, Usage()))
    assert isinstance(big, Tell)
    assert isinstance(big.fact, WorkFailed)
    assert big.fact.failure.reason == "OUTPUT_TOO_LARGE"
    assert not big.fact.failure.retryable


def test_an_interruption_says_what_interrupted() -> None:
    """A restart and a passed lease are told apart; both are innocent."""
    here, found = attempt(), attempt()
    found.waits_since_process_start = True
    assert interrupted(here).failure.reason == "LEASE_PASSED"
    assert interrupted(found).failure.reason == "AGENT_RESTARTED"
    assert interrupted(found).failure.infrastructure
