"""A grpc.aio server as a service: health, reflection, keepalive, size limits, TLS, draining."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from foundation.errors import UnavailableError
from foundation.grpc.messages import MESSAGE_BYTES_MAX

_log = structlog.stdlib.get_logger(__name__)


class ServerBindError(UnavailableError):
    """The server's address cannot be listened on."""

    reason = "SERVER_BIND_FAILED"


@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM files of a TLS server; with a client CA every client must show a certificate."""

    certificate_chain_path: Path
    private_key_path: Path
    client_ca_path: Path | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """Read the files; OSError if one cannot be read."""
        chain = self.certificate_chain_path.read_bytes()
        key = self.private_key_path.read_bytes()
        client_ca = self.client_ca_path.read_bytes() if self.client_ca_path else None
        return grpc.ssl_server_credentials(
            [(key, chain)], client_ca, require_client_auth=client_ca is not None
        )


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How to listen and what to bound; published, since clients have to fit.

    A silent connection is pinged after `keepalive_time_s` and dropped `keepalive_timeout_s`
    later, so a half-open one is noticed within 30 s. Clients may ping as often as
    `client_ping_interval_s_min` without being sent away.
    """

    host: str = "127.0.0.1"
    # 0 takes a free port; `GrpcServer.port` says which.
    port: int = 0
    tls: ServerTls | None = None
    reflection: bool = True
    message_bytes_max: int = MESSAGE_BYTES_MAX
    metadata_bytes_max: int = 16 * 1024
    keepalive_time_s: float = 15.0
    keepalive_timeout_s: float = 10.0
    client_ping_interval_s_min: float = 5.0
    concurrent_streams_max: int = 1_000
    stop_grace_s: float = 10.0

    def options(self) -> list[tuple[str, int]]:
        """Return the channel arguments of the server."""
        ping_interval_ms = _millis(self.client_ping_interval_s_min)
        return [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", self.message_bytes_max),
            ("grpc.max_send_message_length", self.message_bytes_max),
            ("grpc.max_metadata_size", self.metadata_bytes_max),
            ("grpc.max_concurrent_streams", self.concurrent_streams_max),
            ("grpc.keepalive_time_ms", _millis(self.keepalive_time_s)),
            ("grpc.keepalive_timeout_ms", _millis(self.keepalive_timeout_s)),
            # gRPC 1.82 waits a minute for the answer to a ping whatever keepalive says: the
            # ping's own time-out has to be set too, or a half-open connection stays.
            ("grpc.http2.ping_timeout_ms", _millis(self.keepalive_timeout_s)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", ping_interval_ms),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", ping_interval_ms),
        ]


@dataclass(frozen=True, slots=True)
class GrpcService:
    """One service to offer: its full name and the call that adds its servicer to a server."""

    full_name: str
    add_to_server: Callable[[grpc.aio.Server], None]


@dataclass(slots=True)
class GrpcServer:
    """A server that starts serving when told, and drains before it stops.

    `before_stop` are awaited after health says NOT_SERVING and before the server refuses
    calls: the place to send go-aways on long streams.
    """

    config: ServerConfig
    services: Sequence[GrpcService]
    interceptors: Sequence[grpc.aio.ServerInterceptor] = ()
    before_stop: Sequence[Callable[[], Awaitable[None]]] = ()
    name: str = "grpc-server"
    _server: grpc.aio.Server | None = None
    _health: health.aio.HealthServicer = field(default_factory=health.aio.HealthServicer)
    _port: int = 0
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _stopping: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port listened on; 0 before `start`."""
        return self._port

    async def start(self) -> None:
        """Listen and report every service as SERVING; ServerBindError if it cannot listen."""
        server = grpc.aio.server(interceptors=self.interceptors, options=self.config.options())
        for service in self.services:
            service.add_to_server(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if self.config.reflection:
            names = [*self._service_names(), reflection.SERVICE_NAME]
            reflection.enable_server_reflection(names, server)
        self._port = self._bind(server)
        await server.start()
        self._server = server
        for name in ("", *self._service_names()):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        _log.info("grpc_server_started", host=self.config.host, port=self._port)

    async def run(self) -> None:
        """Return once the server has stopped."""
        await self._stopped.wait()

    async def drain(self) -> None:
        """Report NOT_SERVING, for good, so that balancers send no new calls; go on serving."""
        await self._health.enter_graceful_shutdown()

    async def stop(self) -> None:
        """Drain, say the go-aways, let calls end within the grace, stop.

        Idempotent and legal before `start`; returns only when stopped, and goes on stopping
        when the caller is cancelled.
        """
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(
                self._stop_once(), name=f"{self.name}-stop"
            )
        await asyncio.shield(self._stopping)

    async def _stop_once(self) -> None:
        try:
            if self._server is not None:
                await self.drain()
                await self._say_goodbye()
                await self._server.stop(self.config.stop_grace_s)
        finally:
            self._stopped.set()

    async def _say_goodbye(self) -> None:
        for hook in self.before_stop:
            try:
                await hook()
            except Exception:  # noqa: BLE001 - a failed go-away must not keep us from stopping
                _log.exception("grpc_server_stop_hook_failed", hook=repr(hook))

    def _service_names(self) -> list[str]:
        return [*(service.full_name for service in self.services), health.SERVICE_NAME]

    def _bind(self, server: grpc.aio.Server) -> int:
        address = f"{_bracketed(self.config.host)}:{self.config.port}"
        try:
            if self.config.tls is None:
                return server.add_insecure_port(address)
            return server.add_secure_port(address, self.config.tls.credentials())
        except RuntimeError as error:
            raise ServerBindError(
                f"cannot listen on {address}: it is in use or not ours; free it, or choose "
                "another port (0 takes a free one)"
            ) from error


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _millis(seconds: float) -> int:
    return int(seconds * 1_000)
