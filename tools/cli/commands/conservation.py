"""`tdp conservation`: whether everything that was accepted is accounted for."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.console import Console

from foundation.clock import SystemClock
from tdp.control.v1 import system_service_pb2 as system
from tdp.control.v1 import system_service_pb2_grpc
from tools.cli.connection import Connection
from tools.cli.options import Json, run
from tools.cli.output import ExitCode, as_document, plain, show, table

app = typer.Typer(rich_markup_mode="rich")
Stub = system_service_pb2_grpc.SystemServiceStub


@app.command()
def conservation(
    *,
    hours: Annotated[
        float, typer.Option("--hours", min=0.01, max=744, help="How far back the window goes.")
    ] = 24,
    before: Annotated[
        datetime | None,
        typer.Option("--before", help="Where the window ends, in UTC; by default now."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that accepted = terminal + live, sent = stored + outstanding, and nothing is missing.

    Needs an operator's key. Exit status 4 if any equation does not hold; the ids that make the
    difference are named, at most 100 of each.

    Examples:
      tdp conservation
      tdp conservation --hours 1 --before 2026-05-01T12:00:00
      tdp conservation --json | jq .balanced
    """
    run(_conservation(hours, before, as_json=as_json))


async def _conservation(hours: float, before: datetime | None, *, as_json: bool) -> None:
    request = system.GetConservationRequest()
    if before is not None:
        request.end_time.FromDatetime(before.replace(tzinfo=before.tzinfo or UTC))
    end = before or SystemClock().now()
    request.start_time.FromDatetime(end - timedelta(hours=hours))
    async with Connection.find().control() as control:
        found = await control.ask(Stub(control.channel).GetConservation, request)
    show(as_document(found), as_json=as_json, render=lambda console: _render(console, found))
    if not found.balanced:
        raise typer.Exit(ExitCode.NEEDS_ATTENTION)


def _render(console: Console, found: system.GetConservationResponse) -> None:
    rows = table("Conservation", "", "equation", "left", "right", "differing")
    for line in found.lines:
        rows.add_row(
            "[green]holds[/]" if _holds(line) else "[bold red]DIFFERS[/]",
            plain(line.name),
            str(line.left_count),
            str(line.right_count),
            "\n".join(line.differing_ids),
        )
    console.print(rows)
    for line in found.lines:
        if not _holds(line):
            console.print(f"[bold]{plain(line.key)}[/]: {plain(line.meaning)}")


def _holds(line: system.ConservationLine) -> bool:
    return line.left_count == line.right_count and not line.differing_ids
