"""A business system's callback endpoints, over HTTP and gRPC, that answer as they are told."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
from aiohttp import web

from foundation.clock import SystemClock
from foundation.grpc.context import ServicerContext as Context
from foundation.signatures import SIGNATURE_HEADER, SigningSecret, verify
from tdp.callback.v1 import callback_service_pb2 as pb
from tdp.callback.v1 import callback_service_pb2_grpc as pb_grpc
from tests.integration.control_plane.replica import SECRET


@dataclass(slots=True)
class Endpoint:
    """What arrived, each with its signature checked, and the answers to give first."""

    url: str = ""
    secrets: list[bytes] = field(default_factory=lambda: [SECRET])
    headers: dict[str, str] = field(default_factory=dict)
    answers: list[int] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    tries: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, header: str | None, body: bytes) -> int:
        """Check the signature, note the event, and return the status to answer."""
        self.tries += 1
        verify(
            header,
            body,
            [SigningSecret(one) for one in self.secrets],
            SystemClock().now().timestamp(),
        )
        status = self.answers.pop(0) if self.answers else 200
        if status == 200:
            self.events.append(json.loads(body))
        self.changed.set()
        return status

    async def until_tries(self, count: int) -> None:
        """Wait until so many deliveries were tried."""
        async with asyncio.timeout(30):
            while self.tries < count:
                self.changed.clear()
                await self.changed.wait()

    async def until_count(self, count: int) -> list[dict[str, Any]]:
        """Wait until so many events were accepted; return all that were."""
        async with asyncio.timeout(30):
            while len(self.events) < count:
                self.changed.clear()
                await self.changed.wait()
        return self.events

    async def until(self, event_type: str) -> list[dict[str, Any]]:
        """Wait until an event of this type was accepted; return all that were."""
        async with asyncio.timeout(30):
            while not any(one["type"] == event_type for one in self.events):
                self.changed.clear()
                await self.changed.wait()
        return self.events


@asynccontextmanager
async def http_endpoint() -> AsyncIterator[Endpoint]:
    """Serve an HTTP endpoint on loopback."""
    endpoint = Endpoint()

    async def receive(request: web.Request) -> web.Response:
        body = await request.read()
        status = endpoint.take(request.headers.get(SIGNATURE_HEADER), body)
        return web.Response(status=status, headers=endpoint.headers)

    application = web.Application()
    application.router.add_post("/callbacks", receive)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        endpoint.url = f"http://127.0.0.1:{port}/callbacks"
        yield endpoint
    finally:
        await runner.cleanup()


@asynccontextmanager
async def silent_endpoint() -> AsyncIterator[Endpoint]:
    """Take connections on loopback and never answer; tries are counted."""
    endpoint = Endpoint()
    ending = asyncio.Event()

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        endpoint.tries += 1
        endpoint.changed.set()
        await ending.wait()
        writer.close()

    server = await asyncio.start_server(keep, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        endpoint.url = f"http://127.0.0.1:{port}/callbacks"
        yield endpoint
    finally:
        ending.set()
        server.close()


class _Callbacks(pb_grpc.CallbackServiceServicer):
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def DeliverEvent(
        self,
        request: pb.DeliverEventRequest,
        context: Context,
    ) -> pb.DeliverEventResponse:
        metadata = dict(context.invocation_metadata() or ())
        header = str(metadata.get(SIGNATURE_HEADER, ""))
        status = self._endpoint.take(header, request.body)
        if status != 200:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"told to answer {status}")
        return pb.DeliverEventResponse()


@asynccontextmanager
async def grpc_endpoint() -> AsyncIterator[Endpoint]:
    """Serve CallbackService on loopback."""
    endpoint = Endpoint()
    server = grpc.aio.server()
    pb_grpc.add_CallbackServiceServicer_to_server(_Callbacks(endpoint), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        endpoint.url = f"grpc://127.0.0.1:{port}"
        yield endpoint
    finally:
        await server.stop(0)
