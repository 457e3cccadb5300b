"""uvicorn as a service of the process: its own socket, no signal handlers, a bounded stop."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from foundation.grpc.server import ServerBindError


@dataclass(frozen=True, slots=True)
class RestServerConfig:
    """Where to listen, with TLS or without, and how long a stop may take."""

    host: str = "127.0.0.1"
    # 0 takes a free port; `RestServer.port` says which.
    port: int = 0
    tls_certificate_path: Path | None = None
    tls_key_path: Path | None = None
    stop_grace_s: float = 5.0
    keep_alive_s: int = 30
    connections_max: int = 2_000


class _Uvicorn(uvicorn.Server):
    """Signals belong to the process, which stops its services in order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class RestServer:
    """Serves an ASGI application; a Service.

    `before_stop` is called first when stopping: the place to let live streams end.
    """

    name = "rest-server"

    def __init__(
        self, app: ASGIApp, config: RestServerConfig, before_stop: Callable[[], None]
    ) -> None:
        self._app = app
        self._config = config
        self._before_stop = before_stop
        self._socket: socket.socket | None = None
        self._server: _Uvicorn | None = None
        self._finished = asyncio.Event()

    @property
    def port(self) -> int:
        """The port listened on; 0 before `start`."""
        return 0 if self._socket is None else int(self._socket.getsockname()[1])

    async def start(self) -> None:
        """Listen, so that clients can connect; ServerBindError if that is impossible."""
        config = self._config
        family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((config.host, config.port))
            listening.listen(1_024)
        except OSError as error:
            listening.close()
            raise ServerBindError(
                f"cannot listen on {config.host}:{config.port} ({error.strerror}): free it, or "
                "choose another port (0 takes a free one)"
            ) from error
        listening.setblocking(False)  # noqa: FBT003 - the library's positional flag
        self._socket = listening

    async def run(self) -> None:
        """Serve until stopped."""
        assert self._socket is not None
        self._server = _Uvicorn(self._uvicorn_config())
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            self._finished.set()

    async def stop(self) -> None:
        """End the live streams, let requests end within the grace, and stop listening."""
        self._before_stop()
        if self._server is None:
            if self._socket is not None:
                self._socket.close()
            return
        self._server.should_exit = True
        await self._finished.wait()
        assert self._socket is not None
        self._socket.close()

    def _uvicorn_config(self) -> uvicorn.Config:
        config = self._config
        tls = config.tls_certificate_path
        return uvicorn.Config(
            self._app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=config.keep_alive_s,
            timeout_graceful_shutdown=max(1, round(config.stop_grace_s)),
            limit_concurrency=config.connections_max,
            ssl_certfile=None if tls is None else str(tls),
            ssl_keyfile=None if config.tls_key_path is None else str(config.tls_key_path),
        )
