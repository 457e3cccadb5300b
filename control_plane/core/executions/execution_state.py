"""The state machine of an execution, with its version, times and progress.

    CREATED ──> QUEUED ──> RUNNING ──> SUCCEEDED | FAILED | TIMED_OUT
       │          │           │
       └──────────┴───────────┴──> CANCELING ──> CANCELED | FAILED | TIMED_OUT

CREATED and QUEUED may also end at once, in any final state, and every live state may be
CANCELED directly. A failing or timed-out execution stays RUNNING, with `closing_as` set,
until nothing of it runs any more.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from control_plane.core.errors import ControlPlaneError
from control_plane.core.executions.state_machine import StateMachine
from foundation.errors import InternalError

PROGRESS_MAX: Final = 100
PROGRESS_BEFORE_SUCCESS_MAX: Final = 99


class ExecutionStatus(StrEnum):
    """Where an execution stands."""

    CREATED = "CREATED"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    CANCELING = "CANCELING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELED = "CANCELED"


class ClosingReason(StrEnum):
    """How a RUNNING execution is going to end; the first reason wins.

    A requested cancel is no such reason: it has the status CANCELING.
    """

    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"


class ProgressLoweredError(ControlPlaneError, InternalError):
    """Our own code tried to lower progress, which only grows."""

    reason = "PROGRESS_LOWERED"


_S = ExecutionStatus
_ENDS = frozenset({_S.SUCCEEDED, _S.FAILED, _S.TIMED_OUT, _S.CANCELED})
_LEAVES = _ENDS | {_S.CANCELING}

EXECUTION_MACHINE: Final = StateMachine(
    "execution",
    {
        _S.CREATED: _LEAVES | {_S.QUEUED},
        _S.QUEUED: _LEAVES | {_S.RUNNING},
        _S.RUNNING: _LEAVES,
        _S.CANCELING: frozenset({_S.CANCELED, _S.FAILED, _S.TIMED_OUT}),
        _S.SUCCEEDED: frozenset(),
        _S.FAILED: frozenset(),
        _S.TIMED_OUT: frozenset(),
        _S.CANCELED: frozenset(),
    },
)


@dataclass(frozen=True, slots=True)
class ExecutionState:
    """The part of an execution that its state machine governs."""

    status: ExecutionStatus = ExecutionStatus.CREATED
    version: int = 1
    progress: int = 0
    started_at: datetime | None = None
    completed_at: datetime | None = None

    def moved(self, target: ExecutionStatus, now: datetime) -> "ExecutionState":
        """Return the state after the move; itself when `target` is already reached.

        Raises TransitionForbiddenError for a move that the table does not have.
        """
        state = self
        for status in EXECUTION_MACHINE.path(self.status, target):
            state = state._entered(status, now)
        return state

    def _entered(self, status: ExecutionStatus, now: datetime) -> "ExecutionState":
        return replace(
            self,
            status=status,
            version=self.version + 1,
            progress=PROGRESS_MAX if status is ExecutionStatus.SUCCEEDED else self.progress,
            started_at=now if status is ExecutionStatus.RUNNING else self.started_at,
            completed_at=now if EXECUTION_MACHINE.is_terminal(status) else self.completed_at,
        )

    def reported(self, progress: int) -> "ExecutionState":
        """Return the state after a report; only a higher one counts, and only while RUNNING."""
        capped = min(progress, PROGRESS_BEFORE_SUCCESS_MAX)
        if self.status is not ExecutionStatus.RUNNING or capped <= self.progress:
            return self
        return replace(self, progress=capped, version=self.version + 1)

    def advanced(self, progress: int) -> "ExecutionState":
        """Return the state after our own code raised progress.

        Raises ProgressLoweredError when it would fall, since that is a defect of ours.
        """
        if progress < self.progress:
            raise ProgressLoweredError(
                f"progress cannot fall from {self.progress} to {progress}: pass the larger one"
            )
        return self.reported(progress)
