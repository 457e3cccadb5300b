"""The steps of an order as a client takes them: upload, order, follow, fetch; with progress."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from foundation.errors import InternalError, InvalidArgumentError
from tools.cli.gateway_client import GatewayClient, segment
from tools.cli.output import ExitCode, err, plain, status_style

FINAL_STATUSES: Final = frozenset({"COMPLETED", "NEEDS_ATTENTION", "CANCELED"})
_EXIT_CODES: Final[Mapping[str, ExitCode]] = {
    "COMPLETED": ExitCode.DONE,
    "NEEDS_ATTENTION": ExitCode.NEEDS_ATTENTION,
    "CANCELED": ExitCode.FAILED,
}
_SETTLED: Final = frozenset({"DURABLE", "NOT_APPLICABLE"})
_LOOK_PERIOD_S: Final = 0.2
_PERCENT: Final = 100
WATERMARK_CHARS_MAX: Final = 100
Document = dict[str, Any]


class UnsafeArtifactPathError(InternalError):
    """An artifact's path would leave the output folder; nothing was written for it."""

    reason = "ARTIFACT_PATH_UNSAFE"


@dataclass(frozen=True, slots=True)
class OrderDraft:
    """What to order. Without a text the archive is only cleaned."""

    name: str
    watermark_text: str
    source_asset_id: str
    idempotency_key: str

    def document(self) -> Document:
        """Return the request's body."""
        mode = "ARCHIVE_CLEAN_THEN_WATERMARK" if self.watermark_text else "ARCHIVE_CLEAN_ONLY"
        return {
            "name": self.name,
            "processing_mode": mode,
            "watermark_text": self.watermark_text,
            "source_asset_id": self.source_asset_id,
        }


def new_idempotency_key() -> str:
    """Make a key for one order; repeating with it orders nothing twice."""
    return f"cli-{uuid.uuid4()}"


def watermark(text: str) -> str:
    """Return the text if it can be a watermark, before anything is started or uploaded for it.

    Raises InvalidArgumentError for more than 100 characters and for blanks alone; empty stands
    for no watermark.
    """
    trimmed = text.strip()
    if text and not trimmed:
        raise InvalidArgumentError("the watermark is blank: give a text, or none to clean only")
    if len(trimmed) > WATERMARK_CHARS_MAX:
        raise InvalidArgumentError(
            f"the watermark has {len(trimmed)} characters: at most {WATERMARK_CHARS_MAX} are taken"
        )
    return trimmed


async def upload(client: GatewayClient, path: Path) -> str:
    """Upload a ZIP and answer the asset's id; the gateway has verified it then."""
    with bars(DownloadColumn()) as progress:
        size_bytes = (await asyncio.to_thread(path.stat)).st_size
        bar = progress.add_task("upload", total=size_bytes)
        asset = await client.upload(path, lambda count: progress.advance(bar, count))
    return str(asset["asset_id"])


async def place(client: GatewayClient, draft: OrderDraft) -> Document:
    """Create the order; repeated on failures, under the draft's key."""
    return await client.post("/orders", draft.document(), key=draft.idempotency_key)


async def get_order(client: GatewayClient, order_id: str) -> Document:
    """Read the order."""
    return await client.get(f"/orders/{segment(order_id)}")


async def cancel(client: GatewayClient, order_id: str, reason: str, key: str) -> Document:
    """Ask that the order be cancelled; one that is over is answered as it is."""
    return await client.post(f"/orders/{segment(order_id)}/cancel", {"reason": reason}, key=key)


async def rerun(client: GatewayClient, order_id: str, mode: str, reason: str, key: str) -> Document:
    """Run a finished order again."""
    body = {"mode": mode, "reason": reason}
    return await client.post(f"/orders/{segment(order_id)}/rerun", body, key=key)


async def changes(client: GatewayClient, order_id: str) -> AsyncGenerator[Document, None]:
    """Yield the order's changes from the present one to the final one."""
    async with aclosing(client.events(order_id)) as events:
        async for event in events:
            change = event.data
            if "status" not in change:
                continue
            yield change
            if change["status"] in FINAL_STATUSES:
                return


async def follow(
    client: GatewayClient, order_id: str, on_change: Callable[[Document], None]
) -> Document:
    """Tell each change until the order is final, with a bar; answer the final order."""
    with bars() as progress:
        bar = progress.add_task("order", total=_PERCENT)
        async for change in changes(client, order_id):
            _move(progress, bar, change)
            on_change(change)
    return await get_order(client, order_id)


def _move(progress: Progress, bar: TaskID, change: Document) -> None:
    progress.update(
        bar,
        completed=change.get("progress_percent", 0),
        description=f"order {status_style(change['status'])}",
    )


async def get_evidence(client: GatewayClient, order_id: str) -> Document:
    """Read the ladder as it stands."""
    return await client.get(f"/orders/{segment(order_id)}/evidence")


async def settled_evidence(client: GatewayClient, order_id: str, patience_s: float) -> Document:
    """Read the ladder of a finished order once its last marks are durable, or after the patience.

    An order is final as soon as its news is stored; that the news was delivered is noted after it.
    """
    ends_at_s = time.monotonic() + patience_s
    while True:
        ladder = await get_evidence(client, order_id)
        states = {rung["state"] for rung in ladder["rungs"]}
        if states <= _SETTLED or time.monotonic() > ends_at_s:
            return ladder
        await asyncio.sleep(_LOOK_PERIOD_S)


async def list_artifacts(client: GatewayClient, order_id: str) -> Sequence[Document]:
    """Read all artifacts of the order."""
    found: list[Document] = []
    cursor = ""
    while True:
        query = {"cursor": cursor} if cursor else {}
        page = await client.get(f"/orders/{segment(order_id)}/artifacts", **query)
        found += page["artifacts"]
        cursor = page.get("next_cursor") or ""
        if not cursor:
            return found


async def fetch_artifacts(
    client: GatewayClient, order_id: str, artifacts: Sequence[Document], folder: Path
) -> list[Path]:
    """Download artifacts below the folder by their paths, each checked against its SHA-256.

    UnsafeArtifactPathError for a path that would leave the folder.
    """
    places = [_place(folder, one["relative_path"]) for one in artifacts]
    with bars(DownloadColumn()) as progress:
        bar = progress.add_task("download", total=sum(one["size_bytes"] for one in artifacts))
        for artifact, place in zip(artifacts, places, strict=True):
            await client.download(
                f"/orders/{segment(order_id)}/artifacts/{artifact['artifact_id']}/download",
                place,
                lambda count: progress.advance(bar, count),
                sha256=artifact.get("sha256") or "",
            )
    return places


def _place(folder: Path, path: str) -> Path:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\x00" in path:
        raise UnsafeArtifactPathError(f"artifact path {path!r} leads out of {folder}")
    return folder.joinpath(*parts)


def exit_code(order: Document) -> ExitCode:
    """What the command's exit status says of the order."""
    return _EXIT_CODES.get(order["status"], ExitCode.DONE)


def diagnosis(order: Document) -> str:
    """Return, as markup, why the order needs attention; empty if it does not."""
    if order["status"] != "NEEDS_ATTENTION":
        return ""
    return f"[bold red]NEEDS_ATTENTION[/] {plain(str(order.get('diagnosis') or 'no reason given'))}"


@contextmanager
def bars(*columns: DownloadColumn) -> Iterator[Progress]:
    """Show progress bars on a terminal; elsewhere nothing is written."""
    described = TextColumn("{task.description}")
    share = TextColumn("{task.percentage:>3.0f} %")
    with Progress(
        described,
        BarColumn(),
        *(columns or (share,)),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    ) as progress:
        yield progress
