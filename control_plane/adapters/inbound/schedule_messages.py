"""Schedules and their runs as messages of the contract, and back."""

from datetime import timedelta

from control_plane.core.schedules.domain import ScheduledTask
from control_plane.core.schedules.ports import RunView, ScheduleView
from control_plane.core.schedules.specification import SpecAsSent
from foundation.errors import InvalidArgumentError
from foundation.grpc.times import duration, timestamp
from tdp.control.v1 import schedule_service_pb2 as pb

_NANOSECONDS_PER_US = 1_000


def spec_as_sent(message: pb.ScheduleSpec) -> SpecAsSent:
    """Read a spec; an overlap policy that is not known is refused."""
    overlap = message.overlap_policy
    if overlap not in pb.OverlapPolicy.values():
        raise InvalidArgumentError.of_field("spec.overlap_policy", f"{overlap} is not known")
    given = overlap != pb.OVERLAP_POLICY_UNSPECIFIED
    catch_up = None
    if message.HasField("catch_up_window"):
        # Not by ToTimedelta, which raises for what is out of its range.
        microseconds = message.catch_up_window.ToNanoseconds() // _NANOSECONDS_PER_US
        catch_up = timedelta(microseconds=microseconds)
    task = message.task
    return SpecAsSent(
        cron=message.cron,
        time_zone=message.time_zone,
        overlap=pb.OverlapPolicy.Name(overlap).removeprefix("OVERLAP_POLICY_") if given else "",
        catch_up=catch_up,
        task=ScheduledTask(
            name=task.name,
            external_ref=task.external_ref,
            workflow_name=task.workflow_name,
            workflow_version=task.workflow_version,
            input_json=task.input_json,
            due_time_key=task.due_time_key,
            priority=task.priority,
            callback_url=task.callback_url,
            step_constraints_json=task.step_constraints_json,
            labels=dict(task.labels),
        ),
    )


def schedule(view: ScheduleView) -> pb.Schedule:
    """Translate a schedule."""
    spec, task = view.spec, view.spec.task
    return pb.Schedule(
        schedule_id=view.schedule_id,
        application_id=view.application_id,
        name=view.name,
        spec=pb.ScheduleSpec(
            cron=spec.calendar.cron,
            time_zone=spec.calendar.time_zone,
            overlap_policy=pb.OverlapPolicy.Value(f"OVERLAP_POLICY_{spec.overlap}"),
            catch_up_window=duration(spec.catch_up.total_seconds()),
            task=pb.ScheduledTask(
                name=task.name,
                external_ref=task.external_ref,
                workflow_name=task.workflow_name,
                workflow_version=task.workflow_version,
                input_json=task.input_json,
                due_time_key=task.due_time_key,
                priority=task.priority,
                callback_url=task.callback_url,
                step_constraints_json=task.step_constraints_json,
                labels=task.labels,
            ),
        ),
        version=view.version,
        paused=view.paused,
        pause_reason=view.pause_reason,
        paused_by=view.paused_by,
        next_time=timestamp(view.next_time),
        last_run=None if view.last_run is None else run(view.last_run),
        create_time=timestamp(view.created_at),
        update_time=timestamp(view.updated_at),
        delete_time=timestamp(view.deleted_at),
    )


def run(view: RunView) -> pb.ScheduleRun:
    """Translate a run."""
    return pb.ScheduleRun(
        run_id=view.run_id,
        schedule_id=view.schedule_id,
        due_time=timestamp(view.due_at),
        triggered=view.triggered,
        status=pb.ScheduleRunStatus.Value(f"SCHEDULE_RUN_STATUS_{view.status}"),
        reason=view.reason,
        task_id=view.task_id,
        failure_count=view.failure_count,
        next_attempt_time=timestamp(view.available_at),
        settle_time=timestamp(view.settled_at),
    )
