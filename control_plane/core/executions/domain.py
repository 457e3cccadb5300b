"""The identities of executions, and the events that tell their story outside."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, NewType, assert_never

from control_plane.core.executions.execution_state import ExecutionStatus

TaskId = NewType("TaskId", str)
ExecutionId = NewType("ExecutionId", str)
StepId = NewType("StepId", str)
AttemptId = NewType("AttemptId", str)
StepKey = NewType("StepKey", str)

NO_ITEM = -1
"""The item index of a step without for_each, and of the step that holds its items."""


class StepRef(NamedTuple):
    """One step instance inside its execution; items of a for_each step count from 0.

    A tuple, since the engine looks up thousands of them and tuples hash quickly.
    """

    step_key: StepKey
    item_index: int = NO_ITEM

    def __str__(self) -> str:
        return (
            self.step_key if self.item_index == NO_ITEM else f"{self.step_key}[{self.item_index}]"
        )


class ExecutionEventType(StrEnum):
    """The events of an execution; each has a sequence and is delivered."""

    CREATED = "execution.created"
    STARTED = "execution.started"
    PROGRESS = "execution.progress"
    CANCELING = "execution.canceling"
    SUCCEEDED = "execution.succeeded"
    FAILED = "execution.failed"
    TIMED_OUT = "execution.timed_out"
    CANCELED = "execution.canceled"


def event_for(status: ExecutionStatus) -> ExecutionEventType | None:
    """Return the event that tells of entering `status`; None for QUEUED, which tells nothing."""
    match status:
        case ExecutionStatus.QUEUED:
            return None
        case ExecutionStatus.CREATED:
            return ExecutionEventType.CREATED
        case ExecutionStatus.RUNNING:
            return ExecutionEventType.STARTED
        case ExecutionStatus.CANCELING:
            return ExecutionEventType.CANCELING
        case ExecutionStatus.SUCCEEDED:
            return ExecutionEventType.SUCCEEDED
        case ExecutionStatus.FAILED:
            return ExecutionEventType.FAILED
        case ExecutionStatus.TIMED_OUT:
            return ExecutionEventType.TIMED_OUT
        case ExecutionStatus.CANCELED:
            return ExecutionEventType.CANCELED
        case _:
            assert_never(status)


@dataclass(frozen=True, slots=True)
class ExecutionEvent:
    """All that an event says of its execution, as it stands right after the change.

    `sequence` counts from 1 within the execution, `run` is the execution's number within
    its task. `output_json` and `failure_json` are JSON text, empty while there is none.
    """

    application_id: str
    task_id: TaskId
    execution_id: ExecutionId
    external_ref: str
    sequence: int
    run: int
    status: ExecutionStatus
    progress: int
    output_json: str = ""
    failure_json: str = ""

    def data_json(self) -> str:
        """Return the payload as JSON text; documents are spliced in unread, so exact."""
        head = {
            "application_id": self.application_id,
            "task_id": self.task_id,
            "execution_id": self.execution_id,
            "external_ref": self.external_ref,
            "sequence": self.sequence,
            "run": self.run,
            "status": self.status.value,
            "progress": self.progress,
        }
        text = json.dumps(head, ensure_ascii=False, separators=(",", ":"))
        output, failure = self.output_json or "null", self.failure_json or "null"
        return f'{text[:-1]},"output":{output},"failure":{failure}}}'
