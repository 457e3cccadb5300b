"""`tdp workflow`: publish definitions, and see what is published."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from foundation.errors import InvalidArgumentError
from tdp.control.v1 import workflow_service_pb2 as workflows
from tdp.control.v1 import workflow_service_pb2_grpc
from tools.cli.connection import Connection
from tools.cli.options import Json, Limit, group, rows_of, run
from tools.cli.output import as_document, moment, plain, show, table

app = group("Publish workflow definitions and see what is published.")
Stub = workflow_service_pb2_grpc.WorkflowServiceStub


@app.command()
def publish(
    files: Annotated[
        list[Path], typer.Argument(help="YAML or JSON files.", exists=True, dir_okay=False)
    ],
    *,
    check_only: Annotated[
        bool, typer.Option("--check-only", help="Check the definitions; store nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check definitions and publish them; the same content again changes nothing.

    Published versions never change: other content needs another version.

    Examples:
      tdp workflow publish archive-clean.yaml
      tdp workflow publish --check-only flows/*.yaml
    """
    run(_publish(files, check_only=check_only, as_json=as_json))


@app.command("list")
def list_published(
    *,
    name: Annotated[str, typer.Option(help="Only the versions of this workflow.")] = "",
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """List the published versions, by name.

    Example:
      tdp workflow list --name archive-clean
    """
    run(_list(name, limit, as_json=as_json))


async def _publish(files: list[Path], *, check_only: bool, as_json: bool) -> None:
    async with Connection.find().control() as control:
        publish = Stub(control.channel).PublishWorkflow
        for path in files:
            request = workflows.PublishWorkflowRequest(
                definition=_definition(path), validate_only=check_only
            )
            answer = await control.ask(publish, request)
            show(
                as_document(answer),
                as_json=as_json,
                render=lambda console, answer=answer: _render_published(  # type: ignore[misc]
                    console, answer, check_only=check_only
                ),
            )


def _definition(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"{path} is no text in UTF-8 (byte {error.start}): name a YAML or JSON file",
            reason="WORKFLOW_INVALID",
        ) from None


def _render_published(
    console: Console, answer: workflows.PublishWorkflowResponse, *, check_only: bool
) -> None:
    workflow = answer.workflow
    said = "published" if answer.changed else "already published"
    said = "is sound" if check_only else said
    console.print(f"[bold]{workflow.name}[/] {workflow.version}: [green]{said}[/]")
    console.print(f"  digest {workflow.digest}", style="dim")
    for warning in answer.warnings:
        console.print(f"  [yellow]note[/] {plain(warning)}")


async def _list(name: str, limit: int, *, as_json: bool) -> None:
    async with Connection.find().control() as control:

        async def page(size: int, token: str) -> tuple[Sequence[workflows.Workflow], str]:
            request = workflows.ListWorkflowsRequest(name=name, page_size=size, page_token=token)
            answer = await control.ask(Stub(control.channel).ListWorkflows, request)
            return answer.workflows, answer.next_page_token

        found, token = await rows_of(page, limit)
    document = {"workflows": [as_document(one) for one in found], "next_page_token": token}
    show(document, as_json=as_json, render=lambda console: _render_list(console, found))


def _render_list(console: Console, found: list[workflows.Workflow]) -> None:
    rows = table("Workflows", "name", "version", "published", "deprecated", "digest")
    for one in found:
        rows.add_row(
            one.name,
            one.version,
            moment(one.publish_time),
            moment(one.deprecate_time),
            one.digest[:12],
        )
    console.print(rows)
