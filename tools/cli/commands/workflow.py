"""`tdp workflow`: check and publish definitions, and see what is published."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from foundation.errors import TdpError
from tdp.control.v1 import workflow_service_pb2 as workflows
from tdp.control.v1 import workflow_service_pb2_grpc
from tools.cli.connection import Connection, ControlPlane
from tools.cli.options import Json, Limit, group, rows_of, run
from tools.cli.output import (
    ExitCode,
    as_document,
    moment,
    out,
    plain,
    report_error,
    show,
    table,
    write_json,
)
from tools.cli.workflow_check import check_file, read_definition, render_reports

app = group("Check and publish workflow definitions, and see what is published.")
Files = Annotated[
    list[Path], typer.Argument(help="YAML or JSON files.", exists=True, dir_okay=False)
]
Stub = workflow_service_pb2_grpc.WorkflowServiceStub


@app.command()
def validate(
    files: Files,
    *,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse what there are notes about, too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check definitions on this machine by the rules of publishing; no server is needed.

    Each problem is told with its file, line, column and key. Ends with 0 if all are sound, else
    with 2. Whether nodes offer the capabilities is not known here: `publish --check-only` asks.

    Examples:
      tdp workflow validate flows/*.yaml
      tdp workflow validate --json clean.yaml
    """
    reports = [check_file(path) for path in files]
    if as_json:
        for report in reports:
            write_json(report.document())
    else:
        render_reports(out, reports)
    if not all(one.sound and not (strict and one.warnings) for one in reports):
        raise typer.Exit(ExitCode.REFUSED)


@app.command()
def publish(
    files: Files,
    *,
    check_only: Annotated[
        bool, typer.Option("--check-only", help="Check the definitions; store nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check definitions and publish them; the same content again changes nothing.

    Published versions never change: other content needs another version. A file that is refused
    is named, and the others are published all the same; the exit status is then 2.

    Examples:
      tdp workflow publish archive-clean.yaml
      tdp workflow publish --check-only flows/*.yaml
    """
    status = run(_publish(files, check_only=check_only, as_json=as_json))
    if status is not ExitCode.DONE:
        raise typer.Exit(status)


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="The workflow's name.")],
    version: Annotated[str, typer.Argument(help="Empty means the newest.")] = "",
    *,
    as_json: Json = False,
) -> None:
    """Show one version with its definition.

    Examples:
      tdp workflow get archive-clean
      tdp workflow get archive-clean 1 --json
    """
    run(_get(name, version, as_json=as_json))


@app.command()
def deprecate(
    name: Annotated[str, typer.Argument(help="The workflow's name.")],
    version: Annotated[str, typer.Argument(help="The version.")],
    *,
    as_json: Json = False,
) -> None:
    """Keep a version from new tasks; what runs goes on. Repeating it changes nothing.

    Example:
      tdp workflow deprecate archive-clean 1
    """
    run(_deprecate(name, version, as_json=as_json))


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


async def _publish(files: list[Path], *, check_only: bool, as_json: bool) -> ExitCode:
    worst = ExitCode.DONE
    async with Connection.find().control() as control:
        for path in files:
            try:
                await _publish_one(control, path, check_only=check_only, as_json=as_json)
            except TdpError as error:
                error.message = f"{path}: {error.message}"
                worst = report_error(error, as_json=as_json)
                if worst is not ExitCode.REFUSED:
                    break  # The next file would find the same silence.
    return worst


async def _publish_one(
    control: ControlPlane, path: Path, *, check_only: bool, as_json: bool
) -> None:
    request = workflows.PublishWorkflowRequest(
        definition=read_definition(path), validate_only=check_only
    )
    answer = await control.ask(Stub(control.channel).PublishWorkflow, request)
    show(
        {"file": str(path), **as_document(answer)},
        as_json=as_json,
        render=lambda console: _render_published(console, answer, check_only=check_only),
    )


async def _get(name: str, version: str, *, as_json: bool) -> None:
    async with Connection.find().control() as control:
        request = workflows.GetWorkflowRequest(name=name, version=version)
        found = (await control.ask(Stub(control.channel).GetWorkflow, request)).workflow
    show(as_document(found), as_json=as_json, render=lambda console: _render_one(console, found))


async def _deprecate(name: str, version: str, *, as_json: bool) -> None:
    async with Connection.find().control() as control:
        request = workflows.DeprecateWorkflowRequest(name=name, version=version)
        found = (await control.ask(Stub(control.channel).DeprecateWorkflow, request)).workflow
    show(as_document(found), as_json=as_json, render=lambda console: _render_one(console, found))


def _render_one(console: Console, workflow: workflows.Workflow) -> None:
    deprecated = workflow.HasField("deprecate_time")
    state = f"[yellow]deprecated[/] {moment(workflow.deprecate_time)}" if deprecated else ""
    console.print(f"[bold]{workflow.name}[/] {workflow.version}  {state}")
    console.print(f"  published {moment(workflow.publish_time)}, digest {workflow.digest}")
    console.print_json(workflow.definition_json)


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
