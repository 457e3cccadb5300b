"""`tdp task`: see the control plane's tasks and follow one to its end; acts have a module."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Final

import grpc.aio
import typer
from rich.console import Console

from foundation.errors import UnavailableError
from foundation.grpc.channel import owned_call
from foundation.grpc.status import from_rpc_error
from tdp.control.v1 import task_pb2, task_service_pb2_grpc
from tdp.control.v1 import task_service_pb2 as tasks
from tools.cli.commands import task_operations
from tools.cli.connection import Connection, ControlPlane
from tools.cli.options import Json, Limit, group, rows_of, run
from tools.cli.output import (
    ExitCode,
    as_document,
    enum_name,
    moment,
    plain,
    show,
    status_style,
    table,
)

app = group("See the control plane's tasks, follow one to its end, and act on its work.")
Stub = task_service_pb2_grpc.TaskServiceStub
TaskId = Annotated[str, typer.Argument(help="The task's id.")]
_RECONNECTS_MAX: Final = 8
_ATTEMPTS_MAX: Final = 10_000
_LOG_LINES_SHOWN: Final = 20
_TERMINAL: Final = frozenset({"SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELED"})


@app.command()
def get(task_id: TaskId, *, as_json: Json = False) -> None:
    """Show one task with its current execution's steps and attempts.

    Example:
      tdp task get 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f
    """
    run(_get(task_id, as_json=as_json))


@app.command("list")
def list_tasks(
    *,
    where: Annotated[
        str, typer.Option("--filter", help='For example: status = "RUNNING" AND labels.team = "a"')
    ] = "",
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List tasks, newest first.

    Examples:
      tdp task list --limit 5
      tdp task list --filter 'status = "FAILED" AND workflow = "archive-clean"'
    """
    run(_list(where, limit, as_json=as_json))


@app.command()
def watch(
    task_id: TaskId,
    *,
    after: Annotated[int, typer.Option(min=0, help="Only events with a higher sequence.")] = 0,
    as_json: Json = False,
) -> None:
    """Follow the task's current execution, event by event, to its end.

    Ends with 0 if it succeeded and with 1 if it failed, timed out or was cancelled.

    Example:
      tdp task watch 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f --json
    """
    raise typer.Exit(run(_watch(task_id, after, as_json=as_json)))


task_operations.add_to(app)


async def _get(task_id: str, *, as_json: bool) -> None:
    async with Connection.find().control() as control:
        stub = Stub(control.channel)
        task = (await control.ask(stub.GetTask, tasks.GetTaskRequest(task_id=task_id))).task
        execution_id = task.current_execution.execution_id
        steps = await control.ask(
            stub.ListSteps, tasks.ListStepsRequest(execution_id=execution_id, page_size=1000)
        )
        attempts = await _attempts(control, execution_id)
    document = {
        "task": as_document(task),
        "steps": as_document(steps)["steps"],
        "attempts": [as_document(one) for one in attempts],
    }
    show(
        document,
        as_json=as_json,
        render=lambda console: _render_task(console, task, steps.steps, attempts),
    )


async def _attempts(control: ControlPlane, execution_id: str) -> list[task_pb2.Attempt]:
    async def page(size: int, token: str) -> tuple[Sequence[task_pb2.Attempt], str]:
        request = tasks.ListAttemptsRequest(
            execution_id=execution_id, page_size=size, page_token=token
        )
        answer = await control.ask(Stub(control.channel).ListAttempts, request)
        return answer.attempts, answer.next_page_token

    found, _ = await rows_of(page, _ATTEMPTS_MAX)
    return found


def _render_task(console: Console, task: task_pb2.Task, steps: Any, attempts: Any) -> None:  # noqa: ANN401 - repeated fields of the contract
    execution = task.current_execution
    console.print(f"[bold]{plain(task.name)}[/]  {status_style(_execution_status(execution))}")
    console.print(
        f"  {task.workflow_name} {task.workflow_version}, run {execution.run}, "
        f"{execution.progress_percent} %, created {moment(task.create_time)}"
    )
    console.print(f"  task {task.task_id}\n  execution {execution.execution_id}", style="dim")
    if execution.waiting_for:
        console.print(f"  waits: {plain(execution.waiting_for)}")
    if execution.HasField("failure"):
        console.print(f"  [red]{execution.failure.reason}[/] {plain(execution.failure.message)}")
    rows = table("", "step", "status", "progress", "attempt", "node", "lease", "ended")
    for step in steps:
        last = [one for one in attempts if _belongs(one, step)][-1:]
        rows.add_row(
            step.step_key + (f"[{step.item_index}]" if step.item_index >= 0 else ""),
            status_style(enum_name(task_pb2.StepStatus.Name(step.status), "STEP_STATUS_")),
            f"{step.progress_percent} %",
            str(step.attempt_number),
            _where(step, last),
            str(last[0].lease_version) if last else "–",
            moment(step.complete_time),
        )
    console.print(rows)
    for attempt in attempts:
        if attempt.log_tail and attempt.attempt_id == attempts[-1].attempt_id:
            lines = attempt.log_tail.rstrip().splitlines()[-_LOG_LINES_SHOWN:]
            console.print(f"The end of the log of {attempt.step_key}:")
            console.print("\n".join(f"  {plain(line)}" for line in lines), style="dim")


def _where(step: task_pb2.Step, last: list[task_pb2.Attempt]) -> str:
    """Say which node did the step's work, or that it was done in an earlier run."""
    if step.reused_from_execution_id:
        return "earlier run"
    return last[0].node_id[-12:] if last else "–"


def _belongs(attempt: task_pb2.Attempt, step: task_pb2.Step) -> bool:
    return (attempt.step_key, attempt.item_index) == (step.step_key, step.item_index)


async def _list(where: str, limit: int, *, as_json: bool) -> None:
    async with Connection.find().control() as control:

        async def page(size: int, token: str) -> tuple[Sequence[task_pb2.Task], str]:
            request = tasks.ListTasksRequest(filter=where, page_size=size, page_token=token)
            answer = await control.ask(Stub(control.channel).ListTasks, request)
            return answer.tasks, answer.next_page_token

        found, token = await rows_of(page, limit)
    document = {"tasks": [as_document(one) for one in found], "next_page_token": token}
    show(document, as_json=as_json, render=lambda console: _render_list(console, found))


def _render_list(console: Console, found: list[task_pb2.Task]) -> None:
    rows = table("Tasks", "task", "name", "workflow", "run", "status", "progress", "created")
    for one in found:
        execution = one.current_execution
        rows.add_row(
            one.task_id,
            plain(one.name),
            f"{one.workflow_name} {one.workflow_version}",
            str(execution.run),
            status_style(_execution_status(execution)),
            f"{execution.progress_percent} %",
            moment(one.create_time),
        )
    console.print(rows)


async def _watch(task_id: str, after: int, *, as_json: bool) -> ExitCode:
    async with Connection.find().control() as control:
        request = tasks.GetTaskRequest(task_id=task_id)
        task = (await control.ask(Stub(control.channel).GetTask, request)).task
        execution_id = task.current_execution.execution_id
        sequence, failures = after, 0
        while failures <= _RECONNECTS_MAX:
            try:
                seen = sequence
                sequence, status = await _follow(control, execution_id, seen, as_json=as_json)
                if status in _TERMINAL:
                    return ExitCode.DONE if status == "SUCCEEDED" else ExitCode.FAILED
                failures = 0 if sequence > seen else failures + 1
            except UnavailableError:
                failures += 1
            await asyncio.sleep(min(0.1 * 2**failures, 2.0))
        raise UnavailableError("the control plane does not answer: is it running?")


async def _follow(
    control: ControlPlane, execution_id: str, sequence: int, *, as_json: bool
) -> tuple[int, str]:
    """Write the events after a sequence; answer the last one's, and the execution's status."""
    request = tasks.WatchExecutionRequest(execution_id=execution_id, after_sequence=sequence)
    started: Any = Stub(control.channel).WatchExecution(request, metadata=control.metadata)
    status = ""
    async with owned_call(started) as call:
        try:
            async for answer in call:
                sequence = answer.event.sequence
                status = _execution_status(answer.execution)
                _write_event(answer, as_json=as_json)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
    return sequence, status or await _status_now(control, execution_id)


async def _status_now(control: ControlPlane, execution_id: str) -> str:
    request = tasks.GetExecutionRequest(execution_id=execution_id)
    answer = await control.ask(Stub(control.channel).GetExecution, request)
    return _execution_status(answer.execution)


def _write_event(answer: tasks.WatchExecutionResponse, *, as_json: bool) -> None:
    event = answer.event
    status = enum_name(task_pb2.ExecutionStatus.Name(event.status), "EXECUTION_STATUS_")
    show(
        as_document(answer),
        as_json=as_json,
        render=lambda console: console.print(
            f"[dim]{event.sequence:>4}  {event.occur_time.ToDatetime():%H:%M:%S.%f}[/]  "
            f"{event.type:<22} {status_style(status)} {event.progress_percent} %"
        ),
    )


def _execution_status(execution: task_pb2.Execution) -> str:
    return enum_name(task_pb2.ExecutionStatus.Name(execution.status), "EXECUTION_STATUS_")
