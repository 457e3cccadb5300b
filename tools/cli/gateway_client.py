"""The gateway's REST interface, as the command line needs it."""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import aiohttp

from foundation.errors import (
    AbortedError,
    AlreadyExistsError,
    DeadlineExceededError,
    ErrorCode,
    FailedPreconditionError,
    FieldViolation,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    TdpError,
    UnauthenticatedError,
    UnavailableError,
    is_reason,
)

CHUNK_BYTES: Final = 256 * 1024
_Result = TypeVar("_Result")
RETRIES_MAX: Final = 12
# Doubled with each failure in a row; no wait is longer than LONGEST_WAIT_S.
FIRST_WAIT_S = 0.2
LONGEST_WAIT_S: Final = 2.0
_KINDS: Final[Mapping[int, type[TdpError]]] = {
    400: InvalidArgumentError,
    401: UnauthenticatedError,
    404: NotFoundError,
    413: InvalidArgumentError,
    422: InvalidArgumentError,
    429: ResourceExhaustedError,
    502: UnavailableError,
    503: UnavailableError,
    504: DeadlineExceededError,
}
_REFUSED: Final = 400
_CONFLICT: Final = 409
_SERVER_ERROR: Final = 500
_WORTH_REPEATING: Final = (UnavailableError, AbortedError, DeadlineExceededError)


class DamagedDownloadError(TdpError):
    """What was downloaded is not what was committed; nothing of it was kept."""

    reason = "DOWNLOAD_DAMAGED"
    code = ErrorCode.DATA_LOSS


Progress = Callable[[int], None]
"""Told how many more bytes have moved."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of the stream of an order."""

    event_id: str
    kind: str
    data: dict[str, Any]


class GatewayClient:
    """Calls the gateway; every error is a TdpError with the problem's own words."""

    def __init__(self, url: str, key: str) -> None:
        self._url = f"{url}/api/v1"
        self._headers = {"authorization": f"Bearer {key}"}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the session."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=120)
        self._session = aiohttp.ClientSession(timeout=timeout)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the session."""
        assert self._session is not None
        await self._session.close()

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        """GET a JSON document; repeated while the gateway is away for a moment."""
        return await self._patiently("GET", path, params=query)

    async def post(
        self, path: str, body: object = None, *, key: str | None = None
    ) -> dict[str, Any]:
        """POST a JSON document; with an idempotency key it is safe to repeat, and repeated."""
        headers = {} if key is None else {"idempotency-key": key}
        if key is None:
            return await self._call("POST", path, json=body, headers=headers)
        return await self._patiently("POST", path, json=body, headers=headers)

    async def upload(self, path: Path, progress: Progress) -> dict[str, Any]:
        """Stream a file through the gateway as a new asset, verified before it is answered."""

        async def chunks() -> AsyncIterator[bytes]:
            with path.open("rb") as file:
                while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                    yield chunk
                    progress(len(chunk))

        headers = {
            "content-type": "application/zip",
            "content-length": str((await asyncio.to_thread(path.stat)).st_size),
        }
        return await self._call(
            "POST", "/assets/content", params={"name": path.name}, data=chunks(), headers=headers
        )

    async def download(
        self, path: str, destination: Path, progress: Progress, *, sha256: str = ""
    ) -> None:
        """Stream bytes to a file, which appears only when whole; begun again when it breaks off.

        DamagedDownloadError if a SHA-256 (hex) is given and the bytes have another.
        """
        partial = destination.with_name(destination.name + ".part")
        destination.parent.mkdir(parents=True, exist_ok=True)
        digest = await self._repeated(lambda: self._fetch(path, partial, progress))
        if sha256 and digest != sha256:
            partial.unlink()
            raise DamagedDownloadError(f"{path}: the bytes have another SHA-256 than was committed")
        partial.replace(destination)

    async def _fetch(self, path: str, place: Path, progress: Progress) -> str:
        """Download once; answer the SHA-256, or take the progress back."""
        digest, moved = hashlib.sha256(), 0
        try:
            async with self._response("GET", path) as response:
                with place.open("wb") as file:
                    async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                        digest.update(chunk)
                        await asyncio.to_thread(file.write, chunk)
                        moved += len(chunk)
                        progress(len(chunk))
        except BaseException:
            progress(-moved)
            _remove(place)
            raise
        return digest.hexdigest()

    async def events(self, order_id: str) -> AsyncGenerator[ServerEvent, None]:
        """Yield the changes of an order, resuming after the last one seen when cut off."""
        last_id, failures = "", 0
        while failures < RETRIES_MAX:
            headers = {"accept": "text/event-stream"}
            if last_id:
                headers["last-event-id"] = last_id
            try:
                path = f"/orders/{segment(order_id)}/events"
                async with self._response("GET", path, headers=headers) as response:
                    async for event in _parsed(response.content):
                        last_id, failures = event.event_id or last_id, 0
                        yield event
                    failures += 1
            except UnavailableError:
                failures += 1
            await asyncio.sleep(_wait_s(failures - 1))
        raise UnavailableError("the gateway does not answer: is it running?")

    async def _patiently(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        return await self._repeated(lambda: self._call(method, path, **options))

    @staticmethod
    async def _repeated(call: Callable[[], Awaitable[_Result]]) -> _Result:
        for failures in range(RETRIES_MAX):
            try:
                return await call()
            except _WORTH_REPEATING:
                if failures == RETRIES_MAX - 1:
                    raise
                await asyncio.sleep(_wait_s(failures))
        raise AssertionError

    async def _call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        async with self._response(method, path, **options) as response:
            text = await response.text()
            document: dict[str, Any] = json.loads(text) if text else {}
            return document

    @asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        **options: Any,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._session is not None, "use it as a context manager"
        headers = {**self._headers, **options.pop("headers", {})}
        try:
            async with self._session.request(
                method, self._url + path, headers=headers, **options
            ) as response:
                if response.status >= _REFUSED:
                    raise _problem(response.status, await response.text())
                yield response
        except aiohttp.InvalidURL as error:
            raise InvalidArgumentError(
                f"the gateway's URL {self._url!r} is none: let TDP_CLI_GATEWAY_URL be such as "
                "http://127.0.0.1:8080"
            ) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(f"{self._url} does not answer: {error}") from error


def segment(text: str) -> str:
    """Return a text as one segment of a path, whatever a person typed."""
    return quote(text, safe="")


def _remove(place: Path) -> None:
    place.unlink(missing_ok=True)


def _wait_s(failures: int) -> float:
    return min(FIRST_WAIT_S * 2.0 ** max(0, failures), LONGEST_WAIT_S)


async def _parsed(stream: aiohttp.StreamReader) -> AsyncIterator[ServerEvent]:
    """Parse server-sent events: fields until an empty line, comments skipped."""
    fields: dict[str, str] = {}
    async for raw in stream:
        line = raw.decode().rstrip("\r\n")
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name in fields else value
        elif fields:
            data = json.loads(fields.get("data", "{}"))
            yield ServerEvent(fields.get("id", ""), fields.get("event", "message"), data)
            fields = {}


def _problem(status: int, text: str) -> TdpError:
    """Return the error that a problem document tells of (RFC 9457)."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    problem: dict[str, Any] = found if isinstance(found, dict) else {"detail": text[:500]}
    detail = str(problem.get("detail") or problem.get("title") or f"status {status}")
    reason = str(problem.get("reason") or "REFUSED")
    reason = reason if is_reason(reason) else "REFUSED"
    if status == _CONFLICT:
        return _conflict(problem, detail, reason)
    violations = [
        FieldViolation(str(one.get("pointer", "")).lstrip("/"), str(one.get("detail", "")))
        for one in problem.get("errors", ())
        if isinstance(one, dict)
    ]
    otherwise = InternalError if status >= _SERVER_ERROR else InvalidArgumentError
    return _KINDS.get(status, otherwise)(detail, reason=reason, field_violations=violations)


def _conflict(problem: dict[str, Any], detail: str, reason: str) -> TdpError:
    existing_id = problem.get("metadata", {}).get("existing_id")
    if existing_id:
        return AlreadyExistsError(detail, existing_id=str(existing_id), reason=reason)
    kind = AbortedError if problem.get("retryable") else FailedPreconditionError
    return kind(detail, reason=reason)
