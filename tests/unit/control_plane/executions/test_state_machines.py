"""Every pair of states of the three machines, against tables written out by hand."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.core.errors import TransitionForbiddenError
from control_plane.core.executions.attempt_state import (
    ATTEMPT_MACHINE,
    AttemptStatus,
    StopReason,
    accepts_success,
    end_after_stop,
    is_overtaken,
)
from control_plane.core.executions.execution_state import (
    EXECUTION_MACHINE,
    ExecutionState,
    ExecutionStatus,
    ProgressLoweredError,
)
from control_plane.core.executions.state_machine import StateMachine
from control_plane.core.executions.step_state import STEP_MACHINE, StepStatus, is_complete

NOW = datetime(2026, 1, 1, tzinfo=UTC)

EXECUTION_MOVES = """
CREATED: QUEUED SUCCEEDED FAILED TIMED_OUT CANCELING CANCELED
QUEUED: RUNNING SUCCEEDED FAILED TIMED_OUT CANCELING CANCELED
RUNNING: SUCCEEDED FAILED TIMED_OUT CANCELING CANCELED
CANCELING: CANCELED FAILED TIMED_OUT
"""
STEP_MOVES = """
PENDING: READY SKIPPED CANCELED FAILED SUCCEEDED WAITING
READY: RUNNING WAITING SKIPPED CANCELED FAILED TIMED_OUT
RUNNING: READY SUCCEEDED FAILED TIMED_OUT CANCELED
WAITING: SUCCEEDED FAILED TIMED_OUT SKIPPED CANCELED
"""
ATTEMPT_MOVES = """
DISPATCHED: ACCEPTED RUNNING SUCCEEDED FAILED CANCELED TIMED_OUT LOST
ACCEPTED: RUNNING SUCCEEDED FAILED CANCELED TIMED_OUT LOST
RUNNING: SUCCEEDED FAILED CANCELED TIMED_OUT LOST
"""


def _pairs(table: str) -> set[tuple[str, str]]:
    rows = (line.split(":") for line in table.strip().splitlines())
    return {(source, target) for source, targets in rows for target in targets.split()}


def _cases() -> list[Any]:
    machines: list[tuple[StateMachine[Any], type[StrEnum], str]] = [
        (EXECUTION_MACHINE, ExecutionStatus, EXECUTION_MOVES),
        (STEP_MACHINE, StepStatus, STEP_MOVES),
        (ATTEMPT_MACHINE, AttemptStatus, ATTEMPT_MOVES),
    ]
    return [
        pytest.param(
            machine, source, target, _pairs(table), id=f"{states.__name__}-{source}-{target}"
        )
        for machine, states, table in machines
        for source, target in product(states, states)
    ]


@pytest.mark.parametrize(("machine", "source", "target", "moves"), _cases())
def test_each_pair_of_states(
    machine: StateMachine[Any], source: StrEnum, target: StrEnum, moves: set[tuple[str, str]]
) -> None:
    """A repeated move is a no-op, a listed one arrives, and any other is refused."""
    if source is target:
        assert machine.path(source, target) == ()
    elif (source, target) in moves:
        assert machine.path(source, target)[-1] is target
        assert machine.allows(source, target)
    else:
        assert not machine.allows(source, target)
        with pytest.raises(TransitionForbiddenError, match=f"from {source} to {target}"):
            machine.path(source, target)


def test_each_hop_of_a_passage_is_itself_allowed() -> None:
    """A success that overtakes its acceptance passes through the states between."""
    path = ATTEMPT_MACHINE.path(AttemptStatus.DISPATCHED, AttemptStatus.SUCCEEDED)
    assert path == (AttemptStatus.ACCEPTED, AttemptStatus.RUNNING, AttemptStatus.SUCCEEDED)
    assert STEP_MACHINE.path(StepStatus.PENDING, StepStatus.WAITING) == (
        StepStatus.READY,
        StepStatus.WAITING,
    )


def test_an_execution_keeps_its_times_and_counts_its_versions() -> None:
    """Start is the first RUNNING, completion the final state, and each move adds a version."""
    later = NOW + timedelta(seconds=5)
    queued = ExecutionState().moved(ExecutionStatus.QUEUED, NOW)
    running = queued.moved(ExecutionStatus.RUNNING, NOW).moved(ExecutionStatus.RUNNING, later)
    done = running.moved(ExecutionStatus.SUCCEEDED, later)
    assert (running.started_at, running.completed_at, running.version) == (NOW, None, 3)
    assert (done.started_at, done.completed_at, done.version) == (NOW, later, 4)
    assert done.progress == 100


@given(st.lists(st.integers(-5, 120)))
def test_progress_only_grows_and_stays_below_one_hundred(reports: list[int]) -> None:
    """Any reports in any order leave the largest, at most 99, and a version per rise."""
    state = ExecutionState(status=ExecutionStatus.RUNNING)
    for report in reports:
        after = state.reported(report)
        assert after.progress >= state.progress
        assert after.version - state.version == (after.progress > state.progress)
        state = after
    assert state.progress == min(99, max([0, *reports]))


@pytest.mark.parametrize("status", [one for one in ExecutionStatus if one != "RUNNING"])
def test_progress_counts_only_while_running(status: ExecutionStatus) -> None:
    """A report in any other state changes nothing."""
    state = ExecutionState(status=status)
    assert state.reported(50) is state


def test_our_own_code_may_not_lower_progress() -> None:
    """A call that would lower progress is a defect and says so."""
    state = ExecutionState(status=ExecutionStatus.RUNNING, progress=40)
    assert state.advanced(41).progress == 41
    with pytest.raises(ProgressLoweredError, match="from 40 to 39"):
        state.advanced(39)


def test_a_stopped_attempt_is_never_lost() -> None:
    """Its stop reason decides how it ends, and whether a late success counts."""
    assert end_after_stop(None) is AttemptStatus.LOST
    assert end_after_stop(StopReason.CANCEL) is AttemptStatus.CANCELED
    assert end_after_stop(StopReason.TIMEOUT) is AttemptStatus.TIMED_OUT
    assert end_after_stop(StopReason.DRAIN) is AttemptStatus.LOST
    refusing = [one for one in (None, *StopReason) if not accepts_success(one)]
    assert refusing == [StopReason.TIMEOUT]


def test_a_late_acceptance_is_recognised_as_overtaken() -> None:
    """Reports that say less than is known are told from forbidden ones."""
    assert is_overtaken(AttemptStatus.RUNNING, AttemptStatus.ACCEPTED)
    assert not is_overtaken(AttemptStatus.ACCEPTED, AttemptStatus.RUNNING)
    assert not is_overtaken(AttemptStatus.SUCCEEDED, AttemptStatus.FAILED)


@pytest.mark.parametrize("status", list(StepStatus))
def test_which_steps_let_their_dependents_start(status: StepStatus) -> None:
    """Success and skip always do; failure and time-out only with on_failure continue."""
    strict = is_complete(status, continues_on_failure=False)
    lenient = is_complete(status, continues_on_failure=True)
    assert strict == (status in {StepStatus.SUCCEEDED, StepStatus.SKIPPED})
    assert lenient == (strict or status in {StepStatus.FAILED, StepStatus.TIMED_OUT})
