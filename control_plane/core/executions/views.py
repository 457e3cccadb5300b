"""What is shown of tasks and their executions; read, never changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ExecutionView:
    """One run of a task; documents are JSON text, empty where there is none."""

    execution_id: str
    task_id: str
    application_id: str
    run: int
    status: str
    closing_as: str
    progress_percent: int
    version: int
    last_sequence: int
    paused: bool
    output_json: str
    failure_json: str
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    waiting_for: str


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task with its current execution."""

    task_id: str
    application_id: str
    name: str
    external_ref: str
    workflow_name: str
    workflow_version: str
    priority: int
    input_json: str
    callback_url: str
    labels: Mapping[str, str]
    created_at: datetime
    current: ExecutionView


@dataclass(frozen=True, slots=True)
class EventView:
    """One execution event with the envelope that is delivered."""

    event_id: str
    execution_id: str
    sequence: int
    type: str
    status: str
    progress_percent: int
    envelope: str
    occurred_at: datetime


@dataclass(frozen=True, slots=True)
class StepView:
    """One step instance."""

    execution_id: str
    step_key: str
    item_index: int
    position: int
    status: str
    attempt_number: int
    progress_percent: int
    capability: str
    capability_version: str
    input_json: str
    output_json: str
    failure_json: str
    ready_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    waiting_for: str
    reused_from_execution_id: str


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt of a step instance."""

    attempt_id: str
    execution_id: str
    step_key: str
    item_index: int
    number: int
    node_id: str
    lease_version: int
    status: str
    progress_percent: int
    stop_reason: str
    failure_json: str
    usage_json: str
    log_tail: str
    lease_expires_at: datetime | None
    dispatched_at: datetime
    accepted_at: datetime | None
    completed_at: datetime | None


@dataclass(frozen=True, slots=True)
class TimelineView:
    """One fact of the timeline."""

    entry_id: int
    execution_id: str
    step_key: str
    item_index: int
    attempt_id: str
    type: str
    actor: str
    detail_json: str
    occurred_at: datetime
