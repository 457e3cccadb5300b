"""The replica's one connection to NATS: made in the background, renewed for ever."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from foundation.errors import UnavailableError

CLOSE_GRACE_S: Final = 2.0
# Two pings without an answer end a half-open connection: within 30 s all told.
_PING_INTERVAL_S: Final = 8
_CONNECT_TIMEOUT_S: Final = 2
_RECONNECT_WAIT_S: Final = 1

_log = structlog.stdlib.get_logger(__name__)

Connected = Callable[[], Awaitable[None]]
"""Awaited after the first connection and after each later one; it must not take long."""


class NatsClosedError(UnavailableError):
    """The client has closed the connection for good, so that only a new process has another."""

    reason = "NATS_CLOSED"


class NatsConnection:
    """A Service. NATS only carries hints, so nothing waits for it: not even the start."""

    name: Final = "nats"

    def __init__(self, url: str, client_name: str) -> None:
        """Prepare; `url` may carry user and password and is never logged."""
        self.client: Final = Client()
        self._url = url
        self._client_name = client_name
        self._listeners: list[Connected] = []
        self._ended = asyncio.Event()
        self._finished = asyncio.Event()
        self._running = False
        self._stopping = False
        self._began = False

    @property
    def is_connected(self) -> bool:
        """Whether something that is sent now would leave now."""
        return bool(self.client.is_connected)

    def on_connected(self, listener: Connected) -> None:
        """Await `listener` after each connection, in the order of registration."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Return at once: the connection is made while the service runs."""

    async def run(self) -> None:
        """Keep the connection until `stop`; NatsClosedError when the client gave up."""
        self._running = True
        try:
            async with asyncio.TaskGroup() as group:
                connecting = group.create_task(self._connect(), name="nats-connect")
                await self._ended.wait()
                connecting.cancel()
        finally:
            await self._close()
            self._finished.set()
        if not self._stopping:
            raise NatsClosedError("the connection to NATS was closed for good: restart")

    async def stop(self) -> None:
        """Close the connection, what was published before included."""
        self._stopping = True
        self._ended.set()
        if self._running:
            await self._finished.wait()

    async def _connect(self) -> None:
        self._began = True
        await self.client.connect(
            self._url,
            name=self._client_name,
            error_cb=self._failed,
            disconnected_cb=self._disconnected,
            reconnected_cb=self._connected,
            closed_cb=self._closed,
            connect_timeout=_CONNECT_TIMEOUT_S,
            reconnect_time_wait=_RECONNECT_WAIT_S,
            max_reconnect_attempts=-1,
            ping_interval=_PING_INTERVAL_S,
            max_outstanding_pings=2,
        )
        await self._connected()

    async def _connected(self) -> None:
        _log.info("nats_connected")
        for listener in self._listeners:
            try:
                await listener()
            except (NatsError, TimeoutError, OSError) as error:
                # The connection is lost again; there will be another one.
                _log.warning("nats_listener_failed", error=repr(error))

    async def _disconnected(self) -> None:
        if not self._stopping:
            _log.warning("nats_disconnected")

    async def _failed(self, error: Exception) -> None:
        _log.debug("nats_error", error=repr(error))

    async def _closed(self) -> None:
        self._ended.set()

    async def _close(self) -> None:
        if not self._began:
            return  # The client can't close what was never begun.
        try:
            async with asyncio.timeout(CLOSE_GRACE_S):
                await self.client.close()
        except (NatsError, TimeoutError, OSError) as error:
            _log.warning("nats_close_failed", error=repr(error))
