"""The object store adapter on a real S3 server."""

import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from unittest.mock import patch
from urllib.parse import parse_qs, quote, urlsplit

import aiohttp
import pytest
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from business_gateway.adapters.outbound.object_store import S3ObjectStore
from business_gateway.adapters.outbound.presigning import Presigner
from business_gateway.core.errors import ObjectStoreUnavailableError
from business_gateway.core.objects import ObjectFacts
from tests.integration.business_gateway.conftest import PART_BYTES
from tools.dev_stack import ObjectStoreAccess


async def _stream(content: bytes, chunk_bytes: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(content), chunk_bytes):
        yield content[start : start + chunk_bytes]


@pytest.mark.parametrize("size_bytes", [0, 1, 100_001, PART_BYTES, 2 * PART_BYTES + 7])
async def test_a_stream_of_any_length_is_stored_whole_and_hashed(
    objects: S3ObjectStore, size_bytes: int
) -> None:
    """What was streamed in is what hashing in the store and a presigned download give back."""
    content = bytes(one % 251 for one in range(1_000)) * (size_bytes // 1_000 + 1)
    content = content[:size_bytes]
    stored = await objects.put_stream("assets/a/source.zip", _stream(content), "application/zip")
    facts = await objects.head("assets/a/source.zip")
    assert facts is not None
    assert (stored.size_bytes, facts.size_bytes) == (size_bytes, size_bytes)
    assert stored.sha256 == hashlib.sha256(content).digest()
    assert await objects.sha256_of("assets/a/source.zip", facts) == stored.sha256
    assert await objects.read_start("assets/a/source.zip", 4) == content[:4]


async def test_a_stream_that_breaks_leaves_nothing(objects: S3ObjectStore) -> None:
    """An error in the middle of the stream passes through, and no object appears."""

    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * (PART_BYTES + 1)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await objects.put_stream("assets/b/source.zip", broken(), "application/zip")
    assert await objects.head("assets/b/source.zip") is None


async def test_reading_on_from_the_middle_gives_the_rest(objects: S3ObjectStore) -> None:
    """A resumed read starts exactly where the broken one ended, whether or not ranges work."""
    content = bytes(range(256)) * 10
    await objects.put_stream("assets/c/source.zip", _stream(content), "application/zip")
    facts = await objects.head("assets/c/source.zip")
    assert facts is not None
    rest = b"".join([one async for one in objects._chunks("assets/c/source.zip", facts, 1_000)])
    assert rest == content[1_000:]


async def test_presigned_requests_write_and_read(objects: S3ObjectStore) -> None:
    """Anyone with the URL can PUT and GET, with a download name for browsers."""
    put = objects.presign_put("uploads/d/source.zip", "application/zip", 60)
    get = objects.presign_get("uploads/d/source.zip", 60, "结果 1.zip")
    async with aiohttp.ClientSession() as client:
        async with client.put(put.url, data=b"PK\x03\x04", headers=put.headers) as answer:
            assert answer.status == 200
        async with client.get(get.url) as answer:
            assert await answer.read() == b"PK\x03\x04"


async def test_copy_and_delete_say_what_was_there(objects: S3ObjectStore) -> None:
    """A copy has the bytes; copying nothing says so; deleting twice is no error."""
    assert not await objects.copy("uploads/e", "assets/e")
    await objects.put_stream("uploads/e", _stream(b"bytes"), "text/plain")
    assert await objects.copy("uploads/e", "assets/e")
    assert await objects.read_start("assets/e", 10) == b"bytes"
    await objects.delete("assets/e")
    await objects.delete("assets/e")
    assert await objects.head("assets/e") is None


async def test_a_store_that_is_away_is_unavailable(
    objects: S3ObjectStore, object_store: ObjectStoreAccess
) -> None:
    """A missing object under a hash request is a retryable error that shows no signature."""
    with pytest.raises(ObjectStoreUnavailableError) as caught:
        await objects.sha256_of("assets/none", ObjectFacts(10, '"x"'))
    assert caught.value.retryable
    assert object_store.secret_key not in caught.value.message


async def test_a_presigned_request_is_bound_to_what_it_says(objects: S3ObjectStore) -> None:
    """Another method, key or media type, or a past expiry, is refused by the store."""
    put = objects.presign_put("uploads/f/source.zip", "application/zip", 60)
    other_key = put.url.replace("/f/", "/g/")
    async with aiohttp.ClientSession() as client:
        for url, headers in ((other_key, put.headers), (put.url, {"content-type": "text/html"})):
            async with client.put(url, data=b"x", headers=headers) as answer:
                assert answer.status == 403
        async with client.delete(put.url, headers=put.headers) as answer:
            assert answer.status == 403


def test_our_signatures_are_the_library_s() -> None:
    """For keys and names of every kind the URL is, field by field, the one that botocore makes."""
    at = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    presigner = Presigner("https://s3.example:9000", "ACCESS", "SECRET/+", "eu-west-1", "bucket")
    names = {"ResponseContentDisposition": "attachment; filename*=UTF-8''%E7%BB%93 1.zip"}
    for key in ("a/b.zip", "a b/é+~.zip", "x=1&y/%20"):
        ours = presigner.url(
            "GET",
            key,
            at=at,
            valid_s=60,
            query={"response-content-disposition": names["ResponseContentDisposition"]},
        )
        theirs = _signed_by_library("GET", key, at)
        assert parse_qs(urlsplit(ours).query) == {**theirs}


def _signed_by_library(method: str, key: str, at: datetime) -> dict[str, list[str]]:
    request = AWSRequest(
        method,
        f"https://s3.example:9000/bucket/{quote(key)}",
        params={"response-content-disposition": "attachment; filename*=UTF-8''%E7%BB%93 1.zip"},
    )
    signer = S3SigV4QueryAuth(Credentials("ACCESS", "SECRET/+"), "s3", "eu-west-1", expires=60)
    with patch("botocore.auth.get_current_datetime", return_value=at.replace(tzinfo=None)):
        signer.add_auth(request)
    return parse_qs(urlsplit(request.url).query)
