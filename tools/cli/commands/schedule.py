"""`tdp schedule`: tasks that the calendar creates."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console

from foundation.errors import InvalidArgumentError, NotFoundError
from foundation.ids import is_id
from tdp.control.v1 import schedule_service_pb2 as schedules
from tdp.control.v1 import schedule_service_pb2_grpc
from tools.cli.connection import Connection, ControlPlane
from tools.cli.options import (
    Json,
    Key,
    Limit,
    document_of,
    duration_of,
    group,
    key_of,
    rows_of,
    run,
)
from tools.cli.output import as_document, moment, show
from tools.cli.schedule_views import render_answer, render_list, render_runs, render_schedule

app = group("Create tasks by the calendar: cron expressions, time zones, overlap, catch-up.")
Stub = schedule_service_pb2_grpc.ScheduleServiceStub


class Overlap(StrEnum):
    """What happens while an earlier task is not over."""

    ALLOW = "allow"
    SKIP = "skip"
    BUFFER_ONE = "buffer-one"
    CANCEL_OTHER = "cancel-other"


Which = Annotated[str, typer.Argument(help="The schedule's id, or its name.")]
Cron = Annotated[
    str | None, typer.Option("--cron", help='Minute hour day month weekday, such as "0 6 * * 1-5".')
]
Zone = Annotated[str | None, typer.Option("--time-zone", help="IANA name; empty means UTC.")]
WorkflowName = Annotated[str | None, typer.Option("--workflow", help="The workflow to run.")]
WorkflowVersion = Annotated[
    str | None, typer.Option("--workflow-version", help="Empty means the newest at each due time.")
]
Input = Annotated[str | None, typer.Option("--input", help="JSON object, or @FILE that holds one.")]
DueKey = Annotated[
    str | None, typer.Option("--due-time-key", help="Input key that is set to the due time.")
]
Policy = Annotated[
    Overlap | None, typer.Option("--overlap", help="While an earlier task is not over.")
]
CatchUp = Annotated[
    str | None,
    typer.Option("--catch-up", help="How late a due time still counts: 90s, 30m, 6h, 2d."),
]
Labels = Annotated[
    list[str] | None, typer.Option("--label", help="KEY=VALUE on each task; may be repeated.")
]
Priority = Annotated[int | None, typer.Option("--priority", min=-100, max=100)]
TaskName = Annotated[str | None, typer.Option("--task-name", help="Empty means the schedule's.")]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Unique in the application.")],
    cron: Annotated[str, typer.Option("--cron", help='Such as "0 6 * * 1-5".')],
    workflow: Annotated[str, typer.Option("--workflow", help="The workflow to run.")],
    *,
    time_zone: Zone = None,
    workflow_version: WorkflowVersion = None,
    input_text: Input = None,
    due_time_key: DueKey = None,
    overlap: Policy = Overlap.SKIP,
    catch_up: CatchUp = None,
    labels: Labels = None,
    priority: Priority = None,
    task_name: TaskName = None,
    application: Annotated[
        str, typer.Option("--application", help="Operators name the application by its id.")
    ] = "",
    paused: Annotated[bool, typer.Option("--paused", help="Create it paused.")] = False,
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Create a schedule.

    Example:
      tdp schedule create nightly --cron "0 3 * * *" --time-zone Europe/Berlin --workflow clean
    """
    spec = schedules.ScheduleSpec(overlap_policy=schedules.OVERLAP_POLICY_SKIP)
    _change_times(spec, cron, time_zone, overlap, catch_up)
    _change_task(spec.task, workflow, workflow_version, input_text, due_time_key)
    _change_marks(spec.task, labels, priority, task_name)
    request = schedules.CreateScheduleRequest(
        idempotency_key=key_of(key), application_id=application, name=name, spec=spec, paused=paused
    )
    run(_act("CreateSchedule", request, as_json=as_json))


@app.command()
def update(
    schedule: Which,
    *,
    cron: Cron = None,
    time_zone: Zone = None,
    workflow: WorkflowName = None,
    workflow_version: WorkflowVersion = None,
    input_text: Input = None,
    due_time_key: DueKey = None,
    overlap: Policy = None,
    catch_up: CatchUp = None,
    labels: Labels = None,
    priority: Priority = None,
    task_name: TaskName = None,
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Change what is named, and leave the rest of the schedule as it is.

    Example:
      tdp schedule update nightly --cron "0 4 * * *"
    """

    def change(spec: schedules.ScheduleSpec) -> None:
        _change_times(spec, cron, time_zone, overlap, catch_up)
        _change_task(spec.task, workflow, workflow_version, input_text, due_time_key)
        _change_marks(spec.task, labels, priority, task_name)

    run(_update(schedule, change, key_of(key), as_json=as_json))


@app.command()
def get(schedule: Which, *, as_json: Json = False) -> None:
    """Show one schedule with its newest run.

    Example:
      tdp schedule get nightly
    """
    run(_get(schedule, as_json=as_json))


@app.command("list")
def list_schedules(*, limit: Limit = 50, as_json: Json = False) -> None:
    """List schedules, newest first.

    Example:
      tdp schedule list --json
    """
    run(_list(limit, as_json=as_json))


@app.command()
def pause(
    schedule: Which,
    *,
    reason: Annotated[str, typer.Option(help="Why; shown with the schedule.")] = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Stop handling due times; those that pass meanwhile are not made up for.

    Example:
      tdp schedule pause nightly --reason "the warehouse moves"
    """
    request = schedules.PauseScheduleRequest(idempotency_key=key_of(key), reason=reason)
    run(_act_on(schedule, "PauseSchedule", request, as_json=as_json))


@app.command()
def resume(schedule: Which, *, key: Key = "", as_json: Json = False) -> None:
    """Go on with the next due time.

    Example:
      tdp schedule resume nightly
    """
    request = schedules.ResumeScheduleRequest(idempotency_key=key_of(key))
    run(_act_on(schedule, "ResumeSchedule", request, as_json=as_json))


@app.command()
def delete(schedule: Which, *, key: Key = "", as_json: Json = False) -> None:
    """Delete a schedule; its tasks go on.

    Example:
      tdp schedule delete nightly
    """
    request = schedules.DeleteScheduleRequest(idempotency_key=key_of(key))
    run(_act_on(schedule, "DeleteSchedule", request, as_json=as_json))


@app.command()
def trigger(schedule: Which, *, key: Key = "", as_json: Json = False) -> None:
    """Create a task now, as if it were due; the overlap policy holds.

    Example:
      tdp schedule trigger nightly
    """
    request = schedules.TriggerScheduleRequest(idempotency_key=key_of(key))
    run(_act_on(schedule, "TriggerSchedule", request, as_json=as_json))


@app.command()
def runs(schedule: Which, *, limit: Limit = 20, as_json: Json = False) -> None:
    """List what became of a schedule's due times, newest first.

    Example:
      tdp schedule runs nightly --limit 5
    """
    run(_runs(schedule, limit, as_json=as_json))


@app.command()
def upcoming(
    schedule: Annotated[str, typer.Argument(help="Id or name; empty with --cron.")] = "",
    *,
    cron: Annotated[str, typer.Option("--cron", help="Try an expression out.")] = "",
    time_zone: Annotated[str, typer.Option("--time-zone", help="For --cron.")] = "",
    count: Annotated[int, typer.Option("--count", min=1, max=100)] = 10,
    as_json: Json = False,
) -> None:
    """Tell the next due times of a schedule, or of an expression.

    Examples:
      tdp schedule upcoming nightly
      tdp schedule upcoming --cron "30 2 * * *" --time-zone Europe/Berlin
    """
    request = schedules.ListUpcomingTimesRequest(cron=cron, time_zone=time_zone, count=count)
    run(_upcoming(schedule, request, as_json=as_json))


def _change_times(
    spec: schedules.ScheduleSpec,
    cron: str | None,
    time_zone: str | None,
    overlap: Overlap | None,
    catch_up: str | None,
) -> None:
    if cron is not None:
        spec.cron = cron
    if time_zone is not None:
        spec.time_zone = time_zone
    if overlap is not None:
        name = f"OVERLAP_POLICY_{overlap.name}"
        spec.overlap_policy = schedules.OverlapPolicy.Value(name)
    if catch_up is not None:
        spec.catch_up_window.CopyFrom(duration_of(catch_up, "--catch-up"))


def _change_task(
    task: schedules.ScheduledTask,
    workflow: str | None,
    workflow_version: str | None,
    input_text: str | None,
    due_time_key: str | None,
) -> None:
    if workflow is not None:
        task.workflow_name = workflow
    if workflow_version is not None:
        task.workflow_version = workflow_version
    if input_text is not None:
        task.input_json = document_of(input_text, "--input")
    if due_time_key is not None:
        task.due_time_key = due_time_key


def _change_marks(
    task: schedules.ScheduledTask,
    labels: list[str] | None,
    priority: int | None,
    task_name: str | None,
) -> None:
    if labels is not None:
        task.labels.clear()
        task.labels.update(_label(one) for one in labels)
    if priority is not None:
        task.priority = priority
    if task_name is not None:
        task.name = task_name


def _label(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise InvalidArgumentError.of_field("--label", f"{text!r} is not KEY=VALUE")
    return name, value


async def _id_of(control: ControlPlane, which: str) -> str:
    if is_id(which):
        return which
    request = schedules.ListSchedulesRequest(name=which, page_size=2)
    found = (await control.ask(Stub(control.channel).ListSchedules, request)).schedules
    if len(found) != 1:
        what = "no schedule is" if not found else "schedules of several applications are"
        raise NotFoundError(f"{what} named {which!r}: name the schedule by its id")
    return found[0].schedule_id


async def _act(method: str, request: Any, *, as_json: bool) -> None:  # noqa: ANN401 - any request of the service
    async with Connection.find().control() as control:
        answer = await control.ask(getattr(Stub(control.channel), method), request)
    show(
        as_document(answer), as_json=as_json, render=lambda console: render_answer(console, answer)
    )


async def _act_on(which: str, method: str, request: Any, *, as_json: bool) -> None:  # noqa: ANN401 - as above
    async with Connection.find().control() as control:
        request.schedule_id = await _id_of(control, which)
    await _act(method, request, as_json=as_json)


async def _update(which: str, change: Any, key: str, *, as_json: bool) -> None:  # noqa: ANN401 - a function of the spec
    async with Connection.find().control() as control:
        request = schedules.GetScheduleRequest(schedule_id=await _id_of(control, which))
        current = (await control.ask(Stub(control.channel).GetSchedule, request)).schedule
    change(current.spec)
    changed = schedules.UpdateScheduleRequest(
        idempotency_key=key,
        schedule_id=current.schedule_id,
        spec=current.spec,
        expected_version=current.version,
    )
    await _act("UpdateSchedule", changed, as_json=as_json)


async def _get(which: str, *, as_json: bool) -> None:
    async with Connection.find().control() as control:
        request = schedules.GetScheduleRequest(schedule_id=await _id_of(control, which))
        found = (await control.ask(Stub(control.channel).GetSchedule, request)).schedule
    show(
        as_document(found), as_json=as_json, render=lambda console: render_schedule(console, found)
    )


async def _list(limit: int, *, as_json: bool) -> None:
    async with Connection.find().control() as control:

        async def page(size: int, token: str) -> tuple[Sequence[schedules.Schedule], str]:
            request = schedules.ListSchedulesRequest(page_size=size, page_token=token)
            answer = await control.ask(Stub(control.channel).ListSchedules, request)
            return answer.schedules, answer.next_page_token

        found, token = await rows_of(page, limit)
    document = {"schedules": [as_document(one) for one in found], "next_page_token": token}
    show(document, as_json=as_json, render=lambda console: render_list(console, found))


async def _runs(which: str, limit: int, *, as_json: bool) -> None:
    async with Connection.find().control() as control:
        schedule_id = await _id_of(control, which)

        async def page(size: int, token: str) -> tuple[Sequence[schedules.ScheduleRun], str]:
            request = schedules.ListScheduleRunsRequest(
                schedule_id=schedule_id, page_size=size, page_token=token
            )
            answer = await control.ask(Stub(control.channel).ListScheduleRuns, request)
            return answer.runs, answer.next_page_token

        found, token = await rows_of(page, limit)
    document = {"runs": [as_document(one) for one in found], "next_page_token": token}
    show(document, as_json=as_json, render=lambda console: render_runs(console, found))


async def _upcoming(
    which: str, request: schedules.ListUpcomingTimesRequest, *, as_json: bool
) -> None:
    async with Connection.find().control() as control:
        if which:
            request.schedule_id = await _id_of(control, which)
        answer = await control.ask(Stub(control.channel).ListUpcomingTimes, request)

    def render(console: Console) -> None:
        for one in answer.times:
            console.print(f"{one.local_time}  [dim]{moment(one.due_time)} UTC[/]")

    show(as_document(answer), as_json=as_json, render=render)
