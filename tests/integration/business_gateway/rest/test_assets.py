"""Assets over REST, with a real database and object store."""

import asyncio
import hashlib
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest

from business_gateway.adapters.outbound.postgres.asset_store import PostgresAssetStore
from business_gateway.core.assets.sweeping import LeftUploads
from tests.integration.business_gateway.gateway import ASSET_BYTES_MAX, Client, Running, zip_bytes

CONTENT = zip_bytes()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


async def _announced(client: Client, **changes: Any) -> dict[str, Any]:
    body = {"name": " a.zip ", "size_bytes": len(CONTENT), **changes}
    status, answer, headers = await client.call("POST", "/api/v1/assets", json=body)
    assert status == 201, answer
    assert headers["Location"] == f"/api/v1/assets/{answer['asset']['asset_id']}"
    return dict(answer)


async def _put(client: Client, announced: dict[str, Any], content: bytes) -> None:
    upload = announced["upload"]
    async with client.session.put(
        upload["url"], data=content, headers={**upload["headers"], "Authorization": ""}
    ) as answer:
        assert answer.status == 200, await answer.text()


async def _complete(client: Client, announced: dict[str, Any]) -> tuple[int, Any]:
    path = f"/api/v1/assets/{announced['asset']['asset_id']}/complete"
    status, answer, _ = await client.call("POST", path)
    return status, answer


async def _nothing_left(running: Running) -> None:
    assert await running.database.fetch("select 1 from assets") == []
    listed = await running.gateway.objects._client.list_objects_v2(
        Bucket=running.gateway.settings.s3_bucket
    )
    assert listed.get("KeyCount", 0) == 0


@pytest.mark.parametrize("sha256", ["", SHA256, SHA256.upper()], ids=["absent", "lower", "upper"])
async def test_a_presigned_upload_becomes_ready(client: Client, sha256: str) -> None:
    """Announce, PUT, complete: READY with what was found; a repeat answers the same."""
    announced = await _announced(client, sha256=sha256)
    assert announced["asset"]["state"] == "UPLOADING"
    await _put(client, announced, CONTENT)
    status, asset = await _complete(client, announced)
    assert (status, asset["state"], asset["size_bytes"]) == (200, "READY", len(CONTENT))
    assert asset["name"] == "a.zip"
    assert await _complete(client, announced) == (200, asset)
    found, read, _ = await client.call("GET", f"/api/v1/assets/{asset['asset_id']}")
    assert (found, read) == (200, asset)


@pytest.mark.parametrize(
    ("changes", "content", "reason"),
    [
        ({"size_bytes": len(CONTENT) + 1}, CONTENT, "ASSET_SIZE_MISMATCH"),
        ({}, b"x" * len(CONTENT), "ASSET_NOT_ZIP"),
        ({"size_bytes": 3}, b"PK\x03", "ASSET_NOT_ZIP"),
        ({"sha256": "0" * 64}, CONTENT, "ASSET_HASH_MISMATCH"),
    ],
)
async def test_an_unacceptable_upload_is_rejected_with_the_reason(
    running: Running, changes: dict[str, Any], content: bytes, reason: str
) -> None:
    """Wrong size, no ZIP and another hash are each REJECTED, and no bytes are kept."""
    client = running.client
    announced = await _announced(client, **changes)
    await _put(client, announced, content)
    status, asset = await _complete(client, announced)
    assert (status, asset["state"], asset["rejection_reason"]) == (200, "REJECTED", reason)
    asset_id = asset["asset_id"]
    assert await running.gateway.objects.head(f"assets/{asset_id}/source.zip") is None
    assert await running.gateway.objects.head(f"uploads/{asset_id}/source.zip") is None


async def test_bytes_sent_after_the_verdict_change_nothing(running: Running) -> None:
    """The upload URL still works after READY, yet it cannot touch what was verified."""
    announced = await _announced(running.client)
    await _put(running.client, announced, CONTENT)
    await _complete(running.client, announced)
    await _put(running.client, announced, b"x" * len(CONTENT))
    key = f"assets/{announced['asset']['asset_id']}/source.zip"
    assert await running.gateway.objects.read_start(key, 4) == CONTENT[:4]


async def test_completing_before_the_upload_is_refused_and_may_be_repeated(client: Client) -> None:
    """Without bytes it is 409 ASSET_NOT_UPLOADED; after the upload it works."""
    announced = await _announced(client)
    status, problem = await _complete(client, announced)
    assert (status, problem["reason"]) == (409, "ASSET_NOT_UPLOADED")
    await _put(client, announced, CONTENT)
    assert (await _complete(client, announced))[1]["state"] == "READY"


async def test_many_completions_at_once_decide_once(client: Client) -> None:
    """Concurrent completions answer READY or ask to come back; one verdict is stored."""
    announced = await _announced(client, sha256=SHA256)
    await _put(client, announced, CONTENT)
    answers = await asyncio.gather(*[_complete(client, announced) for _ in range(8)])
    assert {status for status, _ in answers} <= {200, 409}
    decided = [asset for status, asset in answers if status == 200]
    assert decided
    assert all(one == decided[0] for one in decided)
    assert {one["reason"] for status, one in answers if status == 409} <= {"ASSET_BEING_VERIFIED"}


async def test_a_streamed_upload_is_ready_at_once(running: Running) -> None:
    """The bytes pass through the gateway, hashed on the way, in several parts if need be."""
    content = zip_bytes(content=bytes(range(256)) * 4)
    status, asset, headers = await running.client.call(
        "POST", "/api/v1/assets/content?name=a.zip", data=_chunks(content)
    )
    assert (status, asset["state"]) == (201, "READY")
    assert asset["sha256"] == hashlib.sha256(content).hexdigest()
    assert headers["Location"] == f"/api/v1/assets/{asset['asset_id']}"
    key = f"assets/{asset['asset_id']}/source.zip"
    assert await running.gateway.objects.read_start(key, 10**6) == content


@pytest.mark.parametrize(
    ("query", "content", "status", "reason"),
    [
        ("name=a", b"not a zip at all", 422, "ASSET_NOT_ZIP"),
        ("name=a", b"", 422, "ASSET_NOT_ZIP"),
        (f"name=a&sha256={'0' * 64}", CONTENT, 422, "ASSET_HASH_MISMATCH"),
        ("name=%20", CONTENT, 422, "INVALID_ARGUMENT"),
        ("name=a&sha256=zz", CONTENT, 422, "INVALID_ARGUMENT"),
        ("", CONTENT, 422, "INVALID_ARGUMENT"),
        ("name=a", b"PK\x03\x04" + bytes(ASSET_BYTES_MAX), 413, "BODY_TOO_LARGE"),
    ],
)
async def test_a_refused_stream_leaves_nothing(
    running: Running, query: str, content: bytes, status: int, reason: str
) -> None:
    """Whatever is refused on its way in leaves neither a row nor an object."""
    path = f"/api/v1/assets/content?{query}"
    answer = await running.client.call("POST", path, data=io.BytesIO(content))
    assert (answer[0], answer[1]["reason"]) == (status, reason)
    await _nothing_left(running)


async def test_an_unannounced_length_is_bounded_too(running: Running) -> None:
    """A chunked body over the limit is cut off at the limit, with nothing kept."""
    endless = _chunks(b"PK\x03\x04" + bytes(ASSET_BYTES_MAX))
    status, problem, _ = await running.client.call(
        "POST", "/api/v1/assets/content?name=a", data=endless
    )
    assert (status, problem["status"]) == (413, 413)
    await _nothing_left(running)


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({"name": "", "size_bytes": 1}, 422, "/name"),
        ({"name": "é" * 201, "size_bytes": 1}, 422, "/name"),
        ({"name": "a\x00", "size_bytes": 1}, 422, "/name"),
        ({"name": "a", "size_bytes": 0}, 422, "/size_bytes"),
        ({"name": "a", "size_bytes": "many"}, 422, "/size_bytes"),
        ({"name": "a", "size_bytes": 1, "sha256": "ab"}, 422, "/sha256"),
        ({"name": "a", "size_bytes": 1, "other": 1}, 422, "/other"),
        ({"size_bytes": 1}, 422, "/name"),
    ],
)
async def test_a_wrong_announcement_names_its_field(
    client: Client, body: dict[str, Any], status: int, pointer: str
) -> None:
    """Each wrong field is a problem with a pointer to it."""
    found, problem, headers = await client.call("POST", "/api/v1/assets", json=body)
    assert found == status, problem
    assert headers["Content-Type"] == "application/problem+json"
    assert [one["pointer"] for one in problem["errors"]] == [pointer]


async def test_an_asset_over_the_limit_is_refused_at_once(client: Client) -> None:
    """A size over the limit is 413 before anything is uploaded."""
    body = {"name": "a", "size_bytes": ASSET_BYTES_MAX + 1}
    status, problem, _ = await client.call("POST", "/api/v1/assets", json=body)
    assert (status, problem["reason"]) == (413, "ASSET_TOO_LARGE")


@pytest.mark.parametrize(
    ("asset_id", "status"), [("0190a000-0000-7000-8000-000000000001", 404), ("nonsense", 422)]
)
async def test_an_unknown_asset_is_not_found(client: Client, asset_id: str, status: int) -> None:
    """Reading and completing what is not there says so."""
    assert (await client.call("GET", f"/api/v1/assets/{asset_id}"))[0] == status
    assert (await client.call("POST", f"/api/v1/assets/{asset_id}/complete"))[0] == status


async def test_uploads_that_nobody_completed_are_removed(running: Running) -> None:
    """After their time they go with their bytes; READY ones stay, and so do young ones."""
    ready = await running.client.ready_asset()
    announced = await _announced(running.client)
    await _put(running.client, announced, CONTENT)
    key = f"uploads/{announced['asset']['asset_id']}/source.zip"
    objects, store = running.gateway.objects, PostgresAssetStore(running.database)
    for older_than_s, left in ((60.0, 2), (0.0, 1)):
        sweep = LeftUploads(store, objects, older_than_s=older_than_s, batch=10)
        assert not await sweep.remove()
        assert len(await running.database.fetch("select 1 from assets")) == left
        assert (await objects.head(key) is None) == (left == 1)
    assert (await running.client.call("GET", f"/api/v1/assets/{ready}"))[0] == 200


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 64 * 1024):
        yield content[start : start + 64 * 1024]
