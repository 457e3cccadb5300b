"""Schedules and their runs as the command line shows them."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from tdp.control.v1 import schedule_service_pb2 as schedules
from tools.cli.output import enum_name, moment, plain, table


def render_answer(console: Console, answer: Any) -> None:  # noqa: ANN401 - any answer of the service
    """Write the schedule or the run that an answer holds."""
    if "schedule" in answer.DESCRIPTOR.fields_by_name:
        render_schedule(console, answer.schedule)
    elif "run" in answer.DESCRIPTOR.fields_by_name:
        render_runs(console, [answer.run])
    else:
        console.print("[green]deleted[/]")


def render_schedule(console: Console, one: schedules.Schedule) -> None:
    """Write one schedule with its newest run."""
    spec, task = one.spec, one.spec.task
    state = "[yellow]paused[/]" if one.paused else "[green]active[/]"
    console.print(f"[bold]{plain(one.name)}[/]  {state}  next {moment(one.next_time)} UTC")
    policy = enum_name(schedules.OverlapPolicy.Name(spec.overlap_policy), "OVERLAP_POLICY_")
    console.print(f"  {plain(spec.cron)} in {spec.time_zone}, overlap {policy}")
    console.print(f"  runs {task.workflow_name} {task.workflow_version or '(the newest version)'}")
    console.print(f"  schedule {one.schedule_id}, version {one.version}", style="dim")
    if one.pause_reason:
        console.print(f"  paused by {one.paused_by}: {plain(one.pause_reason)}")
    if one.HasField("last_run"):
        render_runs(console, [one.last_run])


def render_list(console: Console, found: Sequence[schedules.Schedule]) -> None:
    """Write a table of schedules."""
    rows = table("Schedules", "name", "cron", "time zone", "workflow", "next (UTC)", "last run")
    for one in found:
        rows.add_row(
            plain(one.name),
            plain(one.spec.cron),
            one.spec.time_zone,
            one.spec.task.workflow_name,
            "paused" if one.paused else moment(one.next_time),
            _status(one.last_run) if one.HasField("last_run") else "–",
        )
    console.print(rows)


def render_runs(console: Console, found: Sequence[schedules.ScheduleRun]) -> None:
    """Write a table of runs."""
    rows = table("Runs", "due (UTC)", "status", "task", "reason")
    for one in found:
        due = moment(one.due_time) + (" (triggered)" if one.triggered else "")
        rows.add_row(due, _status(one), one.task_id or "–", plain(one.reason))
    console.print(rows)


def _status(one: schedules.ScheduleRun) -> str:
    name = enum_name(schedules.ScheduleRunStatus.Name(one.status), "SCHEDULE_RUN_STATUS_")
    colours = {"STARTED": "green", "FAILED": "red", "MISSED": "red", "SKIPPED": "yellow"}
    return f"[{colours[name]}]{name}[/]" if name in colours else name
