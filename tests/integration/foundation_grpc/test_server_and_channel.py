"""The server's life, its bounds and keepalive, TLS, and the channel's retries, on loopback."""

import asyncio
import datetime as dt
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf.wrappers_pb2 import StringValue
from grpc_health.v1.health_pb2 import HealthCheckResponse
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from foundation.clock import SystemClock
from foundation.errors import UnavailableError, UnimplementedError
from foundation.failpoints import ReplyDroppedError
from foundation.grpc.channel import (
    ChannelConfig,
    ClientTls,
    call_unary,
    open_channel,
    owned_call,
    wait_until_ready,
)
from foundation.grpc.interceptors import ErrorInterceptor
from foundation.grpc.server import GrpcServer, GrpcService, ServerBindError, ServerConfig, ServerTls
from foundation.ids import SequentialIds
from tests.integration.foundation_grpc.echo import SERVICE, Caller, served


async def test_the_port_is_known_after_start() -> None:
    """Port 0 takes a free port and says which; before the start it is 0."""
    server = GrpcServer(ServerConfig(), [])
    assert server.port == 0
    await server.start()
    assert server.port > 0
    await server.stop()


async def test_stop_is_idempotent_and_legal_before_start() -> None:
    """Stopping twice, at once or before the start ends well, and run returns."""
    never_started = GrpcServer(ServerConfig(), [])
    await never_started.stop()
    await never_started.run()
    server = GrpcServer(ServerConfig(stop_grace_s=0.1), [])
    await server.start()
    await asyncio.gather(server.stop(), server.stop(), server.run())
    await server.stop()


async def test_a_taken_port_is_a_clear_error() -> None:
    """Two servers never share a port silently; the second says which address is taken."""
    async with served() as one:
        second = GrpcServer(ServerConfig(port=one.server.port), [])
        with pytest.raises(ServerBindError, match=one.target):
            await second.start()
        await second.stop()


async def test_draining_is_visible_and_goes_before_the_go_away() -> None:
    """While stopping, health says NOT_SERVING when the go-away hooks run, and calls still work."""
    seen: list[object] = []

    async def go_away() -> None:
        seen.append(await caller.health(SERVICE))
        seen.append((await caller.unary()(StringValue(value="still"), timeout=10.0)).value)

    async def broken() -> None:
        raise OSError("the hook failed")

    async with served(before_stop=(broken, go_away)) as one:
        caller = one.caller
        assert await caller.health("") == HealthCheckResponse.SERVING
        await one.server.stop()
    assert seen == [HealthCheckResponse.NOT_SERVING, "still"]


async def test_stopping_waits_for_calls_up_to_its_grace_even_if_cancelled() -> None:
    """A call past the grace is cut, and a cancelled stop still finishes."""
    async with served(ServerConfig(stop_grace_s=0.1)) as one:
        waiting = one.caller.method("unary", "unary_unary")(StringValue(value="wait"))
        await one.echo.waiting.wait()
        stopping = asyncio.create_task(one.server.stop(), name="stop")
        await asyncio.sleep(0)
        stopping.cancel()
        await one.server.run()
        assert one.echo.cancelled.is_set()
        waiting.cancel()


async def reflected(caller: Caller) -> list[str]:
    """List the services by reflection."""
    info: Any = caller.channel.stream_stream(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        request_serializer=ServerReflectionRequest.SerializeToString,
        response_deserializer=ServerReflectionResponse.FromString,
    )
    # Given beforehand and not written: a write to a stream that was refused meanwhile fails with
    # an error of its own.
    requests = iter([ServerReflectionRequest(list_services="")])
    async with owned_call(info(requests, timeout=10.0)) as stream:
        [answer] = [one async for one in stream]
    return [service.name for service in answer.list_services_response.service]


async def test_reflection_can_be_switched_off() -> None:
    """Reflection lists our services and health; switched off, nobody serves it."""
    async with served() as one:
        assert {SERVICE, "grpc.health.v1.Health"} <= set(await reflected(one.caller))
    async with served(ServerConfig(reflection=False)) as one:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await reflected(one.caller)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_wait_until_ready() -> None:
    """A channel to a live server becomes ready; to a dead port it fails, naming the address."""
    async with served() as one:
        await wait_until_ready(one.caller.channel, target=one.target, timeout_s=10.0)
        target = one.target
    async with open_channel(ChannelConfig(target)) as channel:
        with pytest.raises(UnavailableError, match=target) as caught:
            await wait_until_ready(channel, target=target, timeout_s=0.05)
    assert caught.value.reason == "NOT_CONNECTED"


class Flaky:
    """Loses its reply some times before it answers."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.calls = 0
        self._failures = failures
        self._error = error

    async def unary(self, request: StringValue, _context: object) -> StringValue:
        """Fail the first times, then answer."""
        self.calls += 1
        if self.calls <= self._failures:
            raise self._error
        return request

    def add_to_server(self, server: grpc.aio.Server) -> None:
        """Register the one method."""
        handler: Any = grpc.unary_unary_rpc_method_handler(
            self.unary,
            request_deserializer=StringValue.FromString,
            response_serializer=StringValue.SerializeToString,
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"unary": handler}),)
        )


@asynccontextmanager
async def serving(flaky: Flaky) -> AsyncIterator[str]:
    """Serve a flaky handler; give its address."""
    server = GrpcServer(
        ServerConfig(stop_grace_s=0.1),
        [GrpcService(SERVICE, flaky.add_to_server)],
        [ErrorInterceptor(SequentialIds(), SystemClock())],
    )
    await server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop()


async def test_the_service_config_retries_a_dropped_reply() -> None:
    """A reply lost by a failpoint is UNAVAILABLE, which the published config retries."""
    flaky = Flaky(2, ReplyDroppedError("dropped"))
    async with serving(flaky) as target, open_channel(ChannelConfig(target)) as channel:
        answer = await call_unary(Caller(channel).unary(), StringValue(value="x"), timeout_s=30.0)
    assert (answer.value, flaky.calls) == ("x", 3)


@pytest.mark.parametrize(
    ("error", "retries"),
    [(ReplyDroppedError("dropped"), False), (UnimplementedError("no"), True)],
)
async def test_nothing_else_is_retried(error: Exception, retries: bool) -> None:  # noqa: FBT001 - a parameter of the case
    """Without the config UNAVAILABLE is final, and with it other codes are."""
    flaky = Flaky(1, error)
    async with (
        serving(flaky) as target,
        open_channel(ChannelConfig(target, retries=retries)) as channel,
    ):
        with pytest.raises((UnavailableError, UnimplementedError)):
            await call_unary(Caller(channel).unary(), StringValue(), timeout_s=30.0)
    assert flaky.calls == 1


async def test_an_oversized_request_is_refused_by_the_server_too() -> None:
    """The server's own limit holds against a client that does not check."""
    async with served(ServerConfig(message_bytes_max=1_000, stop_grace_s=0.1)) as one:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await one.caller.unary()(StringValue(value="x" * 2_000), timeout=10.0)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await one.caller.unary()(StringValue(value="ok"), timeout=10.0)).value == "ok"


class BlackHole:
    """A TCP relay that can stop passing bytes without closing anything."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open = asyncio.Event()
        self._open.set()

    def swallow(self) -> None:
        """From now on, pass nothing in either direction."""
        self._open.clear()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """Relay connections to the server; give the relay's port."""
        async with asyncio.TaskGroup() as group:
            pumps: list[asyncio.Task[None]] = []

            async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
                for source, sink in ((reader, far_writer), (far_reader, writer)):
                    pumps.append(group.create_task(self._pump(source, sink), name="pump"))

            listener = await asyncio.start_server(relay, "127.0.0.1", 0)
            try:
                yield listener.sockets[0].getsockname()[1]
            finally:
                listener.close()
                for pump in pumps:
                    pump.cancel()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                await self._open.wait()
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass
        finally:
            sink.close()


async def test_a_half_open_connection_is_noticed_on_both_sides() -> None:
    """When bytes vanish silently, keepalive ends the stream for client and server alike."""
    config = ServerConfig(
        keepalive_time_s=0.3,
        keepalive_timeout_s=0.3,
        client_ping_interval_s_min=0.1,
        stop_grace_s=0.1,
    )
    async with served(config) as one:
        hole = BlackHole(one.server.port)
        async with hole.listening() as port:
            client = ChannelConfig(
                f"127.0.0.1:{port}", retries=False, keepalive_time_s=0.3, keepalive_timeout_s=0.3
            )
            async with open_channel(client) as channel:
                async with session(channel) as stream:
                    await stream.write(StringValue(value="wait"))
                    await one.echo.waiting.wait()
                    hole.swallow()
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await asyncio.wait_for(stream.read(), 20.0)
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            await asyncio.wait_for(one.echo.cancelled.wait(), 20.0)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7


def frame(kind: int, payload: bytes = b"") -> bytes:
    """Make an HTTP/2 frame of the connection itself."""
    return len(payload).to_bytes(3) + bytes([kind, 0]) + bytes(4) + payload


async def answered_pings(port: int) -> int:
    """Send two bursts of ten pings on an idle connection; count the answers before a GOAWAY."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = 0
    try:
        writer.write(PREFACE + frame(SETTINGS))
        for burst in (1, 2):
            writer.write(b"".join(frame(PING, n.to_bytes(8)) for n in range(10)))
            while answers < 10 * burst:
                header = await reader.readexactly(9)
                await reader.readexactly(int.from_bytes(header[:3]))
                if header[3] == GOAWAY:
                    return answers
                answers += header[3] == PING
    finally:
        writer.close()
    return answers


async def test_frequent_client_pings_are_tolerated() -> None:
    """Pings at the published rate are answered; faster ones than that end in a GOAWAY."""
    async with served(ServerConfig(client_ping_interval_s_min=0.0, stop_grace_s=0.1)) as one:
        assert await answered_pings(one.server.port) == 20
    async with served(ServerConfig(client_ping_interval_s_min=5.0, stop_grace_s=0.1)) as one:
        assert await answered_pings(one.server.port) < 20


@asynccontextmanager
async def session(channel: grpc.aio.Channel) -> AsyncIterator[Any]:
    """Open a bidirectional stream of the echo service."""
    async with owned_call(Caller(channel).method("session", "stream_stream")()) as stream:
        yield stream


def write_pem(folder: Path, name: str, issuer: "Issued | None") -> "Issued":
    """Issue a certificate for loopback, self-signed without an issuer."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    names = [x509.DNSName("tdp.test"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .sign(issuer.key if issuer else key, hashes.SHA256())
    )
    chain, private = folder / f"{name}.pem", folder / f"{name}.key"
    chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return Issued(key, subject, chain, private)


class Issued:
    """A certificate on disk and the key to sign more with."""

    def __init__(
        self, key: ec.EllipticCurvePrivateKey, subject: x509.Name, chain: Path, private: Path
    ) -> None:
        self.key, self.subject, self.chain, self.private = key, subject, chain, private


async def test_mutual_tls(tmp_path: Path) -> None:
    """With a client CA, a client with its certificate gets in and one without does not."""
    ca = write_pem(tmp_path, "ca", None)
    server, client = (write_pem(tmp_path, name, ca) for name in ("server", "client"))
    config = ServerConfig(tls=ServerTls(server.chain, server.private, ca.chain), stop_grace_s=0.1)
    async with served(config) as one:
        known = ClientTls(ca.chain, client.chain, client.private)
        config_known = ChannelConfig(one.target, known, authority="tdp.test", retries=False)
        async with open_channel(config_known) as channel:
            answer = await call_unary(
                Caller(channel).unary(), StringValue(value="x"), timeout_s=10.0
            )
            assert answer.value == "x"
        config_unknown = ChannelConfig(one.target, ClientTls(ca.chain), retries=False)
        async with open_channel(config_unknown) as channel:
            with pytest.raises(UnavailableError):
                await call_unary(Caller(channel).unary(), StringValue(), timeout_s=10.0)
