"""A small service over StringValue with every kind of handler, for a server on loopback."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import grpc
from google.protobuf.wrappers_pb2 import StringValue
from grpc.aio import UnaryUnaryMultiCallable as Unary
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from foundation.clock import SystemClock
from foundation.errors import FailedPreconditionError, FieldViolation, InvalidArgumentError
from foundation.grpc.channel import ChannelConfig, open_channel
from foundation.grpc.interceptors import HEALTH_METHODS, RpcObserver, server_interceptors
from foundation.grpc.server import GrpcServer, GrpcService, ServerConfig
from foundation.ids import SequentialIds
from foundation.principals import Authenticator, current_principal

SERVICE = "tdp.test.Echo"
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class LeaseLostError(FailedPreconditionError):
    """A process's error with a reason of its own."""

    reason = "LEASE_LOST"


def act(text: str) -> str:
    """Answer the text, or fail as it asks."""
    match text:
        case "lease":
            raise LeaseLostError("lease 3 of attempt 7 is lost: stop it", metadata={"lease": "3"})
        case "bug":
            raise ZeroDivisionError("secret-in-a-traceback")
        case "invalid":
            raise InvalidArgumentError.of_fields([FieldViolation("name", "is empty", "EMPTY")])
        case "todo":
            raise NotImplementedError
        case "group":
            raise ExceptionGroup("tasks", [LeaseLostError("lost: stop")])
        case "who":
            return current_principal().id
        case _:
            return text


@dataclass
class Echo:
    """The handlers; `cancelled` says that a waiting one was cancelled, `calls` counts tries."""

    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    calls: int = 0

    async def unary(self, request: StringValue, context: Context) -> StringValue:
        """Answer the request's text once."""
        self.calls += 1
        if request.value == "abort":
            await context.abort(grpc.StatusCode.DATA_LOSS, "by hand")
        if request.value == "wait":
            await self._wait()
        return StringValue(value=act(request.value))

    async def generator(
        self, request: StringValue, _context: Context
    ) -> AsyncIterator[StringValue]:
        """Answer twice, as an async generator."""
        yield StringValue(value="first")
        yield StringValue(value=act(request.value))

    async def writer(self, request: StringValue, context: Context) -> None:
        """Answer twice, by context.write."""
        await context.write(StringValue(value="first"))
        await context.write(StringValue(value=act(request.value)))

    async def collect(self, requests: AsyncIterator[StringValue], _context: Context) -> StringValue:
        """Join a stream of requests."""
        return StringValue(value="".join([act(one.value) async for one in requests]))

    async def session(self, _requests: object, context: Context) -> None:
        """Answer each message of a bidirectional stream, by context.read and write."""
        while (request := await context.read()) is not grpc.aio.EOF:
            if request.value == "wait":
                await self._wait()
            await context.write(StringValue(value=act(request.value)))

    async def chat(
        self, requests: AsyncIterator[StringValue], _context: Context
    ) -> AsyncIterator[StringValue]:
        """Answer each message of a bidirectional stream, as an async generator."""
        async for request in requests:
            yield StringValue(value=act(request.value))

    async def _wait(self) -> None:
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    def add_to_server(self, server: grpc.aio.Server) -> None:
        """Register every handler, as generated code would."""
        kinds: dict[str, Callable[..., Any]] = {
            "unary": grpc.unary_unary_rpc_method_handler,
            "generator": grpc.unary_stream_rpc_method_handler,
            "writer": grpc.unary_stream_rpc_method_handler,
            "collect": grpc.stream_unary_rpc_method_handler,
            "session": grpc.stream_stream_rpc_method_handler,
            "chat": grpc.stream_stream_rpc_method_handler,
        }
        handlers = {
            name: make(
                getattr(self, name),
                request_deserializer=StringValue.FromString,
                response_serializer=StringValue.SerializeToString,
            )
            for name, make in kinds.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


@dataclass
class Caller:
    """A client of the echo service."""

    channel: grpc.aio.Channel

    def unary(self, name: str = "unary") -> "Unary[StringValue, StringValue]":
        """Return the multi-callable of a method with one request and one answer."""
        return self.channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=StringValue.SerializeToString,
            response_deserializer=StringValue.FromString,
        )

    async def health(self, service: str) -> int:
        """Ask for a service's health."""
        check: Unary[HealthCheckRequest, HealthCheckResponse] = self.channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=HealthCheckRequest.SerializeToString,
            response_deserializer=HealthCheckResponse.FromString,
        )
        return (await check(HealthCheckRequest(service=service), timeout=10.0)).status

    def method(self, name: str, kind: str) -> Callable[..., Any]:
        """Return the multi-callable of a method of this kind (`unary_stream`, …)."""
        make: Callable[..., Callable[..., Any]] = getattr(self.channel, kind)
        return make(
            f"/{SERVICE}/{name}",
            request_serializer=StringValue.SerializeToString,
            response_deserializer=StringValue.FromString,
        )


@dataclass(frozen=True)
class Served:
    """A started server, its handlers, and a client with a channel to it."""

    server: GrpcServer
    echo: Echo
    caller: Caller

    @property
    def target(self) -> str:
        """The address of the server."""
        return f"127.0.0.1:{self.server.port}"


@asynccontextmanager
async def served(
    config: ServerConfig | None = None,
    *,
    authenticator: Authenticator | None = None,
    observers: tuple[RpcObserver, ...] = (),
    before_stop: tuple[Callable[[], Awaitable[None]], ...] = (),
    retries: bool = False,
) -> AsyncIterator[Served]:
    """Serve the echo service on a free loopback port, with a channel to it."""
    echo = Echo()
    server = GrpcServer(
        config or ServerConfig(stop_grace_s=0.2),
        [GrpcService(SERVICE, echo.add_to_server)],
        server_interceptors(
            ids=SequentialIds(),
            clock=SystemClock(),
            authenticator=authenticator,
            open_methods=(HEALTH_METHODS, f"/{SERVICE}/collect"),
            observers=observers,
        ),
        before_stop,
    )
    await server.start()
    try:
        async with open_channel(
            ChannelConfig(f"127.0.0.1:{server.port}", retries=retries)
        ) as channel:
            yield Served(server, echo, Caller(channel))
    finally:
        await server.stop()
