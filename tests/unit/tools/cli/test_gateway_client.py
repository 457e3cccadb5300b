"""The gateway's client: problems become errors, safe calls are repeated, streams resume."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from aiohttp import web

from foundation.errors import (
    AbortedError,
    AlreadyExistsError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    TdpError,
    UnauthenticatedError,
    UnavailableError,
)
from tests.unit.tools.cli.gateway import served
from tools.cli import gateway_client
from tools.cli.gateway_client import DamagedDownloadError


def problem(status: int, **fields: object) -> web.Response:
    return web.json_response(
        fields, status=status, content_type="application/problem+json", dumps=json.dumps
    )


@pytest.mark.parametrize(
    ("status", "fields", "kind"),
    [
        (401, {"reason": "CREDENTIAL_REFUSED"}, UnauthenticatedError),
        (404, {"reason": "ORDER_NOT_FOUND"}, NotFoundError),
        (409, {"reason": "ORDER_NOT_FINISHED"}, FailedPreconditionError),
        (409, {"reason": "BUSY", "retryable": True}, AbortedError),
        (409, {"reason": "TAKEN", "metadata": {"existing_id": "7"}}, AlreadyExistsError),
        (422, {"reason": "INVALID_ARGUMENT"}, InvalidArgumentError),
        (500, {"reason": "INTERNAL"}, InternalError),
        (503, {"reason": "UNAVAILABLE"}, UnavailableError),
    ],
)
async def test_a_problem_becomes_its_error(
    status: int, fields: dict[str, object], kind: type[TdpError]
) -> None:
    """Each status of a problem document is raised as the error that it means, with its words."""

    async def answer(_request: web.Request) -> web.Response:
        return problem(status, detail="what was wrong", **fields)

    async with served(answer) as client:
        with pytest.raises(kind) as raised:
            await client.post("/orders", {})
    assert type(raised.value) is kind
    assert (raised.value.reason, raised.value.message) == (fields["reason"], "what was wrong")


async def test_a_problem_names_its_fields() -> None:
    """The pointers of a problem come back as field violations."""

    async def answer(_request: web.Request) -> web.Response:
        return problem(422, errors=[{"pointer": "/name", "detail": "is empty"}])

    async with served(answer) as client:
        with pytest.raises(InvalidArgumentError) as raised:
            await client.post("/orders", {})
    [violation] = raised.value.field_violations
    assert (violation.field, violation.description) == ("name", "is empty")


async def test_an_answer_that_is_no_problem_document() -> None:
    """A proxy's page is quoted instead of being parsed."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=418, text="<html>teapot</html>")

    async with served(answer) as client:
        with pytest.raises(InvalidArgumentError, match="teapot"):
            await client.post("/orders", {})


async def test_a_keyed_post_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A POST with an idempotency key is sent again, with that key, until it is answered."""
    keys: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        keys.append(request.headers.get("idempotency-key"))
        return problem(503) if len(keys) < 3 else web.json_response({"order_id": "1"})

    monkeypatch.setattr(gateway_client, "FIRST_WAIT_S", 0.0)
    async with served(answer) as client:
        assert await client.post("/orders", {}, key="k") == {"order_id": "1"}
    assert keys == ["k", "k", "k"]


async def test_a_post_without_key_is_not_repeated() -> None:
    """A POST that has no idempotency key is sent once."""
    count = 0

    async def answer(_request: web.Request) -> web.Response:
        nonlocal count
        count += 1
        return problem(503)

    async with served(answer) as client:
        with pytest.raises(UnavailableError):
            await client.post("/orders", {})
    assert count == 1


async def test_events_resume_after_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that is cut off goes on after the last event that was seen, comments aside."""
    asked: list[str | None] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers.get("last-event-id"))
        number = len(asked)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        text = f': hello\n\nid: {number}\nevent: order\ndata: {{"version":\ndata: {number}}}\n\n'
        await response.write(text.encode())
        return response

    monkeypatch.setattr(gateway_client, "FIRST_WAIT_S", 0.0)
    seen = []
    async with served(answer) as client:
        async for event in client.events("7"):
            seen.append((event.event_id, event.kind, event.data))
            if len(seen) == 2:
                break
    assert seen == [("1", "order", {"version": 1}), ("2", "order", {"version": 2})]
    assert asked == [None, "1"]


async def test_upload_streams_the_file(tmp_path: Path) -> None:
    """An upload carries the file's bytes and name, tells progress, and answers the asset."""
    path = tmp_path / "图片.zip"
    path.write_bytes(bytes(range(256)) * 2000)
    moved: list[int] = []

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        name = request.query["name"]
        return web.json_response({"asset_id": hashlib.sha256(body).hexdigest(), "name": name})

    async with served(answer) as client:
        asset = await client.upload(path, moved.append)
    assert asset["name"] == "图片.zip"
    assert asset["asset_id"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert sum(moved) == path.stat().st_size


async def test_download_keeps_only_what_was_committed(tmp_path: Path) -> None:
    """Bytes with another hash are refused and leave no file; the right ones replace the file."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=b"the bytes")

    place = tmp_path / "a" / "b.bin"
    async with served(answer) as client:
        with pytest.raises(DamagedDownloadError):
            await client.download("/x", place, lambda _count: None, sha256="00" * 32)
        assert list(place.parent.iterdir()) == []
        right = hashlib.sha256(b"the bytes").hexdigest()
        await client.download("/x", place, lambda _count: None, sha256=right)
    assert place.read_bytes() == b"the bytes"


async def test_a_download_begins_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A download that breaks off is begun again: the file is whole, and progress adds up."""
    count = 0
    moved: list[int] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal count
        count += 1
        response = web.StreamResponse(headers={"content-length": "10"})
        await response.prepare(request)
        await response.write(b"01234" if count == 1 else b"0123456789")
        if count == 1:
            assert request.transport is not None
            request.transport.close()
        return response

    monkeypatch.setattr(gateway_client, "FIRST_WAIT_S", 0.0)
    async with served(answer) as client:
        await client.download("/x", tmp_path / "x", moved.append)
    assert (tmp_path / "x").read_bytes() == b"0123456789"
    assert (count, sum(moved)) == (2, 10)


async def test_nobody_there() -> None:
    """A gateway that does not answer is UNAVAILABLE, and the key is in no message."""

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({})

    async with served(answer) as client:
        client._url = "http://127.0.0.1:9/api/v1"
        with pytest.raises(UnavailableError) as raised:
            await client.post("/orders", {})
    assert "secret-key" not in str(raised.value)
