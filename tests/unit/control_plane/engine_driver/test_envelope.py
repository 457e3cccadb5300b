"""The envelope that is delivered."""

import json
from datetime import UTC, datetime, timedelta, timezone

from control_plane.core.executions.domain import (
    ExecutionEvent,
    ExecutionEventType,
    ExecutionId,
    TaskId,
)
from control_plane.core.executions.envelope import envelope
from control_plane.core.executions.execution_state import ExecutionStatus

_EVENT = ExecutionEvent(
    application_id="app",
    task_id=TaskId("task"),
    execution_id=ExecutionId("execution"),
    external_ref='order "7" – 订单',
    sequence=3,
    run=2,
    status=ExecutionStatus.SUCCEEDED,
    progress=100,
    output_json='{"big": 123456789012345678901234567890, "small":1.10}',
)


def test_it_is_a_cloud_event_about_its_execution() -> None:
    """Names what happened, to which execution, under which id, in UTC."""
    time = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=timezone(timedelta(hours=8)))

    document = json.loads(envelope(_EVENT, ExecutionEventType.SUCCEEDED, "event", time))

    data = document.pop("data")
    assert document == {
        "specversion": "1.0",
        "id": "event",
        "source": "tdp://control-plane",
        "type": "execution.succeeded",
        "subject": "execution",
        "time": "2026-03-03T21:06:07.000089Z",
        "datacontenttype": "application/json",
    }
    assert (data["sequence"], data["run"], data["status"]) == (3, 2, "SUCCEEDED")
    assert data["external_ref"] == 'order "7" – 订单'
    assert data["failure"] is None


def test_documents_are_spliced_in_unread() -> None:
    """Keeps numbers that no float could hold, to the letter."""
    text = envelope(_EVENT, ExecutionEventType.SUCCEEDED, "event", datetime(2026, 1, 1, tzinfo=UTC))

    assert '"output":{"big": 123456789012345678901234567890, "small":1.10}' in text
