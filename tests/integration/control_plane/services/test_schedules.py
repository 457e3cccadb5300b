"""ScheduleService over a whole replica: success, each documented error, replays, two tenants."""

from collections.abc import Awaitable
from datetime import UTC, datetime

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from foundation.grpc.times import moment_of
from tdp.control.v1 import mutation_pb2, task_service_pb2
from tdp.control.v1 import schedule_service_pb2 as pb
from tdp.control.v1 import workflow_service_pb2 as workflow_pb
from tests.fixtures.eventually import eventually
from tests.integration.control_plane.replica import Metadata, Replica
from tests.integration.control_plane.services.errors import refused

_REPLAYED = mutation_pb2.MUTATION_OUTCOME_REPLAYED
_NOWHERE = "0190aaaa-0000-7000-8000-00000000dead"


def _spec(**changes: object) -> pb.ScheduleSpec:
    task = pb.ScheduledTask(
        workflow_name="two-steps", input_json='{"x":1}', due_time_key="due", labels={"team": "a"}
    )
    fields: dict[str, object] = {
        "cron": "0 3 1 1 *",
        "time_zone": "Europe/Berlin",
        "overlap_policy": pb.OVERLAP_POLICY_SKIP,
        "task": task,
    }
    return pb.ScheduleSpec(**(fields | changes))  # type: ignore[arg-type]


def _new(key: str, name: str = "nightly", **changes: object) -> pb.CreateScheduleRequest:
    return pb.CreateScheduleRequest(idempotency_key=key, name=name, spec=_spec(**changes))


@pytest.fixture
async def shop(replica: Replica) -> Metadata:
    """The key of an application, with a workflow to run."""
    await replica.publish()
    _, key = await replica.register("shop")
    return key


async def test_a_schedule_is_made_shown_changed_and_deleted_once(
    replica: Replica, shop: Metadata
) -> None:
    """Each act takes effect once, a replay answers the same, and a deleted name is free again."""
    stub = replica.schedules
    made = await stub.CreateSchedule(_new("c"), metadata=shop)
    again = await stub.CreateSchedule(_new("c"), metadata=shop)
    schedule_id = made.schedule.schedule_id
    assert again.schedule == made.schedule
    assert again.outcome == _REPLAYED
    assert made.schedule.spec.task.name == "nightly"
    assert made.schedule.spec.catch_up_window == Duration(seconds=3600)
    assert moment_of(made.schedule.next_time).replace(tzinfo=UTC).hour == 2

    change = pb.UpdateScheduleRequest(
        idempotency_key="u", schedule_id=schedule_id, spec=_spec(time_zone=""), expected_version=1
    )
    changed = await stub.UpdateSchedule(change, metadata=shop)
    assert (changed.schedule.version, changed.schedule.spec.time_zone) == (2, "UTC")
    replayed = await stub.UpdateSchedule(change, metadata=shop)
    assert (replayed.schedule.version, replayed.outcome) == (2, _REPLAYED)
    assert moment_of(changed.schedule.next_time).hour == 3

    pause = pb.PauseScheduleRequest(idempotency_key="p", schedule_id=schedule_id, reason="holiday")
    resume = pb.ResumeScheduleRequest(idempotency_key="r", schedule_id=schedule_id)
    paused = (await stub.PauseSchedule(pause, metadata=shop)).schedule
    assert (paused.paused, paused.pause_reason) == (True, "holiday")
    assert paused.paused_by.startswith("application:")
    assert not paused.HasField("next_time")
    assert (await stub.PauseSchedule(pause, metadata=shop)).outcome == _REPLAYED
    resumed = (await stub.ResumeSchedule(resume, metadata=shop)).schedule
    assert (resumed.paused, resumed.HasField("next_time")) == (False, True)
    assert (await stub.ResumeSchedule(resume, metadata=shop)).outcome == _REPLAYED

    delete = pb.DeleteScheduleRequest(idempotency_key="d", schedule_id=schedule_id)
    await stub.DeleteSchedule(delete, metadata=shop)
    assert (await stub.DeleteSchedule(delete, metadata=shop)).outcome == _REPLAYED
    gone = await refused(
        stub.GetSchedule(pb.GetScheduleRequest(schedule_id=schedule_id), metadata=shop)
    )
    assert gone[:2] == (grpc.StatusCode.NOT_FOUND, "SCHEDULE_NOT_FOUND")
    assert (await stub.CreateSchedule(_new("c"), metadata=shop)).schedule.HasField("delete_time")
    await stub.CreateSchedule(_new("c2"), metadata=shop)


async def test_wrong_requests_are_refused_with_their_reasons(
    replica: Replica, shop: Metadata
) -> None:
    """Each documented error of CreateSchedule and UpdateSchedule, and nothing stored."""
    stub = replica.schedules
    task = pb.ScheduledTask(workflow_name="two-steps", input_json='{"x":1}')
    cases = [
        (_new("1", cron="61 * * * *"), "INVALID_ARGUMENT", "SCHEDULE_INVALID"),
        (_new("2", time_zone="Mars/Base"), "INVALID_ARGUMENT", "SCHEDULE_INVALID"),
        (_new("3", overlap_policy=0), "INVALID_ARGUMENT", "SCHEDULE_INVALID"),
        (_new("4", overlap_policy=99), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        (_new("5", catch_up_window=Duration(seconds=-5)), "INVALID_ARGUMENT", "SCHEDULE_INVALID"),
        (_new("6", name=" "), "INVALID_ARGUMENT", "SCHEDULE_INVALID"),
        (_new("7", task=pb.ScheduledTask(workflow_name="none")), "NOT_FOUND", "WORKFLOW_NOT_FOUND"),
        (_new("8", task=pb.ScheduledTask(workflow_name="two-steps")), "INVALID_ARGUMENT", ""),
        (_new(""), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
    ]
    for request, code, reason in cases:
        found = await refused(stub.CreateSchedule(request, metadata=shop))
        assert found[0].name == code, request
        assert reason in ("", found[1]), request
    assert not (await stub.ListSchedules(pb.ListSchedulesRequest(), metadata=shop)).schedules

    made = await stub.CreateSchedule(_new("c", task=task), metadata=shop)
    taken = await refused(stub.CreateSchedule(_new("c2"), metadata=shop))
    reused = await refused(stub.CreateSchedule(_new("c", "other"), metadata=shop))
    stale = await refused(
        stub.UpdateSchedule(
            pb.UpdateScheduleRequest(
                idempotency_key="u",
                schedule_id=made.schedule.schedule_id,
                spec=_spec(),
                expected_version=7,
            ),
            metadata=shop,
        )
    )
    assert taken[:2] == (grpc.StatusCode.ALREADY_EXISTS, "SCHEDULE_NAME_TAKEN")
    assert taken[2]["existing_id"] == made.schedule.schedule_id
    assert reused[:2] == (grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_KEY_REUSED")
    assert stale[:2] == (grpc.StatusCode.ABORTED, "SCHEDULE_CHANGED")

    await replica.workflows.DeprecateWorkflow(
        workflow_pb.DeprecateWorkflowRequest(name="two-steps", version="1"), metadata=replica.admin
    )
    exact = pb.ScheduledTask(workflow_name="two-steps", workflow_version="1", input_json='{"x":1}')
    old = await refused(stub.CreateSchedule(_new("o", "old", task=exact), metadata=shop))
    replay = await stub.CreateSchedule(_new("c", task=task), metadata=shop)
    assert old[:2] == (grpc.StatusCode.FAILED_PRECONDITION, "WORKFLOW_DEPRECATED")
    assert replay.outcome == _REPLAYED


async def test_a_schedule_is_its_applications_own(replica: Replica, shop: Metadata) -> None:
    """Another application finds nothing by any RPC; an operator acts for the one it names."""
    stub = replica.schedules
    rival_id, rival = await replica.register("rival")
    made = await stub.CreateSchedule(_new("c"), metadata=shop)
    schedule_id = made.schedule.schedule_id
    named = {"idempotency_key": "x", "schedule_id": schedule_id}
    calls: list[Awaitable[object]] = [
        stub.GetSchedule(pb.GetScheduleRequest(schedule_id=schedule_id), metadata=rival),
        stub.UpdateSchedule(
            pb.UpdateScheduleRequest(idempotency_key="x", schedule_id=schedule_id, spec=_spec()),
            metadata=rival,
        ),
        stub.PauseSchedule(pb.PauseScheduleRequest(**named), metadata=rival),
        stub.ResumeSchedule(pb.ResumeScheduleRequest(**named), metadata=rival),
        stub.TriggerSchedule(pb.TriggerScheduleRequest(**named), metadata=rival),
        stub.DeleteSchedule(pb.DeleteScheduleRequest(**named), metadata=rival),
        stub.ListScheduleRuns(pb.ListScheduleRunsRequest(schedule_id=schedule_id), metadata=rival),
        stub.ListUpcomingTimes(
            pb.ListUpcomingTimesRequest(schedule_id=schedule_id), metadata=rival
        ),
        stub.GetSchedule(pb.GetScheduleRequest(schedule_id=_NOWHERE), metadata=shop),
    ]
    assert {(await refused(one))[0] for one in calls} == {grpc.StatusCode.NOT_FOUND}
    foreign = pb.CreateScheduleRequest(
        idempotency_key="f", name="f", spec=_spec(), application_id=rival_id
    )
    assert (await refused(stub.CreateSchedule(foreign, metadata=shop)))[0].name == "NOT_FOUND"
    assert not (await stub.ListSchedules(pb.ListSchedulesRequest(), metadata=rival)).schedules

    await stub.CreateSchedule(foreign, metadata=replica.admin)
    nobody = await refused(stub.CreateSchedule(_new("n"), metadata=replica.admin))
    assert nobody[:2] == (grpc.StatusCode.INVALID_ARGUMENT, "SCHEDULE_INVALID")
    everyone = await stub.ListSchedules(
        pb.ListSchedulesRequest(page_size=1), metadata=replica.admin
    )
    second = await stub.ListSchedules(
        pb.ListSchedulesRequest(page_size=1, page_token=everyone.next_page_token),
        metadata=replica.admin,
    )
    rivals = await stub.ListSchedules(
        pb.ListSchedulesRequest(application_id=rival_id, name="f"), metadata=replica.admin
    )
    assert [one.name for one in (*everyone.schedules, *second.schedules)] == ["f", "nightly"]
    assert not second.next_page_token
    assert [one.application_id for one in rivals.schedules] == [rival_id]


async def test_a_due_time_and_a_trigger_create_tasks(replica: Replica, shop: Metadata) -> None:
    """Each creates a task with its due time in input and labels; a replay adds none."""
    stub = replica.schedules
    allow = _spec(overlap_policy=pb.OVERLAP_POLICY_ALLOW, cron="* * * * *")
    made = await stub.CreateSchedule(
        pb.CreateScheduleRequest(idempotency_key="c", name="n", spec=allow), metadata=shop
    )
    schedule_id = made.schedule.schedule_id
    trigger = pb.TriggerScheduleRequest(idempotency_key="t", schedule_id=schedule_id)
    triggered = await stub.TriggerSchedule(trigger, metadata=shop)
    again = await stub.TriggerSchedule(trigger, metadata=shop)
    assert again.run.run_id == triggered.run.run_id
    assert again.outcome == _REPLAYED
    await replica.plane.database.fetch(
        "update schedules set next_time = date_trunc('minute', tdp_now())"
    )
    replica.plane.hints.schedules.set()

    async def started() -> list[pb.ScheduleRun]:
        request = pb.ListScheduleRunsRequest(schedule_id=schedule_id)
        runs = list((await stub.ListScheduleRuns(request, metadata=shop)).runs)
        done = [one for one in runs if one.status == pb.SCHEDULE_RUN_STATUS_STARTED]
        return done if len(done) >= 2 else []

    runs = await eventually(started)
    assert {one.triggered for one in runs} == {True, False}
    tasks = await replica.tasks.ListTasks(
        task_service_pb2.ListTasksRequest(filter=f'labels.tdp.schedule = "{schedule_id}"'),
        metadata=shop,
    )
    by_id = {one.task_id: one for one in tasks.tasks}
    for run in runs:
        task = by_id[run.task_id]
        due = task.labels["tdp.due"]
        assert datetime.fromisoformat(due) == moment_of(run.due_time)
        assert task.input_json == f'{{"due":"{due}","x":1}}'
    first = await stub.ListScheduleRuns(
        pb.ListScheduleRunsRequest(schedule_id=schedule_id, page_size=1), metadata=shop
    )
    second = await stub.ListScheduleRuns(
        pb.ListScheduleRunsRequest(
            schedule_id=schedule_id, page_size=1, page_token=first.next_page_token
        ),
        metadata=shop,
    )
    assert first.runs[0].run_id != second.runs[0].run_id
    shown = await stub.GetSchedule(pb.GetScheduleRequest(schedule_id=schedule_id), metadata=shop)
    assert shown.schedule.last_run.run_id


async def test_upcoming_times_are_told(replica: Replica, shop: Metadata) -> None:
    """Of a schedule, or of an expression that is tried out; wrong questions are refused."""
    stub = replica.schedules
    made = await stub.CreateSchedule(_new("c"), metadata=shop)
    own = await stub.ListUpcomingTimes(
        pb.ListUpcomingTimesRequest(schedule_id=made.schedule.schedule_id, count=2), metadata=shop
    )
    tried = await stub.ListUpcomingTimes(
        pb.ListUpcomingTimesRequest(cron="0 12 * * 1-5", time_zone="Asia/Tokyo"), metadata=shop
    )
    assert [one.local_time[4:] for one in own.times] == ["-01-01T03:00:00+01:00"] * 2
    assert len(tried.times) == 10
    assert tried.times[0].local_time.endswith("T12:00:00+09:00")
    for wrong in (
        pb.ListUpcomingTimesRequest(),
        pb.ListUpcomingTimesRequest(cron="x"),
        pb.ListUpcomingTimesRequest(cron="* * * * *", count=101),
    ):
        code, _, _ = await refused(stub.ListUpcomingTimes(wrong, metadata=shop))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
