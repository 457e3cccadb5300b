"""What the engine answers: everything to write, in the order in which to write it."""

from dataclasses import dataclass
from datetime import datetime

from control_plane.core.executions.attempt_state import StopReason
from control_plane.core.executions.domain import ExecutionEventType, StepRef
from control_plane.core.executions.execution_state import ClosingReason, ExecutionStatus
from control_plane.core.executions.step_state import StepStatus
from control_plane.core.scheduling.domain import Requirement


@dataclass(frozen=True, slots=True)
class StepChange:
    """A step instance as it is to be from now on; every field is written as it stands.

    `from_status` is None for an instance that is to be created. It equals `to_status` when
    only other fields change (a for_each step that has got its list). `place` is the step's
    position in the definition.
    """

    ref: StepRef
    place: int
    from_status: StepStatus | None
    to_status: StepStatus
    attempt_number: int
    progress_percent: int
    input_json: str
    output_json: str
    failure_json: str
    deadline_at: datetime | None
    ready_at: datetime | None


@dataclass(frozen=True, slots=True)
class RequestCreation:
    """A scheduling request to store, unless one for this attempt is there already."""

    ref: StepRef
    attempt_number: int
    requirement: Requirement
    available_at: datetime
    limits_json: str = ""
    """The slots that it needs, as stored; empty for none."""


@dataclass(frozen=True, slots=True)
class RequestVoiding:
    """A scheduling request that nothing may be dispatched for any more."""

    ref: StepRef
    attempt_number: int


@dataclass(frozen=True, slots=True)
class AttemptStop:
    """A live attempt to stop: set its stop reason and send its node the command."""

    ref: StepRef
    attempt_number: int
    reason: StopReason


@dataclass(frozen=True, slots=True)
class PlannedEvent:
    """An event to append, with the status and progress that it tells of."""

    type: ExecutionEventType
    status: ExecutionStatus
    progress_percent: int


@dataclass(frozen=True, slots=True)
class ExecutionChange:
    """The execution as it is to be from now on.

    `path` holds the statuses to enter, in order, each adding 1 to the version; a rise of
    progress without one adds 1 too.
    """

    path: tuple[ExecutionStatus, ...]
    status: ExecutionStatus
    closing_as: ClosingReason | None
    progress_percent: int
    output_json: str
    failure_json: str


@dataclass(frozen=True, slots=True)
class Decision:
    """All that follows from the facts at this moment; applying it and deciding again gives none.

    `next_due_at` is when to look again without being woken, None when only a wake-up matters.
    """

    creates: tuple[StepChange, ...] = ()
    moves: tuple[StepChange, ...] = ()
    requests: tuple[RequestCreation, ...] = ()
    voids: tuple[RequestVoiding, ...] = ()
    stops: tuple[AttemptStop, ...] = ()
    execution: ExecutionChange | None = None
    events: tuple[PlannedEvent, ...] = ()
    next_due_at: datetime | None = None

    @property
    def changes_nothing(self) -> bool:
        """Whether there is nothing to write but the next due time."""
        return not (
            self.creates
            or self.moves
            or self.requests
            or self.voids
            or self.stops
            or self.execution
            or self.events
        )
