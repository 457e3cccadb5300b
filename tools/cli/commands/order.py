"""`tdp order`: upload an archive and order its processing, follow it, fetch what came out."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from foundation.errors import InvalidArgumentError
from tools.cli import journey
from tools.cli.connection import Connection
from tools.cli.gateway_client import GatewayClient
from tools.cli.journey import Document
from tools.cli.options import Json, Limit, group, run
from tools.cli.output import ExitCode, err, out, plain, show, status_style, table, write_json

app = group("Order the processing of an archive, follow it, and fetch what came out.")
OrderId = Annotated[str, typer.Argument(help="The order's id.")]
Reason = Annotated[str, typer.Option(help="Why; kept with the order.")]
Key = Annotated[
    str, typer.Option("--idempotency-key", help="Repeating with the same key does nothing twice.")
]
_PAGE_SIZE_MAX = 200


@app.command()
def create(
    archive: Annotated[
        Path | None, typer.Argument(help="The ZIP to process.", exists=True, dir_okay=False)
    ] = None,
    *,
    text: Annotated[
        str, typer.Option(help="Watermark of 1 to 100 characters; without it, clean only.")
    ] = "",
    name: Annotated[str, typer.Option(help="The order's name; the file's name if left out.")] = "",
    asset: Annotated[
        str, typer.Option(help="An asset that is uploaded already, instead of a ZIP.")
    ] = "",
    idempotency_key: Annotated[
        str, typer.Option(help="Repeating with the same key and asset orders nothing twice.")
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Follow the order to its end.")] = False,
    as_json: Json = False,
) -> None:
    """Upload a ZIP and order that it be cleaned, and its images be watermarked if a text is given.

    With --wait it ends with 0 if the order was completed, 4 if it needs attention, and 1 if it
    was cancelled.

    Examples:
      tdp order create photos.zip --text "© Ada 2031" --name "Holiday" --wait
      tdp order create photos.zip --json
      tdp order create --asset 0190a5c2-… --text "© Ada" --idempotency-key my-key-1
    """
    if (archive is None) == (not asset):
        raise InvalidArgumentError("give a ZIP to upload, or --asset with the id of one, not both")
    key = idempotency_key or journey.new_idempotency_key()
    chosen = name or (archive.stem if archive is not None else f"asset {asset}")
    draft = journey.OrderDraft(chosen, journey.watermark(text), asset, key)
    raise typer.Exit(run(_create(archive, draft, wait=wait, as_json=as_json)))


@app.command()
def get(order_id: OrderId, *, as_json: Json = False) -> None:
    """Show one order.

    Example:
      tdp order get 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f
    """
    run(_get(order_id, as_json=as_json))


@app.command("list")
def list_orders(
    *,
    status: Annotated[str, typer.Option(help="Only orders of this status.")] = "",
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List orders, newest first.

    Example:
      tdp order list --status NEEDS_ATTENTION
    """
    run(_list(status, limit, as_json=as_json))


@app.command()
def watch(order_id: OrderId, *, as_json: Json = False) -> None:
    """Follow an order, change by change, to its end.

    Ends with 0 if it was completed, 4 if it needs attention, and 1 if it was cancelled.

    Example:
      tdp order watch 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f --json
    """
    raise typer.Exit(run(_watch(order_id, as_json=as_json)))


@app.command()
def cancel(
    order_id: OrderId,
    *,
    reason: Reason = "",
    idempotency_key: Key = "",
    as_json: Json = False,
) -> None:
    """Cancel an order; one that is over stays as it is, and says so.

    Example:
      tdp order cancel 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f --reason "wrong archive"
    """
    key = idempotency_key or journey.new_idempotency_key()
    run(_act(lambda client: journey.cancel(client, order_id, reason, key), as_json=as_json))


@app.command()
def rerun(
    order_id: OrderId,
    *,
    mode: Annotated[str, typer.Option(help="What runs again; FROM_SCRATCH is everything.")] = (
        "FROM_SCRATCH"
    ),
    reason: Reason = "",
    idempotency_key: Key = "",
    as_json: Json = False,
) -> None:
    """Run a finished order again.

    Example:
      tdp order rerun 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f --reason "new font"
    """
    key = idempotency_key or journey.new_idempotency_key()
    run(_act(lambda client: journey.rerun(client, order_id, mode, reason, key), as_json=as_json))


@app.command()
def download(
    order_id: OrderId,
    *,
    folder: Annotated[
        Path, typer.Option("--out", help="The folder to write to.", file_okay=False)
    ] = Path("out"),
    as_json: Json = False,
) -> None:
    """Download the order's artifacts, each checked against the SHA-256 that was committed.

    Example:
      tdp order download 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f --out results
    """
    run(_download(order_id, folder, as_json=as_json))


def _client() -> GatewayClient:
    return GatewayClient(*Connection.find().gateway())


async def _create(
    archive: Path | None, draft: journey.OrderDraft, *, wait: bool, as_json: bool
) -> ExitCode:
    async with _client() as client:
        asset_id = draft.source_asset_id
        if archive is not None:
            asset_id = await journey.upload(client, archive)
        draft = journey.OrderDraft(
            draft.name, draft.watermark_text, asset_id, draft.idempotency_key
        )
        err.print(
            f"asset {asset_id}, idempotency key {draft.idempotency_key} "
            "(repeat with --asset and --idempotency-key: nothing is ordered twice)",
            style="dim",
        )
        order = await journey.place(client, draft)
        if not wait:
            show(order, as_json=as_json, render=lambda console: _render(console, order))
            return ExitCode.DONE
        return await _wait(client, order["order_id"], as_json=as_json)


async def _wait(client: GatewayClient, order_id: str, *, as_json: bool) -> ExitCode:
    order = await journey.follow(client, order_id, lambda _change: None)
    show(order, as_json=as_json, render=lambda console: _render(console, order))
    return journey.exit_code(order)


async def _act(action: Callable[[GatewayClient], Awaitable[Document]], *, as_json: bool) -> None:
    async with _client() as client:
        order = await action(client)
    show(order, as_json=as_json, render=lambda console: _render(console, order))


async def _get(order_id: str, *, as_json: bool) -> None:
    async with _client() as client:
        order = await journey.get_order(client, order_id)
    show(order, as_json=as_json, render=lambda console: _render(console, order))


def _render(console: Console, order: Document) -> None:
    console.print(f"[bold]{plain(order['name'])}[/]  {status_style(order['status'])}")
    said = f"{order['progress_percent']} %, run {order['run']}, created {order['created_at']}"
    console.print(f"  {order['processing_mode']}, {said}")
    for key in ("order_id", "task_id", "execution_id", "source_asset_id"):
        if order.get(key):
            console.print(f"  {key:<16} {order[key]}", style="dim")
    why = journey.diagnosis(order)
    if why:
        console.print(f"  {why}")


async def _list(status: str, limit: int, *, as_json: bool) -> None:
    found: list[Document] = []
    cursor = ""
    async with _client() as client:
        while len(found) < limit:
            query = {"page_size": str(min(limit - len(found), _PAGE_SIZE_MAX))}
            query |= {"cursor": cursor} if cursor else {}
            query |= {"status": status} if status else {}
            page = await client.get("/orders", **query)
            found += page["orders"]
            cursor = page.get("next_cursor") or ""
            if not cursor:
                break
    document = {"orders": found, "next_cursor": cursor}
    show(document, as_json=as_json, render=lambda console: _render_list(console, found))


def _render_list(console: Console, found: list[Document]) -> None:
    rows = table("Orders", "order", "name", "status", "progress", "created")
    for one in found:
        rows.add_row(
            one["order_id"],
            plain(one["name"]),
            status_style(one["status"]),
            f"{one['progress_percent']} %",
            one["created_at"],
        )
    console.print(rows)


async def _watch(order_id: str, *, as_json: bool) -> ExitCode:
    async with _client() as client:
        await journey.get_order(client, order_id)
        order = await journey.follow(
            client, order_id, lambda change: _write_change(change, as_json=as_json)
        )
    if not as_json and journey.diagnosis(order):
        out.print(journey.diagnosis(order))
    return journey.exit_code(order)


def _write_change(change: Document, *, as_json: bool) -> None:
    if as_json:
        write_json(change)
        return
    out.print(
        f"[dim]{change['version']:>4}  {change['occurred_at']}[/]  {change['kind']:<20} "
        f"{status_style(change['status'])} {change['progress_percent']} %"
    )


async def _download(order_id: str, folder: Path, *, as_json: bool) -> None:
    async with _client() as client:
        artifacts = await journey.list_artifacts(client, order_id)
        places = await journey.fetch_artifacts(client, order_id, artifacts, folder)
    document = {"order_id": order_id, "files": [str(place) for place in places]}
    show(document, as_json=as_json, render=lambda console: _render_files(console, places, folder))


def _render_files(console: Console, places: list[Path], folder: Path) -> None:
    for place in places:
        console.print(f"  {plain(str(place))}")
    console.print(f"{len(places)} files in [bold]{plain(str(folder))}[/]")
