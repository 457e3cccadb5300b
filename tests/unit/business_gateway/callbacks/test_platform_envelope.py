"""What the control plane writes is what the gateway reads: envelopes, statuses and event types."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from business_gateway.core.callbacks.envelope import parse_envelope
from business_gateway.core.orders.state_machine import PLATFORM_STATUSES
from control_plane.core.executions.domain import (
    ExecutionEvent,
    ExecutionEventType,
    ExecutionId,
    TaskId,
    event_for,
)
from control_plane.core.executions.envelope import envelope
from control_plane.core.executions.execution_state import ExecutionStatus
from control_plane.core.executions.failures import Failure

APPLICATION = "0190cccc-0000-7000-8000-000000000001"
EVENT = ExecutionEvent(
    application_id=APPLICATION,
    task_id=TaskId("0190cccc-0000-7000-8000-000000000002"),
    execution_id=ExecutionId("0190cccc-0000-7000-8000-000000000003"),
    external_ref="0190cccc-0000-7000-8000-000000000004",
    sequence=3,
    run=2,
    status=ExecutionStatus.FAILED,
    progress=40,
    output_json='{"n":1.10}',
    failure_json=Failure("ARCHIVE_ENCRYPTED", "加密", "clean", retryable=True).to_json(),
)
EVENT_ID = "0190cccc-0000-7000-8000-000000000005"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_an_event_of_the_platform_is_read_exactly() -> None:
    """Every field arrives, the documents byte for byte."""
    text = envelope(EVENT, ExecutionEventType.FAILED, EVENT_ID, NOW)
    event = parse_envelope(text.encode(), APPLICATION)
    assert (event.event_id, event.task_id, event.execution_id) == (
        EVENT_ID, EVENT.task_id, EVENT.execution_id,
    )  # fmt: skip
    assert (event.run, event.sequence, event.progress_percent) == (2, 3, 40)
    assert (event.external_ref, event.platform_status) == (EVENT.external_ref, "FAILED")
    assert event.output_json == EVENT.output_json
    assert event.diagnosis_json == EVENT.failure_json
    assert event.diagnosis == "ARCHIVE_ENCRYPTED (step clean): 加密"


def test_every_status_of_the_platform_has_a_meaning() -> None:
    """The known set is the platform's own."""
    assert set(ExecutionStatus) == PLATFORM_STATUSES


@pytest.mark.parametrize("status", ExecutionStatus)
def test_an_event_without_its_status_is_read_the_same(status: ExecutionStatus) -> None:
    """The type alone implies the status that the platform would have written."""
    kind = event_for(status)
    if kind is None:
        return
    text = envelope(replace(EVENT, status=status), kind, EVENT_ID, NOW)
    silent = text.replace(f'"status":"{status}"', '"status":""')
    assert silent != text
    assert parse_envelope(silent.encode(), APPLICATION).platform_status == status
