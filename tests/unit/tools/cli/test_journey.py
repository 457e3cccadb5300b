"""Following an order, placing its files, and showing its ladder."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from aiohttp import web
from rich.console import Console

from tests.unit.tools.cli.gateway import served
from tools.cli import journey
from tools.cli.journey import OrderDraft, UnsafeArtifactPathError
from tools.cli.ladder import render_ladder
from tools.cli.output import ExitCode
from tools.cli.sample_archive import write_sample


def test_a_draft_without_text_is_clean_only() -> None:
    """The processing mode follows from whether there is a watermark."""
    assert OrderDraft("n", "", "a", "k").document()["processing_mode"] == "ARCHIVE_CLEAN_ONLY"
    watermarked = OrderDraft("n", "text", "a", "k").document()
    assert watermarked["processing_mode"] == "ARCHIVE_CLEAN_THEN_WATERMARK"


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "", "a\x00b"])
async def test_paths_never_leave_the_folder(path: str, tmp_path: Path) -> None:
    """An artifact whose path leads out is refused before anything is downloaded."""

    async def answer(_request: web.Request) -> web.Response:
        raise AssertionError

    artifact = {"artifact_id": "1", "relative_path": path, "size_bytes": 1, "sha256": None}
    async with served(answer) as client:
        with pytest.raises(UnsafeArtifactPathError):
            await journey.fetch_artifacts(client, "7", [artifact], tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_artifacts_of_all_pages() -> None:
    """Listing follows the cursor to the last page."""

    async def answer(request: web.Request) -> web.Response:
        if request.query.get("cursor") == "two":
            return web.json_response({"artifacts": [{"artifact_id": "b"}], "next_cursor": ""})
        return web.json_response({"artifacts": [{"artifact_id": "a"}], "next_cursor": "two"})

    async with served(answer) as client:
        found = await journey.list_artifacts(client, "7")
    assert [one["artifact_id"] for one in found] == ["a", "b"]


async def test_follow_ends_with_the_final_status() -> None:
    """Each change is told in order, and the final order is answered."""
    statuses = ("SUBMITTING", "PROCESSING", "NEEDS_ATTENTION")

    async def answer(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/events"):
            return web.json_response({"status": statuses[-1], "diagnosis": "bad [zip]"})
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for number, status in enumerate(statuses, 1):
            await response.write(f'id: {number}\ndata: {{"status": "{status}"}}\n\n'.encode())
        return response

    told: list[str] = []
    async with served(answer) as client:
        order = await journey.follow(client, "7", lambda change: told.append(change["status"]))
    assert told == list(statuses)
    assert journey.exit_code(order) is ExitCode.NEEDS_ATTENTION
    assert "bad \\[zip]" in journey.diagnosis(order)


def test_the_ladder_shows_every_rung() -> None:
    """Hop, state, identity, place, time, disturbance and verdict are all there, unbroken."""
    identity = "task 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f"
    rung = {
        "hop": 2,
        "title": "Task accepted",
        "state": "DURABLE",
        "store": "control plane PostgreSQL",
        "location": "tasks",
        "identity": identity,
        "record": "row-7",
        "durable_at": "2031-05-20T09:30:01.250000Z",
        "actor": "gateway",
        "summary": "accepted [once]",
        "disturbances": [{"kind": "replayed", "description": "asked twice", "occurred_at": None}],
    }
    stream = io.StringIO()
    ladder = {"order_id": "7", "verdict": "Finished.", "rungs": [rung]}
    render_ladder(Console(file=stream, width=120), ladder)
    text = stream.getvalue()
    for part in (identity, "durable", "tasks", "row-7", "09:30:01.250", "accepted [once]"):
        assert part in text
    assert "replayed asked twice" in text
    assert "Verdict: Finished." in text


def test_the_sample_is_messy_and_always_the_same(tmp_path: Path) -> None:
    """The sample has junk of three kinds, an empty folder, Chinese names, and is reproducible."""
    first, second = tmp_path / "1.zip", tmp_path / "2.zip"
    write_sample(first)
    write_sample(second)
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
    for part in (
        "__MACOSX/",
        "Thumbs.db",
        "desktop.ini",
        ".git/",
        "空文件夹/",
        ".jpg",
        ".png",
        ".txt",
    ):
        assert any(part in name for name in names)


async def test_an_id_is_one_segment_whatever_it_holds() -> None:
    """No id reaches another route; actions carry their reason and the key that repeats them."""
    seen: list[tuple[str, str | None, object]] = []

    async def answer(request: web.Request) -> web.Response:
        body = await request.json() if request.body_exists else None
        seen.append((request.raw_path, request.headers.get("idempotency-key"), body))
        return web.json_response({})

    async with served(answer) as client:
        await journey.get_order(client, "../assets?x")
        await journey.cancel(client, "o/1", "wrong", "key-1")
        await journey.rerun(client, "o 1", "FROM_SCRATCH", "again", "key-2")

    assert seen == [
        ("/api/v1/orders/..%2Fassets%3Fx", None, None),
        ("/api/v1/orders/o%2F1/cancel", "key-1", {"reason": "wrong"}),
        ("/api/v1/orders/o%201/rerun", "key-2", {"mode": "FROM_SCRATCH", "reason": "again"}),
    ]
