"""Views of tasks, executions, steps and attempts as messages of the contract."""

import json
from collections.abc import Mapping
from typing import Any, Final

from control_plane.core.executions.views import (
    AttemptView,
    EventView,
    ExecutionView,
    StepView,
    TaskView,
    TimelineView,
)
from control_plane.core.scheduling.explaining import Explanation
from foundation.grpc.times import timestamp
from tdp.control.v1 import task_pb2 as pb
from tdp.control.v1 import task_service_pb2 as service_pb

_CAUSES_MAX: Final = 10


def task(view: TaskView) -> pb.Task:
    """Translate a task."""
    return pb.Task(
        task_id=view.task_id,
        application_id=view.application_id,
        name=view.name,
        external_ref=view.external_ref,
        workflow_name=view.workflow_name,
        workflow_version=view.workflow_version,
        priority=view.priority,
        input_json=view.input_json,
        callback_url=view.callback_url,
        labels=view.labels,
        current_execution=execution(view.current),
        create_time=timestamp(view.created_at),
    )


def execution(view: ExecutionView) -> pb.Execution:
    """Translate an execution."""
    return pb.Execution(
        execution_id=view.execution_id,
        task_id=view.task_id,
        run=view.run,
        status=execution_status(view.status),
        closing_as=execution_status(view.closing_as),
        progress_percent=view.progress_percent,
        version=view.version,
        last_sequence=view.last_sequence,
        paused=view.paused,
        output_json=view.output_json,
        failure=failure_of(view.failure_json),
        create_time=timestamp(view.created_at),
        start_time=timestamp(view.started_at),
        complete_time=timestamp(view.completed_at),
        waiting_for=view.waiting_for,
    )


def event(view: EventView) -> pb.ExecutionEvent:
    """Translate an execution event."""
    return pb.ExecutionEvent(
        event_id=view.event_id,
        execution_id=view.execution_id,
        sequence=view.sequence,
        type=view.type,
        status=execution_status(view.status),
        progress_percent=view.progress_percent,
        envelope_json=view.envelope,
        occur_time=timestamp(view.occurred_at),
    )


def step(view: StepView) -> pb.Step:
    """Translate a step instance."""
    return pb.Step(
        execution_id=view.execution_id,
        step_key=view.step_key,
        item_index=view.item_index,
        status=pb.StepStatus.Value(f"STEP_STATUS_{view.status}"),
        attempt_number=view.attempt_number,
        progress_percent=view.progress_percent,
        input_json=view.input_json,
        output_json=view.output_json,
        failure=failure_of(view.failure_json),
        ready_time=timestamp(view.ready_at),
        start_time=timestamp(view.started_at),
        complete_time=timestamp(view.completed_at),
        capability=view.capability,
        capability_version=view.capability_version,
        waiting_for=view.waiting_for,
        reused_from_execution_id=view.reused_from_execution_id,
    )


def attempt(view: AttemptView) -> pb.Attempt:
    """Translate an attempt."""
    return pb.Attempt(
        attempt_id=view.attempt_id,
        execution_id=view.execution_id,
        step_key=view.step_key,
        item_index=view.item_index,
        number=view.number,
        node_id=view.node_id,
        lease_version=view.lease_version,
        status=pb.AttemptStatus.Value(f"ATTEMPT_STATUS_{view.status}"),
        progress_percent=view.progress_percent,
        stop_reason=view.stop_reason,
        failure=failure_of(view.failure_json),
        lease_expire_time=timestamp(view.lease_expires_at),
        dispatch_time=timestamp(view.dispatched_at),
        accept_time=timestamp(view.accepted_at),
        complete_time=timestamp(view.completed_at),
        usage=_usage(view.usage_json),
        log_tail=view.log_tail,
    )


def timeline_entry(view: TimelineView) -> pb.TimelineEntry:
    """Translate a timeline entry."""
    return pb.TimelineEntry(
        entry_id=view.entry_id,
        execution_id=view.execution_id,
        step_key=view.step_key,
        item_index=view.item_index,
        attempt_id=view.attempt_id,
        type=view.type,
        actor=view.actor,
        detail_json=view.detail_json,
        occur_time=timestamp(view.occurred_at),
    )


def explanation(found: Explanation) -> service_pb.ExplainSchedulingResponse:
    """Translate the explanation of a step."""
    return service_pb.ExplainSchedulingResponse(
        summary=found.summary,
        nodes=[
            service_pb.NodeQualification(
                node_id=one.node_id,
                node_name=one.name,
                qualified=not one.reasons,
                score=one.points,
                reasons=one.reasons,
            )
            for one in found.nodes
        ],
        never_satisfiable=found.never,
    )


def execution_status(status: str) -> pb.ExecutionStatus.ValueType:
    """Translate a status; unspecified for an empty one."""
    return pb.ExecutionStatus.Value(f"EXECUTION_STATUS_{status or 'UNSPECIFIED'}")


def failure_of(failure_json: str) -> pb.Failure | None:
    """Translate a stored failure; None for an empty one."""
    return _failure(json.loads(failure_json), _CAUSES_MAX) if failure_json else None


def _failure(document: Mapping[str, Any], causes_left: int) -> pb.Failure:
    cause = document.get("cause")
    return pb.Failure(
        reason=document.get("reason", ""),
        message=document.get("message", ""),
        retryable=document.get("retryable", False),
        step_key=document.get("step_key", ""),
        cause=_failure(cause, causes_left - 1) if cause and causes_left else None,
    )


def _usage(usage_json: str) -> pb.ResourceUsage | None:
    if not usage_json:
        return None
    usage = json.loads(usage_json)
    return pb.ResourceUsage(
        cpu_time_ms=usage.get("cpu_time_ms", 0),
        memory_bytes_max=usage.get("memory_bytes_max", 0),
        duration_ms=usage.get("duration_ms", 0),
    )
