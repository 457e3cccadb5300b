"""What execution events and failure records say, in their exact JSON."""

import json

import pytest

from control_plane.core.errors import DocumentInvalidError
from control_plane.core.executions.domain import (
    ExecutionEvent,
    ExecutionEventType,
    ExecutionId,
    StepKey,
    StepRef,
    TaskId,
    event_for,
)
from control_plane.core.executions.execution_state import ExecutionStatus
from control_plane.core.executions.failures import Failure


def _event(output_json: str = "", failure_json: str = "") -> ExecutionEvent:
    return ExecutionEvent(
        application_id="app",
        task_id=TaskId("task"),
        execution_id=ExecutionId("execution"),
        external_ref="订单 7",
        sequence=3,
        run=2,
        status=ExecutionStatus.RUNNING,
        progress=40,
        output_json=output_json,
        failure_json=failure_json,
    )


def test_an_event_carries_the_whole_state() -> None:
    """The payload names owner, run, sequence, status and progress, and nulls what is not there."""
    assert json.loads(_event().data_json()) == {
        "application_id": "app",
        "task_id": "task",
        "execution_id": "execution",
        "external_ref": "订单 7",
        "sequence": 3,
        "run": 2,
        "status": "RUNNING",
        "progress": 40,
        "output": None,
        "failure": None,
    }


def test_documents_pass_through_an_event_unread() -> None:
    """Numbers keep the digits in which they were written."""
    text = _event(output_json='{"n":9007199254740993,"x":1.10}').data_json()
    assert '"output":{"n":9007199254740993,"x":1.10}' in text


def test_every_status_but_queued_has_its_event() -> None:
    """Each state that is told outside has one event type, and no two share one."""
    events = {status: event_for(status) for status in ExecutionStatus}
    assert events.pop(ExecutionStatus.QUEUED) is None
    assert set(events.values()) == set(ExecutionEventType) - {ExecutionEventType.PROGRESS}


def test_a_failure_survives_its_json() -> None:
    """The record with its cause reads back as it was."""
    cause = Failure("IMAGE_UNREADABLE", "a.png 损坏", retryable=True)
    failure = Failure("STEP_FAILED", "步骤失败", "mark", 4, cause=cause)
    assert Failure.from_json(failure.to_json()) == failure


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"reason":1}', "null"])
def test_what_is_no_failure_record_is_refused(text: str) -> None:
    """A damaged record raises a typed error instead of a KeyError."""
    with pytest.raises(DocumentInvalidError, match="no failure record"):
        Failure.from_json(text)


def test_a_step_reference_reads_well() -> None:
    """Items are shown with their index, plain steps without."""
    assert str(StepRef(StepKey("mark"))) == "mark"
    assert str(StepRef(StepKey("mark"), 3)) == "mark[3]"
