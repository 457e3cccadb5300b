"""`tdp task` signal, skip, pause, resume, extend, rerun and cancel: acting on a task's work."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from google.protobuf.message import Message
from rich.console import Console

from foundation.errors import InvalidArgumentError, NotFoundError
from tdp.control.v1 import mutation_pb2, task_pb2, task_service_pb2_grpc
from tdp.control.v1 import task_service_pb2 as tasks
from tools.cli.commands.bulk import act_on_all
from tools.cli.connection import Connection, ControlPlane
from tools.cli.options import Json, Key, document_of, duration_of, key_of, rows_of, run
from tools.cli.output import as_document, enum_name, moment, plain, show, status_style

Stub = task_service_pb2_grpc.TaskServiceStub
Work = Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")]
StepKey = Annotated[str, typer.Argument(metavar="STEP", help="The step's key.")]
Item = Annotated[int, typer.Option("--item", help="The item of a for_each step, from 0.")]
Reason = Annotated[str, typer.Option(help="Why; shown on the timeline with who did it.")]
OneOrFilter = Annotated[
    str, typer.Argument(metavar="[TASK]", help="The task's id; or use --filter.")
]
Where = Annotated[
    str, typer.Option("--filter", help="All tasks that fit, as in `tdp task list`, instead of one.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="With --filter: only count.")]
Run = Annotated[
    int, typer.Option("--run", min=0, help="The run that is meant; 0: the current one.")
]
NO_ITEM = -1


class Mode(StrEnum):
    """What a rerun takes over."""

    FROM_SCRATCH = "from-scratch"
    REUSE_SUCCEEDED = "reuse-succeeded"
    FAILED_ITEMS = "failed-items"
    FROM_STEP = "from-step"


def add_to(app: typer.Typer) -> None:
    """Add the commands to `tdp task`."""
    for command in (signal, skip, pause, resume, extend, rerun, cancel):
        app.command()(command)


def signal(
    task_id: Work,
    step: StepKey,
    approved: Annotated[bool, typer.Option("--approve/--reject", help="The answer.")],
    *,
    item: Item = NO_ITEM,
    payload: Annotated[
        str, typer.Option(help="JSON, or @FILE that holds it, for the steps that follow.")
    ] = "",
    reason: Reason = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Answer an approval that waits.

    Examples:
      tdp task signal 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f review --approve
      tdp task signal 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f review --reject --reason "too dark"
    """
    request = tasks.SignalStepRequest(
        idempotency_key=key_of(key),
        step_key=step,
        item_index=item,
        approved=approved,
        payload_json=document_of(payload, "--payload") if payload else "",
        reason=reason,
    )
    run(_act_on_execution(task_id, "SignalStep", request, as_json=as_json))


def skip(
    task_id: Work,
    step: StepKey,
    *,
    item: Item = NO_ITEM,
    reason: Reason = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Skip a step, or an item of it, that has not started or waits for its next attempt.

    Example:
      tdp task skip 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f thumbnails --reason "none needed"
    """
    request = tasks.SkipStepRequest(
        idempotency_key=key_of(key), step_key=step, item_index=item, reason=reason
    )
    run(_act_on_execution(task_id, "SkipStep", request, as_json=as_json))


def pause(task_id: Work, *, reason: Reason = "", key: Key = "", as_json: Json = False) -> None:
    """Start no further step; what runs goes on, and queue time stands still.

    Example:
      tdp task pause 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f --reason "the store is full"
    """
    request = tasks.PauseExecutionRequest(idempotency_key=key_of(key), reason=reason)
    run(_act_on_execution(task_id, "PauseExecution", request, as_json=as_json))


def resume(task_id: Work, *, reason: Reason = "", key: Key = "", as_json: Json = False) -> None:
    """Go on after a pause, or try again what was set aside after repeated errors.

    Example:
      tdp task resume 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f
    """
    request = tasks.ResumeExecutionRequest(idempotency_key=key_of(key), reason=reason)
    run(_act_on_execution(task_id, "ResumeExecution", request, as_json=as_json))


def extend(
    task_id: Work,
    step: StepKey,
    by: Annotated[str, typer.Option("--by", help="How much more time: 90s, 30m, 6h, 2d.")],
    *,
    item: Item = NO_ITEM,
    reason: Reason = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Give the running attempt of a step more time.

    Example:
      tdp task extend 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f transcode --by 30m
    """
    request = tasks.ExtendAttemptRequest(
        idempotency_key=key_of(key), extension=duration_of(by, "--by"), reason=reason
    )
    run(_extend(task_id, step, item, request, as_json=as_json))


def rerun(
    task_id: OneOrFilter = "",
    *,
    where: Where = "",
    dry_run: DryRun = False,
    mode: Annotated[Mode | None, typer.Option(help="What is taken over; nothing if left out.")] = (
        None
    ),
    from_step: Annotated[
        str, typer.Option("--from-step", help="Run this step and all that wait for it again.")
    ] = "",
    meant: Run = 0,
    reason: Reason = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Run a finished task again, or all that a filter finds: all of it, or a part.

    Examples:
      tdp task rerun 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f
      tdp task rerun 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f --mode reuse-succeeded
      tdp task rerun 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f --from-step watermark
      tdp task rerun --filter 'status = FAILED AND labels.batch = "7"' --mode reuse-succeeded
    """
    chosen = mode or (Mode.FROM_STEP if from_step else Mode.FROM_SCRATCH)
    if _is_bulk(task_id, where, dry_run=dry_run):
        bulk = tasks.BulkRerunTasksRequest(
            idempotency_key=key_of(key),
            filter=where,
            dry_run=dry_run,
            mode=tasks.RerunMode.Value(f"RERUN_MODE_{chosen.name}"),
            reason=reason,
        )
        run(
            act_on_all(Stub, "BulkRerunTasks", bulk, what="tasks", dry_run=dry_run, as_json=as_json)
        )
        return
    request = tasks.RerunTaskRequest(
        idempotency_key=key_of(key),
        task_id=task_id,
        run=meant,
        mode=tasks.RerunMode.Value(f"RERUN_MODE_{chosen.name}"),
        step_key=from_step,
        reason=reason,
    )
    run(_act("RerunTask", request, as_json=as_json))


def cancel(
    task_id: OneOrFilter = "",
    *,
    where: Where = "",
    dry_run: DryRun = False,
    meant: Run = 0,
    reason: Reason = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Cancel a task's run, or all that a filter finds; one that is over stays as it is.

    Examples:
      tdp task cancel 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f --reason "wrong input"
      tdp task cancel --filter 'labels.batch = "7"' --dry-run
    """
    if _is_bulk(task_id, where, dry_run=dry_run):
        bulk = tasks.BulkCancelTasksRequest(
            idempotency_key=key_of(key), filter=where, dry_run=dry_run, reason=reason
        )
        run(
            act_on_all(
                Stub, "BulkCancelTasks", bulk, what="tasks", dry_run=dry_run, as_json=as_json
            )
        )
        return
    request = tasks.CancelTaskRequest(
        idempotency_key=key_of(key), task_id=task_id, run=meant, reason=reason
    )
    run(_act("CancelTask", request, as_json=as_json))


def _is_bulk(task_id: str, where: str, *, dry_run: bool) -> bool:
    """Whether a filter is given instead of a task; InvalidArgumentError for both and for none."""
    if bool(task_id) == bool(where):
        raise InvalidArgumentError.of_field("TASK", "name either a task or a --filter, not both")
    if dry_run and not where:
        raise InvalidArgumentError.of_field("--dry-run", "goes with --filter only")
    return bool(where)


async def _act_on_all(
    method: str,
    request: tasks.BulkCancelTasksRequest | tasks.BulkRerunTasksRequest,
    *,
    as_json: bool,
) -> None:
    dry_run = request.dry_run
    await act_on_all(Stub, method, request, what="tasks", dry_run=dry_run, as_json=as_json)


async def _act(method: str, request: Message, *, as_json: bool) -> None:
    async with Connection.find().control() as control:
        await _ask(control, method, request, as_json=as_json)


async def _act_on_execution(task_id: str, method: str, request: Any, *, as_json: bool) -> None:  # noqa: ANN401 - one of several requests with an execution_id
    async with Connection.find().control() as control:
        request.execution_id = await _current(control, task_id)
        await _ask(control, method, request, as_json=as_json)


async def _extend(
    task_id: str, step: str, item: int, request: tasks.ExtendAttemptRequest, *, as_json: bool
) -> None:
    async with Connection.find().control() as control:
        execution_id = await _current(control, task_id)

        async def page(size: int, token: str) -> tuple[Sequence[task_pb2.Attempt], str]:
            asked = tasks.ListAttemptsRequest(
                execution_id=execution_id, step_key=step, page_size=size, page_token=token
            )
            answer = await control.ask(Stub(control.channel).ListAttempts, asked)
            return answer.attempts, answer.next_page_token

        attempts, _ = await rows_of(page, 100_000)
        ours = [one for one in attempts if one.item_index == item]
        if not ours:
            named = step if item == NO_ITEM else f"{step}[{item}]"
            raise NotFoundError(f"step {named} was never dispatched: see `tdp task get {task_id}`")
        # Of several the newest is the live one, if any is; the control plane refuses the others.
        request.attempt_id = ours[-1].attempt_id
        await _ask(control, "ExtendAttempt", request, as_json=as_json)


async def _current(control: ControlPlane, task_id: str) -> str:
    request = tasks.GetTaskRequest(task_id=task_id)
    answer = await control.ask(Stub(control.channel).GetTask, request)
    return answer.task.current_execution.execution_id


async def _ask(control: ControlPlane, method: str, request: Message, *, as_json: bool) -> None:
    answer: Any = await control.ask(getattr(Stub(control.channel), method), request)
    show(as_document(answer), as_json=as_json, render=lambda console: _render(console, answer))


def _render(console: Console, answer: Any) -> None:  # noqa: ANN401 - one of several answers
    replayed = answer.outcome == mutation_pb2.MUTATION_OUTCOME_REPLAYED
    console.print(_sentence(answer) + ("  [dim](nothing changed by this call)[/]" * replayed))


def _sentence(answer: Any) -> str:  # noqa: ANN401 - one of several answers
    fields = {field.name for field, _ in answer.ListFields()}
    if "step" in fields:
        step = answer.step
        status = enum_name(task_pb2.StepStatus.Name(step.status), "STEP_STATUS_")
        item = f"\\[{step.item_index}]" if step.item_index >= 0 else ""
        return f"step {plain(step.step_key)}{item}  {status_style(status)}"
    if "attempt" in fields:
        until = moment(answer.run_deadline_time)
        return f"attempt {answer.attempt.attempt_id} may run until {until} UTC"
    execution = answer.execution
    status = enum_name(task_pb2.ExecutionStatus.Name(execution.status), "EXECUTION_STATUS_")
    paused = ", paused" if execution.paused else ""
    return (
        f"run {execution.run}  {status_style(status)}{paused}, execution {execution.execution_id}"
    )
