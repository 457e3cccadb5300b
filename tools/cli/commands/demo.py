"""`tdp demo`: one real order through the whole platform, with its evidence."""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from tools.cli import journey
from tools.cli.commands.dev import CONTEXT_NAME
from tools.cli.gateway_client import GatewayClient
from tools.cli.journey import Document
from tools.cli.ladder import render_ladder
from tools.cli.options import Json, run
from tools.cli.output import ExitCode, err, plain, show, status_style
from tools.cli.sample_archive import write_sample
from tools.cli.stack_runner import connection_of, shown_platform, while_alive
from tools.dev_stack.platform import PlatformConfig

app = typer.Typer(rich_markup_mode="rich")
_SETTLING_S: Final = 10.0


@app.command()
def demo(
    *,
    archive: Annotated[
        Path | None,
        typer.Option("--zip", help="Your own ZIP instead of the sample.", exists=True),
    ] = None,
    text: Annotated[str, typer.Option(help="The watermark, 1 to 100 characters.")] = "TDP 演示",
    folder: Annotated[
        Path, typer.Option("--out", help="Where the results go.", file_okay=False)
    ] = Path("out"),
    keep_data: Annotated[
        Path | None,
        typer.Option(help="Keep the stack's data there; `tdp dev --data` goes on with it."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Start everything, run one order through all ten hops, show the evidence, stop everything.

    Ends with 0 if the order was completed, and with 4, saying why, if it needs attention.

    Examples:
      tdp demo
      tdp demo --zip photos.zip --text "© Ada 2031" --out results
      tdp demo --keep-data .data/dev
    """
    request = _Request(archive, journey.watermark(text), folder, keep_data)
    with tempfile.TemporaryDirectory(prefix="tdp-demo-", ignore_cleanup_errors=True) as scratch:
        raise typer.Exit(run(_demo(Path(scratch), request, as_json=as_json)))


@dataclass(frozen=True, slots=True)
class _Request:
    """What the user asked for."""

    archive: Path | None
    text: str
    folder: Path
    keep_data: Path | None


async def _demo(scratch: Path, request: _Request, *, as_json: bool) -> ExitCode:
    data = request.keep_data or scratch / "data"
    async with shown_platform(PlatformConfig(data)) as platform:
        connection = connection_of(platform)
        connection.save(data / CONTEXT_NAME)
        async with GatewayClient(*connection.gateway()) as client:
            story = await while_alive(platform, _story(client, scratch, request))
    show(story, as_json=as_json, render=lambda console: _render(console, story, request))
    return journey.exit_code(story["order"])


async def _story(client: GatewayClient, scratch: Path, request: _Request) -> dict[str, Any]:
    archive = request.archive
    if archive is None:
        archive = scratch / "sample.zip"
        await asyncio.to_thread(write_sample, archive)
    asset_id = await journey.upload(client, archive)
    draft = journey.OrderDraft(
        f"Demo: {archive.name}", request.text, asset_id, journey.new_idempotency_key()
    )
    order = await journey.place(client, draft)
    order = await journey.follow(client, order["order_id"], _tell)
    artifacts = await journey.list_artifacts(client, order["order_id"])
    files = await journey.fetch_artifacts(client, order["order_id"], artifacts, request.folder)
    ladder = await _ladder(client, order)
    return {"order": order, "evidence": ladder, "files": [str(one) for one in files]}


async def _ladder(client: GatewayClient, order: Document) -> Document:
    if order["status"] != "COMPLETED":
        return await journey.get_evidence(client, order["order_id"])
    return await journey.settled_evidence(client, order["order_id"], _SETTLING_S)


def _tell(change: Document) -> None:
    if not err.is_terminal:
        status, percent = change["status"], change["progress_percent"]
        err.print(f"order {status_style(status)} {percent} %")


def _render(console: Console, story: dict[str, Any], request: _Request) -> None:
    render_ladder(console, story["evidence"])
    order = story["order"]
    console.print(f"\nOrder {order['order_id']} is {status_style(order['status'])}.")
    why = journey.diagnosis(order)
    if why:
        console.print(f"  {why}")
    if story["files"]:
        console.print(f"\n[bold]Results[/] in {plain(str(request.folder))}:")
        for name in story["files"]:
            console.print(f"  {plain(name)}")
    console.print(f"\n{_what_next(request)}", style="dim")


def _what_next(request: _Request) -> str:
    if request.keep_data is not None:
        return f"The data is kept: `tdp dev --data {request.keep_data}` runs the stack on it."
    return "Everything was stopped and removed. `make up` (or `tdp dev`) keeps a stack running."
