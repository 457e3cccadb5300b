"""The state machine of one attempt of a step on one node, under one lease.

    DISPATCHED ──> ACCEPTED ──> RUNNING ──> SUCCEEDED | FAILED | CANCELED | TIMED_OUT
         │            │            │
         └────────────┴────────────┴──> FAILED | CANCELED | TIMED_OUT
         └────────────┴────────────┴──> LOST (the lease expired)

Reports may overtake one another: RUNNING and SUCCEEDED are taken from any earlier state,
passing through the ones between.
"""

from enum import StrEnum
from typing import Final

from control_plane.core.executions.state_machine import StateMachine


class AttemptStatus(StrEnum):
    """Where an attempt stands."""

    DISPATCHED = "DISPATCHED"
    ACCEPTED = "ACCEPTED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    TIMED_OUT = "TIMED_OUT"
    LOST = "LOST"


class StopReason(StrEnum):
    """Why a live attempt was told to stop; it decides how the attempt ends."""

    CANCEL = "CANCEL"
    TIMEOUT = "TIMEOUT"
    DRAIN = "DRAIN"


_S = AttemptStatus
_STOPS = frozenset({_S.FAILED, _S.CANCELED, _S.TIMED_OUT, _S.LOST})
_ORDER: Final = (_S.DISPATCHED, _S.ACCEPTED, _S.RUNNING)

ATTEMPT_MACHINE: Final = StateMachine(
    "attempt",
    {
        _S.DISPATCHED: _STOPS | {_S.ACCEPTED},
        _S.ACCEPTED: _STOPS | {_S.RUNNING},
        _S.RUNNING: _STOPS | {_S.SUCCEEDED},
        _S.SUCCEEDED: frozenset(),
        _S.FAILED: frozenset(),
        _S.CANCELED: frozenset(),
        _S.TIMED_OUT: frozenset(),
        _S.LOST: frozenset(),
    },
    passages={
        (_S.DISPATCHED, _S.RUNNING): (_S.ACCEPTED, _S.RUNNING),
        (_S.DISPATCHED, _S.SUCCEEDED): (_S.ACCEPTED, _S.RUNNING, _S.SUCCEEDED),
        (_S.ACCEPTED, _S.SUCCEEDED): (_S.RUNNING, _S.SUCCEEDED),
    },
)


def is_overtaken(current: AttemptStatus, reported: AttemptStatus) -> bool:
    """Whether the report says less than is known: a late ACCEPTED of a RUNNING attempt."""
    if current in _ORDER and reported in _ORDER:
        return _ORDER.index(reported) < _ORDER.index(current)
    return False


def accepts_success(stop_reason: StopReason | None) -> bool:
    """Whether a success still counts: under a cancel it does, under a time-out it does not."""
    return stop_reason is not StopReason.TIMEOUT


def end_after_stop(stop_reason: StopReason | None) -> AttemptStatus:
    """How an attempt ends whose lease expires or whose node reports that it has stopped.

    Without a stop reason, and under a drain, the work is lost and done again elsewhere; a
    cancelled or timed-out attempt never counts as lost.
    """
    match stop_reason:
        case None | StopReason.DRAIN:
            return AttemptStatus.LOST
        case StopReason.CANCEL:
            return AttemptStatus.CANCELED
        case StopReason.TIMEOUT:
            return AttemptStatus.TIMED_OUT
