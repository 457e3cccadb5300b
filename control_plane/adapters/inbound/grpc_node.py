"""NodeService: enrolment, and one reader and one writer for each session's stream."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import grpc.aio
import structlog

from control_plane.adapters.inbound.node_messages import (
    events_from,
    heartbeat_from,
    hello_from,
    progress_from,
    responses_to,
    welcome_to,
)
from control_plane.core.nodes.application import NodeSessions
from control_plane.core.nodes.enrolment import Enrolment
from control_plane.core.nodes.errors import (
    HelloMissingError,
    NodeMismatchError,
    NodeNotReadingError,
    ProtocolBrokenError,
    StaleGenerationError,
)
from control_plane.core.nodes.session import CommandsOut, EventsStored, Session
from control_plane.limits import EVENT_BATCHES_IN_FLIGHT_MAX, HELLO_TIMEOUT_S, WRITE_STALL_S
from foundation.errors import MessageTooLargeError, UnauthenticatedError
from foundation.failpoints import failpoint
from foundation.grpc.messages import check_message_size
from foundation.principals import PrincipalKind, current_principal
from tdp.node.v1 import node_service_pb2 as pb
from tdp.node.v1 import node_service_pb2_grpc as pb_grpc

# Enroll looks its join token up itself, in the transaction that uses it.
OPEN_METHODS: Final = ("/tdp.node.v1.NodeService/Enroll",)

Context = grpc.aio.ServicerContext[Any, Any]
_log = structlog.stdlib.get_logger(__name__)


class NodeGrants(Protocol):
    """The grant calls, which have a collaborator of their own."""

    async def AuthorizeResource(
        self, request: pb.AuthorizeResourceRequest, context: Context
    ) -> pb.AuthorizeResourceResponse:
        """See NodeService."""
        ...

    async def RenewGrant(
        self, request: pb.RenewGrantRequest, context: Context
    ) -> pb.RenewGrantResponse:
        """See NodeService."""
        ...

    async def AllocateArtifacts(
        self, request: pb.AllocateArtifactsRequest, context: Context
    ) -> pb.AllocateArtifactsResponse:
        """See NodeService."""
        ...


class _LeftError(Exception):
    """The node closed its side: the session ends without an error."""


class NodeServicer(pb_grpc.NodeServiceServicer):
    """Serves tdp.node.v1.NodeService."""

    def __init__(
        self,
        enrolment: Enrolment,
        sessions: NodeSessions,
        grants: NodeGrants,
        *,
        server_version: str,
        hello_timeout_s: float = HELLO_TIMEOUT_S,
        write_stall_s: float = WRITE_STALL_S,
    ) -> None:
        self._enrolment = enrolment
        self._sessions = sessions
        self._grants = grants
        self._server_version = server_version
        self._hello_timeout_s = hello_timeout_s
        self._write_stall_s = write_stall_s

    async def Enroll(self, request: pb.EnrollRequest, context: Context) -> pb.EnrollResponse:
        node_id = await self._enrolment.enrol(
            _bearer_token(context),
            request.idempotency_key,
            request.node_name,
            request.credential_sha256,
        )
        return pb.EnrollResponse(node_id=node_id)

    async def AuthorizeResource(
        self, request: pb.AuthorizeResourceRequest, context: Context
    ) -> pb.AuthorizeResourceResponse:
        return await self._grants.AuthorizeResource(request, context)

    async def RenewGrant(
        self, request: pb.RenewGrantRequest, context: Context
    ) -> pb.RenewGrantResponse:
        return await self._grants.RenewGrant(request, context)

    async def AllocateArtifacts(
        self, request: pb.AllocateArtifactsRequest, context: Context
    ) -> pb.AllocateArtifactsResponse:
        return await self._grants.AllocateArtifacts(request, context)

    # The stubs know generators only; grpc.aio also serves coroutines that write by themselves.
    async def Session(  # type: ignore[override]
        self, request_iterator: object, context: Context
    ) -> None:
        """Serve one stream for its life; reads and writes go through `context` alone."""
        del request_iterator
        principal = current_principal()
        principal.require_kind(PrincipalKind.NODE)
        hello = hello_from(await self._first(context))
        if principal.id != hello.node_id:
            raise NodeMismatchError(
                f"the credential is of node {principal.id}, Hello is of {hello.node_id}: "
                "use the node's own"
            )
        session, opened = await self._sessions.open(hello)
        try:
            await self._write(
                context,
                welcome_to(
                    opened,
                    self._sessions.figures,
                    window_size=session.window_size,
                    server_version=self._server_version,
                ),
            )
            self._sessions.begin(session)
            await self._serve(_Stream(session, context, self._sessions, self._write))
        finally:
            self._sessions.close(session)

    async def _first(self, context: Context) -> pb.Hello:
        try:
            async with asyncio.timeout(self._hello_timeout_s):
                request = await context.read()
        except TimeoutError:
            raise HelloMissingError(
                f"no Hello came within {self._hello_timeout_s:g} s: send it first"
            ) from None
        if request is grpc.aio.EOF or request.WhichOneof("message") != "hello":
            raise HelloMissingError("the stream did not begin with Hello: send it first")
        if request.generation:
            raise ProtocolBrokenError("Hello carries a generation: only Welcome gives one")
        hello: pb.Hello = request.hello
        return hello

    async def _serve(self, stream: "_Stream") -> None:
        node_id = stream.session.ref.node_id
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(stream.read(group), name=f"session-reader-{node_id}")
                group.create_task(stream.write(), name=f"session-writer-{node_id}")
                group.create_task(stream.watch(), name=f"session-watch-{node_id}")
        except* _LeftError:
            _log.debug("node_left", node_id=node_id)

    async def _write(self, context: Context, response: pb.SessionResponse) -> None:
        try:
            async with asyncio.timeout(self._write_stall_s):
                await context.write(response)
        except TimeoutError:
            raise NodeNotReadingError(
                f"the node read nothing for {self._write_stall_s:g} s: the session was ended"
            ) from None


Write = Callable[[Context, pb.SessionResponse], Awaitable[None]]


class _Stream:
    """The two sides of one session's stream."""

    def __init__(
        self, session: Session, context: Context, sessions: NodeSessions, write: Write
    ) -> None:
        self.session = session
        self._context = context
        self._sessions = sessions
        self._write = write
        self._in_flight = asyncio.Semaphore(EVENT_BATCHES_IN_FLIGHT_MAX)

    async def watch(self) -> None:
        """Wait until the session ends and raise why."""
        error = await self.session.wait_ended()
        raise _LeftError if error is None else error

    async def write(self) -> None:
        """Write what is queued, one message at a time."""
        while True:
            message = await self.session.next_outgoing()
            sends = isinstance(message, CommandsOut)
            if sends:
                await failpoint("command.send.before")
            for response in responses_to(message):
                await self._write_checked(response)
            if sends:
                await failpoint("command.send.after")

    async def _write_checked(self, response: pb.SessionResponse) -> None:
        try:
            check_message_size(response, what=f"message to node {self.session.ref.node_id}")
        except MessageTooLargeError as error:
            # Writing it would kill the stream, with everything else that is on it.
            _log.error("message_not_sent", node_id=self.session.ref.node_id, error=error.message)
            return
        await self._write(self._context, response)

    async def read(self, group: asyncio.TaskGroup) -> None:
        """Read until the node leaves; every message has to carry the session's generation."""
        while True:
            request = await self._context.read()
            if request is grpc.aio.EOF:
                raise _LeftError
            self._check_generation(request)
            await self._take(request, group)

    def _check_generation(self, request: pb.SessionRequest) -> None:
        generation = self.session.ref.generation
        if request.generation != generation:
            raise StaleGenerationError(
                f"the message carries generation {request.generation}, the session is "
                f"{generation}: repeat the one from Welcome"
            )

    async def _take(self, request: pb.SessionRequest, group: asyncio.TaskGroup) -> None:
        session = self.session
        match request.WhichOneof("message"):
            case "heartbeat":
                await self._sessions.heartbeat(session, heartbeat_from(request.heartbeat))
            case "command_ack":
                await self._sessions.ack(session, request.command_ack.sequence)
            case "events":
                await self._in_flight.acquire()
                group.create_task(
                    self._store(request.events), name=f"session-events-{session.ref.node_id}"
                )
            case "job_credit":
                self._sessions.credit(session, max(request.job_credit.credit_count, 0))
            case "progress":
                for mark in progress_from(request.progress, session.ref.node_id):
                    self._sessions.progress.add(mark)
            case "hello":
                raise ProtocolBrokenError("Hello came twice: open a new stream for a new session")
            case None:
                raise ProtocolBrokenError("the message says nothing that this version knows")

    async def _store(self, batch: pb.EventBatch) -> None:
        try:
            events = events_from(batch, self.session.ref.node_id)
            fates = await self._sessions.events(events)
            await failpoint("accept.reply.before")
            if fates:
                self.session.offer(EventsStored(fates))
        finally:
            self._in_flight.release()


def _bearer_token(context: Context) -> str:
    found = [value for key, value in context.invocation_metadata() or () if key == "authorization"]
    scheme, _, token = str(found[0]).partition(" ") if len(found) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not token:
        raise UnauthenticatedError(
            "Enroll needs `authorization: Bearer <join token>`", reason="CREDENTIAL_MISSING"
        )
    return token
