"""What the engine is told: an execution and its steps, as stored, under the execution's lock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from control_plane.core.executions.attempt_state import StopReason
from control_plane.core.executions.domain import ExecutionId, StepRef, TaskId
from control_plane.core.executions.execution_state import ClosingReason, ExecutionStatus
from control_plane.core.executions.step_state import StepStatus


@dataclass(frozen=True, slots=True)
class StepFacts:
    """One step instance as stored.

    A for_each step has one instance without an index, which holds its items: its input is
    the list, its output the list of theirs, and it stays PENDING while they run.

    `attempt_number` is that of the newest attempt, running or asked for; 0 before the first
    READY. `has_request` says that a scheduling request for this attempt is stored,
    `stop_reason` that the running attempt was told to stop. `deadline_at` is when the queue
    time of a READY step, or the wait of a WAITING one, is over; `ready_at` when it first
    became READY.
    """

    ref: StepRef
    status: StepStatus = StepStatus.PENDING
    attempt_number: int = 0
    progress_percent: int = 0
    input_json: str = ""
    output_json: str = ""
    failure_json: str = ""
    not_before: datetime | None = None
    deadline_at: datetime | None = None
    ready_at: datetime | None = None
    has_request: bool = False
    stop_reason: StopReason | None = None


@dataclass(frozen=True, slots=True)
class ExecutionFacts:
    """An execution as stored, with all of its step instances.

    `cancel_requested` may be set before the status says CANCELING. `deadline_at` is when
    the whole execution times out. `progress_event_at` is when progress was last told.
    """

    execution_id: ExecutionId
    task_id: TaskId
    application_id: str
    run: int = 1
    external_ref: str = ""
    status: ExecutionStatus = ExecutionStatus.CREATED
    closing_as: ClosingReason | None = None
    cancel_requested: bool = False
    paused: bool = False
    progress_percent: int = 0
    progress_event_at: datetime | None = None
    deadline_at: datetime | None = None
    input_json: str = "null"
    failure_json: str = ""
    steps: Mapping[StepRef, StepFacts] = field(default_factory=dict)
