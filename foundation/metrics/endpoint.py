"""The HTTP endpoint that Prometheus scrapes: GET /metrics, and nothing else."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from prometheus_client import CONTENT_TYPE_LATEST

from foundation.errors import TdpError

_HEAD_BYTES_MAX: Final = 8 * 1024
_REQUEST_TIMEOUT_S: Final = 10.0
_CONNECTIONS_MAX: Final = 16
_log = structlog.stdlib.get_logger(__name__)


class MetricsEndpoint:
    """A Service that answers each scrape with what `render` returns, on a port of its own.

    Small on purpose: one request a connection, heads bounded in size and time, no more than 16
    connections at once. It asks for no credential and shows no secret: bind it where only the
    collector reaches it.
    """

    name = "metrics"

    def __init__(self, host: str, port: int, render: Callable[[], Awaitable[bytes]]) -> None:
        """Prepare; `port` 0 takes a free one."""
        self._host = host
        self._wanted_port = port
        self._render = render
        self._server: asyncio.Server | None = None
        self._open = 0
        self._stopping = asyncio.Event()

    @property
    def port(self) -> int:
        """The port in use, known once started."""
        if self._server is None:
            return self._wanted_port
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listen; OSError if the address is taken."""
        self._server = await asyncio.start_server(
            self._serve, self._host, self._wanted_port, limit=_HEAD_BYTES_MAX
        )
        _log.info("metrics_served", host=self._host, port=self.port)

    async def run(self) -> None:
        """Serve until stopped."""
        await self._stopping.wait()

    async def stop(self) -> None:
        """Stop listening. Idempotent."""
        self._stopping.set()
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                writer.write(await self._answer(reader))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # Whoever asks badly, or goes away, is not answered.
            pass
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        if self._open > _CONNECTIONS_MAX:
            return _response("503 Service Unavailable", b"too many scrapes at once\n")
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path != b"/metrics":
            return _response("404 Not Found", b"metrics are at /metrics\n")
        if method != b"GET":
            return _response("405 Method Not Allowed", b"GET it\n", "Allow: GET\r\n")
        try:
            return _response("200 OK", await self._render(), content_type=CONTENT_TYPE_LATEST)
        except TdpError as error:
            _log.warning("metrics_unavailable", error=str(error))
            return _response("503 Service Unavailable", f"{error.reason}\n".encode())


def _response(
    status: str, body: bytes, headers: str = "", content_type: str = "text/plain; charset=utf-8"
) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n{headers}\r\n"
    )
    return head.encode() + body
