"""The state machine of one step instance.

    PENDING ──> READY ──> RUNNING ──> SUCCEEDED | FAILED | TIMED_OUT | CANCELED
       │         │ ▲         │
       │         │ └─────────┘ another attempt
       │         ├──> WAITING ──> SUCCEEDED | FAILED | TIMED_OUT      (approval)
       │         ├──> FAILED (input breaks the schema), TIMED_OUT (queue time)
       └─────────┴──> SKIPPED, CANCELED                               (WAITING too)

PENDING also becomes FAILED (an expression failed) or SUCCEEDED (output reused by a rerun,
or the items of a for_each step are all complete).
"""

from enum import StrEnum
from typing import Final

from control_plane.core.executions.state_machine import StateMachine


class StepStatus(StrEnum):
    """Where a step instance stands."""

    PENDING = "PENDING"
    READY = "READY"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELED = "CANCELED"
    SKIPPED = "SKIPPED"


_S = StepStatus
_DROPPED = frozenset({_S.SKIPPED, _S.CANCELED})

STEP_MACHINE: Final = StateMachine(
    "step",
    {
        _S.PENDING: _DROPPED | {_S.READY, _S.FAILED, _S.SUCCEEDED},
        _S.READY: _DROPPED | {_S.RUNNING, _S.WAITING, _S.FAILED, _S.TIMED_OUT},
        _S.RUNNING: frozenset({_S.READY, _S.SUCCEEDED, _S.FAILED, _S.TIMED_OUT, _S.CANCELED}),
        _S.WAITING: _DROPPED | {_S.SUCCEEDED, _S.FAILED, _S.TIMED_OUT},
        _S.SUCCEEDED: frozenset(),
        _S.FAILED: frozenset(),
        _S.TIMED_OUT: frozenset(),
        _S.CANCELED: frozenset(),
        _S.SKIPPED: frozenset(),
    },
    # An approval asks for nothing but its signal, so it is READY for no time at all.
    passages={(_S.PENDING, _S.WAITING): (_S.READY, _S.WAITING)},
)


def is_complete(status: StepStatus, *, continues_on_failure: bool) -> bool:
    """Whether steps that depend on this one may start.

    A step with `on_failure: continue` is complete however its work ended.
    """
    if status in (StepStatus.SUCCEEDED, StepStatus.SKIPPED):
        return True
    return continues_on_failure and status in (StepStatus.FAILED, StepStatus.TIMED_OUT)
