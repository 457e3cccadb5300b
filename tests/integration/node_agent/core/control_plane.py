"""A scripted control plane: a real grpc.aio server whose every answer is the test's."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import grpc

from foundation.errors import TdpError
from foundation.grpc.context import ServicerContext
from foundation.grpc.status import grpc_code, to_status, trailing_metadata
from tdp.node.v1 import node_service_pb2 as pb
from tdp.node.v1 import node_service_pb2_grpc as pb_grpc
from tests.integration.node_agent.core.builders import IDS

Unary = Callable[[object], object]
PATIENCE_S = 40.0


class FakeSession:
    """One stream, from the server's side."""

    def __init__(self, plane: "FakeControlPlane", hello: pb.Hello, generation: int) -> None:
        self.plane = plane
        self.hello = hello
        self.generation = generation
        self.received: deque[pb.SessionRequest] = deque()
        self.heartbeats: list[pb.Heartbeat] = []
        self.events: list[pb.NodeEvent] = []
        self.renews = True
        self.acks_events = True
        self.answers_heartbeats = True
        self.left = asyncio.Event()
        self._came = asyncio.Event()
        self._out: asyncio.Queue[pb.SessionResponse | TdpError | None] = asyncio.Queue()

    # --- What the test says. ---

    def send(self, **message: object) -> None:
        """Queues a message by the name of its field."""
        self._out.put_nowait(pb.SessionResponse(**message))  # type: ignore[arg-type] # by name

    def welcome(
        self, *verdicts: pb.AttemptVerdict, ttl_s: float = 3.0, beat_s: float = 0.1
    ) -> None:
        welcome = pb.Welcome(
            generation=self.generation,
            verdicts=verdicts,
            command_window=32,
            message_bytes_max=self.plane.message_bytes_max,
            server_version="fake",
        )
        welcome.heartbeat_interval.FromNanoseconds(int(beat_s * 1e9))
        welcome.lease_ttl.FromNanoseconds(int(ttl_s * 1e9))
        self.send(welcome=welcome)

    def verdict(self, name: str) -> list[pb.AttemptVerdict]:
        """The same verdict on everything that Hello names."""
        return [
            pb.AttemptVerdict(
                attempt_id=one.attempt_id,
                lease_version=one.lease_version,
                verdict=pb.Verdict.Value(f"VERDICT_{name}"),
            )
            for one in self.hello.held_attempts
        ]

    def commands(self, *commands: pb.Command) -> None:
        self.send(commands=pb.CommandBatch(commands=commands))

    def end(self, error: TdpError | None = None) -> None:
        """Ends the stream, with a status where one is given."""
        self._out.put_nowait(error)

    # --- What the test hears. ---

    async def expect(self, kind: str) -> pb.SessionRequest:
        """The next message of a kind; others, but for events and heartbeats, are dropped."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                while self.received:
                    request = self.received.popleft()
                    if request.WhichOneof("message") == kind:
                        return request
                self._came.clear()
                await self._came.wait()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits until a condition holds, looking after each message that comes."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self._came.clear()
                await self._came.wait()

    async def final(self, attempt_id: str) -> pb.NodeEvent:
        """The event that ends an attempt."""

        def found() -> list[pb.NodeEvent]:
            return [
                one
                for one in self.events
                if one.attempt_id == attempt_id and one.WhichOneof("fact") != "artifacts_reported"
            ]

        await self.until(lambda: bool(found()))
        return found()[0]

    # --- The stream. ---

    async def serve(self, context: ServicerContext) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                reader = group.create_task(self._read(context))
                await self._write(context)
                reader.cancel()
        finally:
            self.left.set()
            self._came.set()

    async def _write(self, context: ServicerContext) -> None:
        while True:
            message = await self._out.get()
            if message is None:
                return
            if isinstance(message, TdpError):
                raise message
            await context.write(message)

    async def _read(self, context: ServicerContext) -> None:
        while True:
            request = await context.read()
            if request is grpc.aio.EOF:
                self._out.put_nowait(None)
                return
            self._take(request)
            self._came.set()

    def _take(self, request: pb.SessionRequest) -> None:
        assert request.generation == self.generation, "every message carries the generation"
        self.received.append(request)
        match request.WhichOneof("message"):
            case "heartbeat":
                self.heartbeats.append(request.heartbeat)
                if self.answers_heartbeats:
                    renewed = request.heartbeat.leases if self.renews else ()
                    self.send(
                        heartbeat_reply=pb.HeartbeatReply(
                            number=request.heartbeat.number, renewed=renewed
                        )
                    )
            case "events":
                self.events.extend(request.events.events)
                if self.acks_events:
                    self.ack(request.events.events)

    def ack(self, events: Sequence[pb.NodeEvent]) -> None:
        results = [pb.EventResult(event_id=one.event_id, accepted=True) for one in events]
        self.send(event_ack=pb.EventAck(results=results))


@dataclass
class FakeControlPlane(pb_grpc.NodeServiceServicer):
    """Serves on a free port; sessions are taken by the test one after the other."""

    port: int = 0
    message_bytes_max: int = 4 * 1024 * 1024
    refusal: TdpError | None = None
    enrolments: list[pb.EnrollRequest] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    node_id: str = field(default_factory=IDS.new_id)
    on_call: Callable[[str, object], object] | None = None
    _server: grpc.aio.Server | None = None
    _sessions: "asyncio.Queue[FakeSession]" = field(default_factory=asyncio.Queue)
    _generation: int = 0

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        pb_grpc.add_NodeServiceServicer_to_server(self, server)  # type: ignore[no-untyped-call, unused-ignore]
        self.port = server.add_insecure_port(f"127.0.0.1:{self.port}")
        await server.start()
        self._server = server

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    async def session(self) -> FakeSession:
        """The next session, after its Hello."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._sessions.get()

    # --- NodeService. ---

    async def Enroll(
        self, request: pb.EnrollRequest, context: ServicerContext
    ) -> pb.EnrollResponse:
        self.enrolments.append(request)
        self.tokens.append(_bearer(context))
        await self._refuse(context)
        return pb.EnrollResponse(node_id=self.node_id)

    async def Session(self, request_iterator: object, context: ServicerContext) -> None:  # type: ignore[override]
        request = await context.read()
        if request is grpc.aio.EOF:
            return
        assert request.WhichOneof("message") == "hello"
        self.tokens.append(_bearer(context))
        await self._refuse(context)
        self._generation += 1
        session = FakeSession(self, request.hello, self._generation)
        self._sessions.put_nowait(session)
        try:
            await session.serve(context)
        except* TdpError as errors:
            await _abort(context, errors.exceptions[0])

    async def AuthorizeResource(
        self, request: pb.AuthorizeResourceRequest, context: ServicerContext
    ) -> pb.AuthorizeResourceResponse:
        return await self._answer("AuthorizeResource", request, context)  # type: ignore[return-value]

    async def RenewGrant(
        self, request: pb.RenewGrantRequest, context: ServicerContext
    ) -> pb.RenewGrantResponse:
        return await self._answer("RenewGrant", request, context)  # type: ignore[return-value]

    async def AllocateArtifacts(
        self, request: pb.AllocateArtifactsRequest, context: ServicerContext
    ) -> pb.AllocateArtifactsResponse:
        return await self._answer("AllocateArtifacts", request, context)  # type: ignore[return-value]

    async def _answer(self, name: str, request: object, context: ServicerContext) -> object:
        assert self.on_call is not None
        try:
            return self.on_call(name, request)
        except TdpError as error:
            await _abort(context, error)
            raise

    async def _refuse(self, context: ServicerContext) -> None:
        if self.refusal is not None:
            await _abort(context, self.refusal)


async def _abort(context: ServicerContext, error: BaseException) -> None:
    assert isinstance(error, TdpError)
    await context.abort(grpc_code(error.code), error.message, trailing_metadata(to_status(error)))


def _bearer(context: ServicerContext) -> str:
    metadata = dict(context.invocation_metadata() or ())
    return str(metadata["authorization"]).removeprefix("Bearer ")


# --- Commands. ---


def run_command(
    sequence: int, attempt_id: str = "", *, capability: str = "test.work", **fields: object
) -> pb.Command:
    """A RUN with a lease of 3 s, counted from Hello unless said otherwise."""
    remaining_s = float(str(fields.pop("remaining_s", 3.0)))
    timeout_s = float(str(fields.pop("run_timeout_s", 0.0)))
    values: dict[str, object] = {
        "attempt_id": attempt_id or IDS.new_id(),
        "lease_version": 1,
        "task_id": IDS.new_id(),
        "execution_id": IDS.new_id(),
        "step_key": "step",
        "item_index": -1,
        "attempt_number": 1,
        "capability": capability,
        "capability_version": "1",
        "input_json": "{}",
        **fields,
    }
    run = pb.RunCommand(**values)  # type: ignore[arg-type] # a builder's fields are checked by use
    run.lease_remaining.FromNanoseconds(int(remaining_s * 1e9))
    run.run_timeout.FromNanoseconds(int(timeout_s * 1e9))
    return pb.Command(sequence=sequence, command_id=IDS.new_id(), run=run)


def cancel_command(sequence: int, attempt_id: str, reason: str = "CANCEL") -> pb.Command:
    cancel = pb.CancelCommand(attempt_id=attempt_id, lease_version=1, stop_reason=reason)
    return pb.Command(sequence=sequence, command_id=IDS.new_id(), cancel=cancel)


def extend_command(sequence: int, attempt_id: str, extension_s: float) -> pb.Command:
    extend = pb.ExtendCommand(attempt_id=attempt_id, lease_version=1)
    extend.extension.FromNanoseconds(int(extension_s * 1e9))
    return pb.Command(sequence=sequence, command_id=IDS.new_id(), extend=extend)


def drain_command(sequence: int, grace_s: float = 0.0) -> pb.Command:
    drain = pb.DrainCommand()
    drain.grace_period.FromNanoseconds(int(grace_s * 1e9))
    return pb.Command(sequence=sequence, command_id=IDS.new_id(), drain=drain)


def undrain_command(sequence: int) -> pb.Command:
    return pb.Command(sequence=sequence, command_id=IDS.new_id(), undrain=pb.UndrainCommand())
