"""`tdp callback`: see what business systems were told, and tell them again."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console

from tdp.control.v1 import task_service_pb2 as tasks
from tdp.control.v1 import task_service_pb2_grpc
from tools.cli.commands.bulk import act_on_all
from tools.cli.connection import Connection
from tools.cli.options import Json, Key, Limit, group, key_of, rows_of, run
from tools.cli.output import as_document, enum_name, moment, plain, show, status_style, table

app = group("See what business systems were told of their work, and tell them again.")
Stub = task_service_pb2_grpc.TaskServiceStub
Execution = Annotated[
    str, typer.Option("--execution", metavar="ID", help="Only this execution's callbacks.")
]
Application = Annotated[
    str, typer.Option("--application", metavar="ID", help="Only this application's callbacks.")
]


class Status(StrEnum):
    """Where a callback stands."""

    PENDING = "pending"
    DELIVERING = "delivering"
    RETRYING = "retrying"
    DELIVERED = "delivered"
    DEAD = "dead"
    QUARANTINED = "quarantined"


@app.command("list")
def list_callbacks(
    *,
    execution: Execution = "",
    status: Annotated[
        Status | None, typer.Option(help="All that are not delivered, if left out.")
    ] = None,
    application: Application = "",
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List callbacks, newest first, with what the endpoints answered.

    Examples:
      tdp callback list --status dead
      tdp callback list --execution 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f --json
    """
    request = tasks.ListCallbacksRequest(execution_id=execution, application_id=application)
    if status is not None:
        request.status = tasks.CallbackStatus.Value(f"CALLBACK_STATUS_{status.name}")
    run(_list(request, limit, as_json=as_json))


@app.command()
def redeliver(
    *,
    execution: Execution = "",
    where: Annotated[
        str, typer.Option("--filter", help="Those of the tasks that fit, as in `tdp task list`.")
    ] = "",
    application: Application = "",
    delivered: Annotated[
        bool, typer.Option("--delivered", help="Also those that were delivered already.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Deliver dead callbacks again: of one execution, or of all tasks that a filter finds.

    Examples:
      tdp callback redeliver --execution 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f
      tdp callback redeliver --filter 'create_time >= "2026-01-31T00:00:00Z"' --dry-run
    """
    request = tasks.RedeliverCallbacksRequest(
        idempotency_key=key_of(key),
        execution_id=execution,
        filter=where,
        application_id=application,
        include_delivered=delivered,
        dry_run=dry_run,
    )
    method = "RedeliverCallbacks"
    run(act_on_all(Stub, method, request, what="callbacks", dry_run=dry_run, as_json=as_json))


async def _list(request: tasks.ListCallbacksRequest, limit: int, *, as_json: bool) -> None:
    async with Connection.find().control() as control:

        async def page(size: int, token: str) -> tuple[Sequence[tasks.Callback], str]:
            request.page_size, request.page_token = size, token
            answer = await control.ask(Stub(control.channel).ListCallbacks, request)
            return answer.callbacks, answer.next_page_token

        found, token = await rows_of(page, limit)
    document = {"callbacks": [as_document(one) for one in found], "next_page_token": token}
    show(document, as_json=as_json, render=lambda console: _render(console, found))


def _render(console: Console, found: Sequence[tasks.Callback]) -> None:
    rows = table("Callbacks", "execution", "event", "status", "tries", "next or done", "last error")
    for one in found:
        status = enum_name(tasks.CallbackStatus.Name(one.status), "CALLBACK_STATUS_")
        rows.add_row(
            one.execution_id,
            f"{one.sequence} {one.event_type.removeprefix('execution.')}",
            status_style(status) + (" (held)" if one.held else ""),
            str(one.attempt_count),
            moment(one.deliver_time if one.HasField("deliver_time") else one.next_try_time),
            plain(one.last_error) or "–",
        )
    console.print(rows)
