"""Files from and to the object store by grants: streamed, hashed, resumed, retried in bounds."""

import asyncio
import contextlib
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, Final, Self, TypeVar
from urllib.parse import unquote, urlsplit

import aiohttp
import stamina
from yarl import URL

from foundation.clock import Clock, SystemClock
from node_agent.adapters.outbound.downloads import Download, difference, place, range_of
from node_agent.adapters.outbound.transfer_errors import (
    GrantRefusedError,
    InterruptionError,
    RangeRefusedError,
    ResourceDamagedError,
    ResourceTooLargeError,
    TransferFailedError,
    TransferRefusedError,
    check_status,
    shown_name,
)
from node_agent.core.execution.ports import Grant
from node_agent.sdk.files import GrantSource, Transferred

_Result = TypeVar("_Result")
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TransferConfig:
    """Bounds of one transfer.

    `tries_max` counts failures in a row without headway; `wait_initial_s` and `wait_max_s`
    bound the back-off between them. A connection on which nothing moves for
    `silence_timeout_s` is given up. `size_bytes_max` holds where a grant names no size.
    `restarts_max` bounds how often bytes with a wrong hash are fetched again. File grants
    are for running a capability without servers, and refused otherwise.
    """

    tries_max: int = 8
    wait_initial_s: float = 0.2
    wait_max_s: float = 15.0
    connect_timeout_s: float = 10.0
    silence_timeout_s: float = 30.0
    size_bytes_max: int = 50 * 1024 * _MIB
    chunk_bytes: int = _MIB
    restarts_max: int = 1
    grant_margin_s: float = 2.0
    file_grants: bool = False


class HttpTransfers:
    """Transfers over HTTP by presigned URLs; one connection pool, to be used as a context."""

    def __init__(self, config: TransferConfig, clock: Clock | None = None) -> None:
        """Open nothing yet."""
        self._config = config
        self._clock = clock or SystemClock()
        self._session: aiohttp.ClientSession | None = None
        self._caller = stamina.AsyncRetryingCaller(
            attempts=config.tries_max,
            timeout=None,
            wait_initial=config.wait_initial_s,
            wait_max=config.wait_max_s,
            wait_jitter=config.wait_initial_s,
        )

    async def __aenter__(self) -> Self:
        """Be ready; the pool is opened by the first transfer."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections; idempotent."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def download(
        self, grants: GrantSource, destination: Path, on_bytes: Callable[[], None]
    ) -> Transferred:
        """Write the object to `destination`, whole and checked against the grant, or not at all.

        What an earlier, interrupted call left beside it is the beginning, where the grant has a
        hash that tells in the end.

        Raises:
            TransferFailedError, TransferRefusedError: the store could not or would not.
            ResourceMissingError, ResourceDamagedError, ResourceTooLargeError: the object.
            TdpError: whatever `grants` raises.
        """
        partial = destination.with_name(f"{destination.name}.part")
        try:
            with await asyncio.to_thread(_opened, partial) as file:
                download = Download(grants, file, on_bytes)
                await asyncio.to_thread(download.adopt)
                await self._download_checked(download)
                await asyncio.to_thread(_sync, file)
            partial.replace(destination)
        except Exception:
            # A stop or a death leaves the file for the resumed attempt; a failure leaves nothing.
            partial.unlink(missing_ok=True)
            raise
        return Transferred(download.received_bytes, download.digest.digest())

    async def _download_checked(self, download: Download) -> None:
        for restart in range(self._config.restarts_max + 1):
            await self._download_all(download)
            problem = difference(download)
            if problem is None:
                return
            if restart == self._config.restarts_max:
                raise ResourceDamagedError(
                    f"resource {shown_name(download.grant)} {problem}; upload it again"
                )
            download.begin_again()
            download.complete = False
            download.best_bytes = 0

    async def _download_all(self, download: Download) -> None:
        """Ask until all bytes are here; headway renews the number of tries."""
        while not download.complete:
            await self._retried(lambda: self._try_with_headway(download), download)

    async def _try_with_headway(self, download: Download) -> None:
        best_before = download.best_bytes
        try:
            await self._get(download)
        except InterruptionError as interruption:
            if isinstance(interruption, GrantRefusedError):
                download.grant = None
            if isinstance(interruption, RangeRefusedError):
                await asyncio.to_thread(download.begin_again)
            download.best_bytes = max(download.best_bytes, download.received_bytes)
            if download.best_bytes - best_before < self._config.chunk_bytes:
                raise

    async def _get(self, download: Download) -> None:
        grant = await self._current(download)
        if grant.url.startswith("file:"):
            await self._copy_in(download, grant)
            return
        if download.received_bytes and not download.fits(grant):
            await asyncio.to_thread(download.begin_again)
            download.best_bytes = 0
        headers = {**grant.headers, "Accept-Encoding": "identity", **range_of(download)}
        async with self._request("GET", grant, headers) as response:
            await check_status(response, grant)
            await asyncio.to_thread(place, download, response)
            await self._read_body(download, response)
        download.complete = True

    async def _current(self, download: Download) -> Grant:
        if download.grant is None or self._is_over(download.grant):
            download.grant = await download.grants()
        return download.grant

    def _is_over(self, grant: Grant) -> bool:
        margin = timedelta(seconds=self._config.grant_margin_s)
        return grant.expires_at - self._clock.now() <= margin

    async def _read_body(self, download: Download, response: aiohttp.ClientResponse) -> None:
        promised = download.grant.size_bytes if download.grant is not None else 0
        limit = promised or self._config.size_bytes_max
        async for piece in response.content.iter_chunked(self._config.chunk_bytes):
            if download.received_bytes + len(piece) > limit:
                error = ResourceDamagedError if promised else ResourceTooLargeError
                raise error(
                    f"resource {shown_name(download.grant)} has more than {limit} bytes;"
                    " upload it again"
                )
            await asyncio.to_thread(download.take, piece)
            download.on_bytes()

    async def _copy_in(self, download: Download, grant: Grant) -> None:
        self._check_file_grants(grant)
        download.begin_again()
        await asyncio.to_thread(_read_into, download, grant, self._config.chunk_bytes)
        download.complete = True

    async def upload(
        self, source: Path, grants: GrantSource, on_bytes: Callable[[], None]
    ) -> Transferred:
        """Send the whole file by PUT; every try sends it from its beginning.

        Raises:
            TransferFailedError, TransferRefusedError: the store could not or would not.
            ResourceTooLargeError: the file is over the grant's bound.
            TdpError: whatever `grants` raises.
        """
        upload = _Upload(grants, on_bytes)
        return await self._retried(lambda: self._put(source, upload), upload)

    async def _put(self, source: Path, upload: "_Upload") -> Transferred:
        if upload.grant is None or self._is_over(upload.grant):
            upload.grant = await upload.grants()
        grant = upload.grant
        size_bytes = (await asyncio.to_thread(source.stat)).st_size
        if grant.size_bytes and size_bytes > grant.size_bytes:
            raise ResourceTooLargeError(
                f"{source.name} has {size_bytes} bytes, but the place {shown_name(grant)} takes"
                f" {grant.size_bytes} at most"
            )
        if grant.url.startswith("file:"):
            self._check_file_grants(grant)
            return await asyncio.to_thread(_copy_out, source, grant)
        body = _Body(source, size_bytes, self._config.chunk_bytes, upload.on_bytes)
        headers = {**grant.headers, "Content-Length": str(size_bytes)}
        try:
            async with self._request("PUT", grant, headers, body.pieces()) as response:
                await check_status(response, grant)
        except InterruptionError as interruption:
            upload.interrupted_count += 1
            # A store that refuses a grant may hang up on the body before its answer is read, so
            # an interruption that comes back is taken for such a refusal.
            if isinstance(interruption, GrantRefusedError) or upload.interrupted_count > 1:
                upload.grant = None
            raise
        return body.transferred()

    def _check_file_grants(self, grant: Grant) -> None:
        if not self._config.file_grants:
            raise TransferRefusedError(
                f"the grant for {shown_name(grant)} names a local file; only http(s) is taken"
            )

    @contextlib.asynccontextmanager
    async def _request(
        self,
        method: str,
        grant: Grant,
        headers: Mapping[str, str],
        data: AsyncIterator[bytes] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One request; what may pass becomes an InterruptionError, without the secret URL."""
        try:
            async with self._opened().request(
                # Signed as it stands: the usual normalisation would break the signature.
                method,
                URL(grant.url, encoded=True),
                headers=headers,
                data=data,
                allow_redirects=False,
            ) as response:
                yield response
        except aiohttp.InvalidURL as error:
            raise TransferRefusedError(
                f"the grant for {shown_name(grant)} has a URL that cannot be used"
            ) from error
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            # Not chained: the original may show the URL.
            raise InterruptionError(f"{method} was interrupted: {type(error).__name__}") from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(
                total=None,
                sock_connect=self._config.connect_timeout_s,
                sock_read=self._config.silence_timeout_s,
            )
            self._session = aiohttp.ClientSession(
                timeout=timeout, auto_decompress=False, skip_auto_headers={"Content-Type"}
            )
        return self._session

    async def _retried(
        self, work: Callable[[], Awaitable[_Result]], transfer: "Download | _Upload"
    ) -> _Result:
        try:
            return await self._caller(InterruptionError, work)
        except InterruptionError as interruption:
            raise TransferFailedError(
                f"resource {shown_name(transfer.grant)}: {interruption} (after"
                f" {self._config.tries_max} tries in a row); see whether the object store is well"
            ) from None


@dataclass(slots=True)
class _Upload:
    """One upload; its grant is replaced when it is over or refused."""

    grants: GrantSource
    on_bytes: Callable[[], None]
    grant: Grant | None = None
    interrupted_count: int = 0


class _Body:
    """The content of one try of an upload, hashed as it goes out."""

    def __init__(
        self, source: Path, size_bytes: int, chunk_bytes: int, on_bytes: Callable[[], None]
    ) -> None:
        self._source = source
        self._size_bytes = size_bytes
        self._chunk_bytes = chunk_bytes
        self._on_bytes = on_bytes
        self._sent_bytes = 0
        self._digest = hashlib.sha256()

    async def pieces(self) -> AsyncIterator[bytes]:
        with self._source.open("rb") as file:
            while piece := await asyncio.to_thread(self._next, file):
                yield piece
                self._on_bytes()

    def _next(self, file: BinaryIO) -> bytes:
        # Never more than was announced: a file that grows meanwhile breaks the connection.
        piece = file.read(min(self._chunk_bytes, self._size_bytes - self._sent_bytes))
        self._digest.update(piece)
        self._sent_bytes += len(piece)
        return piece

    def transferred(self) -> Transferred:
        if self._sent_bytes != self._size_bytes:
            # The store answered before it had read all, so what it keeps is not known.
            raise InterruptionError(
                f"the store took {self._sent_bytes} of {self._size_bytes} bytes"
            )
        return Transferred(self._sent_bytes, self._digest.digest())


def _opened(partial: Path) -> BinaryIO:
    """The file, for reading and writing, with what is in it."""
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT, 0o600)
    return os.fdopen(descriptor, "r+b")


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _file_of(grant: Grant) -> Path:
    return Path(unquote(urlsplit(grant.url).path))


def _read_into(download: Download, grant: Grant, chunk_bytes: int) -> None:
    with _file_of(grant).open("rb") as source:
        while piece := source.read(chunk_bytes):
            download.take(piece)
            download.on_bytes()


def _copy_out(source: Path, grant: Grant) -> Transferred:
    target = _file_of(grant)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.part")
    shutil.copyfile(source, partial)
    with partial.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    partial.replace(target)
    return Transferred(target.stat().st_size, digest)
