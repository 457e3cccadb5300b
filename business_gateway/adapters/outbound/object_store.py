"""One bucket of an S3 server: streamed both ways, presigned for the address clients see."""

import asyncio
import base64
import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Self
from urllib.parse import quote

import aioboto3
import aiohttp
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from business_gateway.adapters.outbound.multipart import MultipartUpload
from business_gateway.adapters.outbound.presigning import Presigner
from business_gateway.core.errors import ObjectStoreUnavailableError
from business_gateway.core.objects import (
    GrantMethod,
    ObjectFacts,
    PresignedRequest,
    StreamedObject,
)
from foundation.clock import Clock

_MISSING_CODES: Final = frozenset({"404", "NoSuchKey", "NotFound"})
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9._-]")
_UNSATISFIABLE_CODES: Final = frozenset({"416", "InvalidRange"})
_BROKEN: Final = (BotoCoreError, ClientError, aiohttp.ClientError, OSError, TimeoutError)
_READ_CHUNK_BYTES: Final = 256 * 1024
_READ_TRIES_MAX: Final = 5
_READ_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class ObjectStoreConfig:
    """Where the bucket is. `public_endpoint_url` is how clients and nodes reach the same store."""

    endpoint_url: str
    public_endpoint_url: str
    access_key: str
    secret_key: str = field(repr=False)
    bucket: str = ""
    region: str = "us-east-1"
    connections_max: int = 50
    part_bytes: int = 8 * 1024 * 1024
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0


class S3ObjectStore:
    """Implements ObjectStore; open it before use, as an asynchronous context or with `open`."""

    def __init__(self, config: ObjectStoreConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._stack = AsyncExitStack()
        # Untyped: the client's methods are made at run time from the service's description.
        self._client: Any = None
        self._presigner = Presigner(
            endpoint_url=config.public_endpoint_url,
            access_key=config.access_key,
            secret_key=config.secret_key,
            region=config.region,
            bucket=config.bucket,
        )

    async def open(self) -> None:
        """Make the client; nothing is connected yet. Idempotent."""
        if self._client is not None:
            return
        client = _client(aioboto3.Session(), self._config)
        self._client = await self._stack.enter_async_context(client)

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        self._client = None
        await self._stack.aclose()

    async def __aenter__(self) -> Self:
        """Open it."""
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    async def head(self, key: str) -> ObjectFacts | None:
        """See ObjectStore."""
        async with _translated("HEAD", key):
            try:
                found = await self._client.head_object(
                    Bucket=self._config.bucket, Key=key, ChecksumMode="ENABLED"
                )
            except ClientError as error:
                if _is_missing(error):
                    return None
                raise
        return ObjectFacts(found["ContentLength"], found["ETag"], _trusted_sha256(found))

    async def read_start(self, key: str, size_bytes: int) -> bytes:
        """See ObjectStore."""
        async with _translated("GET", key):
            try:
                found = await self._client.get_object(
                    Bucket=self._config.bucket, Key=key, Range=f"bytes=0-{size_bytes - 1}"
                )
            except ClientError as error:
                # An object without bytes has no range that could be satisfied.
                if _code(error) in _UNSATISFIABLE_CODES:
                    return b""
                raise
            async with found["Body"] as body:
                return await _first_bytes(body.content, size_bytes)

    async def sha256_of(self, key: str, facts: ObjectFacts) -> bytes:
        """See ObjectStore."""
        digest = hashlib.sha256()
        read_bytes = tries = 0
        while read_bytes < facts.size_bytes:
            before = read_bytes
            try:
                async for chunk in self._chunks(key, facts, read_bytes):
                    digest.update(chunk)
                    read_bytes += len(chunk)
                if read_bytes != facts.size_bytes:
                    raise ConnectionResetError
            except _BROKEN as error:
                # The library retries a request, but not a body that breaks off.
                tries = 1 if read_bytes > before else tries + 1
                if tries >= _READ_TRIES_MAX or _is_final(error):
                    raise _unavailable("GET", key, error) from error
                await asyncio.sleep(_READ_PAUSE_S * tries)
        return digest.digest()

    async def put_stream(
        self, key: str, chunks: AsyncIterator[bytes], media_type: str
    ) -> StreamedObject:
        """See ObjectStore."""
        upload = MultipartUpload(
            self._client, self._config.bucket, key, media_type, self._config.part_bytes
        )
        digest = hashlib.sha256()
        size_bytes = 0
        try:
            # Only the upload's own failures are the store's: those of `chunks` pass untouched.
            async for chunk in chunks:
                digest.update(chunk)
                size_bytes += len(chunk)
                async with _translated("PUT", key):
                    await upload.add(chunk)
            async with _translated("PUT", key):
                await upload.finish()
        except BaseException:
            await asyncio.shield(upload.abort())
            raise
        return StreamedObject(size_bytes, digest.digest())

    async def copy(self, source_key: str, target_key: str) -> bool:
        """See ObjectStore."""
        bucket = self._config.bucket
        async with _translated("COPY", target_key):
            try:
                await self._client.copy_object(
                    Bucket=bucket,
                    Key=target_key,
                    CopySource={"Bucket": bucket, "Key": source_key},
                )
            except ClientError as error:
                if _is_missing(error):
                    return False
                raise
        return True

    async def delete(self, key: str) -> None:
        """See ObjectStore."""
        async with _translated("DELETE", key):
            try:
                await self._client.delete_object(Bucket=self._config.bucket, Key=key)
            except ClientError as error:
                if not _is_missing(error):
                    raise

    def presign_put(self, key: str, media_type: str, valid_s: int) -> PresignedRequest:
        """See ObjectStore."""
        headers = {"content-type": media_type}
        now = self._clock.now()
        url = self._presigner.url("PUT", key, at=now, valid_s=valid_s, headers=headers)
        return PresignedRequest(GrantMethod.PUT, url, headers, now + timedelta(seconds=valid_s))

    def presign_get(self, key: str, valid_s: int, download_name: str = "") -> PresignedRequest:
        """See ObjectStore."""
        query = {}
        if download_name:
            query["response-content-disposition"] = _attachment(download_name)
        now = self._clock.now()
        url = self._presigner.url("GET", key, at=now, valid_s=valid_s, query=query)
        return PresignedRequest(GrantMethod.GET, url, {}, now + timedelta(seconds=valid_s))

    async def _chunks(self, key: str, facts: ObjectFacts, start: int) -> AsyncIterator[bytes]:
        found = await self._client.get_object(
            Bucket=self._config.bucket, Key=key, Range=f"bytes={start}-", IfMatch=facts.etag
        )
        async with found["Body"] as body:
            # A server that ignores the range sends what is known already: pass over it.
            left_bytes = start if _ignores_range(found, start, facts) else 0
            async for chunk in body.content.iter_chunked(_READ_CHUNK_BYTES):
                if left_bytes >= len(chunk):
                    left_bytes -= len(chunk)
                else:
                    yield chunk[left_bytes:]
                    left_bytes = 0


def _client(session: aioboto3.Session, config: ObjectStoreConfig) -> Any:  # noqa: ANN401 - see S3ObjectStore
    return session.client(
        "s3",
        endpoint_url=config.endpoint_url,
        aws_access_key_id=config.access_key,
        aws_secret_access_key=config.secret_key,
        region_name=config.region,
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path"},
            max_pool_connections=config.connections_max,
            connect_timeout=config.connect_timeout_s,
            read_timeout=config.read_timeout_s,
            retries={"mode": "standard", "max_attempts": 3},
            # Stores that only speak S3 refuse or ignore checksums that nobody asked for.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


async def _first_bytes(content: aiohttp.StreamReader, size_bytes: int) -> bytes:
    """Take no more than was asked for, as a server may ignore the range and send everything."""
    start = b""
    while len(start) < size_bytes:
        chunk = await content.read(size_bytes - len(start))
        if not chunk:
            break
        start += chunk
    return start


@asynccontextmanager
async def _translated(verb: str, key: str) -> AsyncIterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise _unavailable(verb, key, error) from error


def _unavailable(verb: str, key: str, error: Exception) -> ObjectStoreUnavailableError:
    # Not the error's own text, which may quote an address with its signature.
    code = _code(error) if isinstance(error, ClientError) else type(error).__name__
    return ObjectStoreUnavailableError(
        f"the object store failed at {verb} {key} ({code}): try again later", retry_delay_s=2.0
    )


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _is_missing(error: ClientError) -> bool:
    return _code(error) in _MISSING_CODES


def _is_final(error: Exception) -> bool:
    """Whether reading on cannot help: the object is gone or is another one by now."""
    return isinstance(error, ClientError) and (
        _is_missing(error) or _code(error) in {"PreconditionFailed", "412", "AccessDenied", "403"}
    )


def _ignores_range(found: Mapping[str, Any], start: int, facts: ObjectFacts) -> bool:
    return start > 0 and found["ContentLength"] == facts.size_bytes


def _trusted_sha256(found: Mapping[str, Any]) -> bytes | None:
    """Return the hash that the store itself checked, unless it is one of parts' hashes."""
    text = found.get("ChecksumSHA256", "")
    if not text or "-" in text or found.get("ChecksumType", "FULL_OBJECT") != "FULL_OBJECT":
        return None
    return base64.b64decode(text)


def _attachment(name: str) -> str:
    plain = _NOT_PLAIN.sub("_", name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
