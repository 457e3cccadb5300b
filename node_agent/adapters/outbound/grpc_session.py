"""The session's stream and the enrolment call over gRPC."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import grpc

from foundation.errors import ErrorCode, TdpError
from foundation.grpc.channel import (
    ChannelConfig,
    ClientTls,
    bearer_metadata,
    call_unary,
    open_channel,
    owned_call,
)
from foundation.grpc.messages import MESSAGE_BYTES_MAX, check_message_size
from foundation.grpc.status import from_rpc_error
from node_agent.adapters.outbound.node_messages import requests_to, response_from
from node_agent.core.session.messages import Down, Up
from node_agent.errors import SessionLostError, SessionRefusedError
from tdp.node.v1 import node_service_pb2 as pb
from tdp.node.v1 import node_service_pb2_grpc as pb_grpc

if TYPE_CHECKING:
    SessionCall = grpc.aio.StreamStreamCall[pb.SessionRequest, pb.SessionResponse]

FATAL_CODES: Final = frozenset({ErrorCode.UNAUTHENTICATED, ErrorCode.PERMISSION_DENIED})
ENROL_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class ControlPlaneAddress:
    """Where the control plane's replicas are, and how to be sure of them."""

    targets: Sequence[str]
    tls: ClientTls | None = None
    authority: str | None = None

    def channel_config(self, target: str, *, retries: bool) -> ChannelConfig:
        """Return the configuration of a channel to one of the targets."""
        return ChannelConfig(target, self.tls, self.authority, retries=retries)


@dataclass(slots=True)
class TargetRotation:
    """Names one target after the other, for whoever has to try another replica."""

    targets: Sequence[str]
    _next: "itertools.cycle[str]" = field(init=False)

    def __post_init__(self) -> None:
        self._next = itertools.cycle(self.targets)

    def next(self) -> str:
        """Return the next target."""
        return next(self._next)


class GrpcSessionTransport:
    """SessionTransport with a connection of its own for each stream."""

    def __init__(self, address: ControlPlaneAddress, credential: str) -> None:
        """Dial nothing yet."""
        self._address = address
        self._credential = credential
        self._rotation = TargetRotation(address.targets)

    @asynccontextmanager
    async def open(self) -> AsyncIterator["GrpcSessionStream"]:
        """See SessionTransport."""
        target = self._rotation.next()
        config = self._address.channel_config(target, retries=False)
        async with open_channel(config) as channel:
            stub = pb_grpc.NodeServiceStub(channel)  # type: ignore[no-untyped-call, unused-ignore]
            call: SessionCall = stub.Session(metadata=bearer_metadata(self._credential))
            async with owned_call(call):
                stream = GrpcSessionStream(call, target)
                try:
                    yield stream
                finally:
                    stream.close()


class GrpcSessionStream:
    """SessionStream over one call."""

    def __init__(self, call: "SessionCall", target: str) -> None:
        """Wrap a call; `target` is for messages to people."""
        self._call = call
        self._target = target
        self._size_bytes_max = MESSAGE_BYTES_MAX
        self._finished = False
        self._closed = False

    def limit_messages(self, size_bytes_max: int) -> None:
        """See SessionStream; our own limit holds too."""
        if size_bytes_max > 0:
            self._size_bytes_max = min(size_bytes_max, MESSAGE_BYTES_MAX)

    async def write(self, generation: int, message: Up) -> None:
        """See SessionStream; after `finish` nothing is written any more."""
        for request in requests_to(generation, message, self._size_bytes_max):
            check_message_size(
                request, what=type(message).__name__, size_bytes_max=self._size_bytes_max
            )
            if self._finished:
                return
            try:
                await self._call.write(request)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
                raise await self._why(error) from error

    async def read(self) -> Down | None:
        """See SessionStream."""
        while True:
            try:
                response = await self._call.read()
            except grpc.aio.AioRpcError as error:
                raise self._ended(from_rpc_error(error)) from error
            except asyncio.CancelledError:
                if self._closed and not _is_cancelled():
                    # The call was cancelled, not we.
                    return None
                raise
            if not isinstance(response, pb.SessionResponse):
                await self._check_end()
                return None
            message = response_from(response)
            if message is not None:
                return message

    async def finish(self) -> None:
        """See SessionStream."""
        self._finished = True
        try:
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # It has ended already: the reader is told.
            return

    def close(self) -> None:
        """End the call, whatever is under way on it."""
        self._closed = True
        self._call.cancel()

    async def _check_end(self) -> None:
        """Raise unless the server has ended the stream in order."""
        code = await self._call.code()
        if code is not grpc.StatusCode.OK:
            raise self._ended(from_rpc_error(await self._as_error(code)))

    async def _as_error(self, code: grpc.StatusCode) -> grpc.aio.AioRpcError:
        return grpc.aio.AioRpcError(
            code,
            await self._call.initial_metadata(),
            await self._call.trailing_metadata(),
            await self._call.details(),
        )

    async def _why(self, error: Exception) -> TdpError:
        if isinstance(error, grpc.aio.AioRpcError):
            return self._ended(from_rpc_error(error))
        code = await self._call.code()
        return self._ended(from_rpc_error(await self._as_error(code)))

    def _ended(self, error: TdpError) -> TdpError:
        text = f"{self._target}: {error.message} ({error.reason})"
        if error.code in FATAL_CODES:
            return SessionRefusedError(
                f"{text}: this node's credential is not accepted; if the node was removed, delete "
                "credential.json and journal.db in the state folder and enrol again"
            )
        return SessionLostError(text)


class GrpcEnrolment:
    """EnrolmentService; each call goes to the next address."""

    def __init__(self, address: ControlPlaneAddress) -> None:
        """Dial nothing yet."""
        self._address = address
        self._rotation = TargetRotation(address.targets)

    async def enrol(
        self, join_token: str, idempotency_key: str, node_name: str, credential_sha256: bytes
    ) -> str:
        """See EnrolmentService."""
        request = pb.EnrollRequest(
            idempotency_key=idempotency_key,
            node_name=node_name,
            credential_sha256=credential_sha256,
        )
        config = self._address.channel_config(self._rotation.next(), retries=True)
        async with open_channel(config) as channel:
            stub = pb_grpc.NodeServiceStub(channel)  # type: ignore[no-untyped-call, unused-ignore]
            response = await call_unary(
                stub.Enroll,
                request,
                timeout_s=ENROL_TIMEOUT_S,
                metadata=bearer_metadata(join_token),
            )
        return response.node_id


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
