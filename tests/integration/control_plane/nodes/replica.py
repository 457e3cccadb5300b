"""One replica's node side on a real gRPC server, and a node that says what the test tells it to."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import grpc

from control_plane.adapters.inbound.grpc_node import OPEN_METHODS, NodeServicer
from control_plane.adapters.inbound.grpc_node_admin import NodeAdminServicer
from control_plane.adapters.inbound.loop_commands import CommandSender
from control_plane.adapters.inbound.loop_lease_expiry import LeaseExpiry
from control_plane.adapters.inbound.loop_lease_stops import RunTimeouts
from control_plane.adapters.inbound.loop_lease_tick import LeaseTick
from control_plane.adapters.inbound.loop_progress import ProgressWrites
from control_plane.adapters.outbound.postgres.node_directory import PostgresNodeDirectory
from control_plane.adapters.outbound.postgres.node_management_store import (
    PostgresNodeManagementStore,
)
from control_plane.core.nodes.administration import NodeAdministration
from control_plane.core.nodes.application import NodeSessions, SessionLimits
from control_plane.core.nodes.enrolment import Enrolment
from control_plane.core.nodes.session import LiveSessions
from control_plane.core.wakeups import LocalHints
from foundation.clock import SystemClock
from foundation.errors import TdpError, UnauthenticatedError
from foundation.grpc.interceptors import HEALTH_METHODS, server_interceptors
from foundation.grpc.server import GrpcServer, GrpcService, ServerConfig
from foundation.grpc.status import from_rpc_error
from foundation.principals import Principal, PrincipalKind, Scope
from tdp.control.v1 import node_admin_service_pb2_grpc
from tdp.node.v1 import node_service_pb2 as pb
from tdp.node.v1 import node_service_pb2_grpc as pb_grpc
from tests.integration.control_plane.nodes.world import (
    CAPABILITY,
    IDS,
    OBJECT_SCHEMA,
    VERSION,
    Attempt,
    World,
)

PATIENCE_S = 20.0
CLOCK = SystemClock()
DICE = Random(1)


class Tokens:
    """Takes `node:<id>` for that node, and `operator` for an operator."""

    async def authenticate(self, method: str, token: str) -> Principal:
        if token.startswith("node:"):
            return Principal(PrincipalKind.NODE, token.removeprefix("node:"))
        if token == "operator":
            return Principal(PrincipalKind.OPERATOR, "op", frozenset({Scope.ADMIN.value}))
        raise UnauthenticatedError("unknown token")


class NoGrants:
    """Stands where the grant calls are, which these tests never make."""

    async def AuthorizeResource(
        self, request: pb.AuthorizeResourceRequest, context: object
    ) -> pb.AuthorizeResourceResponse:
        raise AssertionError(request)

    async def RenewGrant(
        self, request: pb.RenewGrantRequest, context: object
    ) -> pb.RenewGrantResponse:
        raise AssertionError(request)

    async def AllocateArtifacts(
        self, request: pb.AllocateArtifactsRequest, context: object
    ) -> pb.AllocateArtifactsResponse:
        raise AssertionError(request)


class RemoteHints:
    """Remembers what was to be passed on to other replicas."""

    def __init__(self) -> None:
        self.woken: list[str] = []

    async def wake(self, node_ids: Sequence[str]) -> None:
        self.woken += node_ids


class Replica:
    """The node side of one control plane."""

    def __init__(self, world: World, limits: SessionLimits | None = None, **servicer: Any) -> None:
        self.world = world
        self.hints = LocalHints()
        self.live = LiveSessions(self.hints)
        self.remote = RemoteHints()
        self.sessions = NodeSessions(
            world.nodes,
            world.commands,
            world.inbox,
            lambda _: None,
            self.live,
            self.hints,
            CLOCK,
            world.figures,
            limits,
        )
        self.tick = LeaseTick(self.sessions, world.leases, world.nodes, self.hints, CLOCK)
        self.expiry = LeaseExpiry(world.leases, self.hints, world.figures)
        self.timeouts = RunTimeouts(world.leases, self.hints, world.figures)
        self.progress = ProgressWrites(self.sessions.progress, world.leases, self.hints, CLOCK)
        self.sender = CommandSender(self.live, world.commands, self.remote, self.hints, CLOCK)
        node = NodeServicer(
            Enrolment(world.nodes), self.sessions, NoGrants(), server_version="test", **servicer
        )
        admin = NodeAdminServicer(
            NodeAdministration(
                PostgresNodeDirectory(world.database, IDS),
                PostgresNodeManagementStore(world.database, world.outcomes, IDS),
                self.hints,
            )
        )
        self.server = GrpcServer(
            ServerConfig(stop_grace_s=5.0),
            [
                GrpcService(
                    "tdp.node.v1.NodeService",
                    lambda server: pb_grpc.add_NodeServiceServicer_to_server(node, server),
                ),
                GrpcService(
                    "tdp.control.v1.NodeAdminService",
                    lambda server: (
                        node_admin_service_pb2_grpc.add_NodeAdminServiceServicer_to_server(
                            admin, server
                        )
                    ),
                ),
            ],
            interceptors=server_interceptors(
                ids=IDS,
                clock=CLOCK,
                authenticator=Tokens(),
                open_methods=(HEALTH_METHODS, *OPEN_METHODS),
            ),
            before_stop=[self.sessions.go_away],
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"


@asynccontextmanager
async def running(
    world: World, *, expiry: bool = False, limits: SessionLimits | None = None, **servicer: Any
) -> AsyncIterator[Replica]:
    """A replica with its loops; the sweep over leases only where it is asked for."""
    replica = Replica(world, limits, **servicer)
    loops = [
        replica.tick.loop(DICE),
        replica.progress.loop(DICE),
        replica.sender.loop(DICE),
    ]
    if expiry:
        loops += [replica.expiry.loop(DICE), replica.timeouts.loop(DICE)]
    await replica.server.start()
    async with asyncio.TaskGroup() as group:
        group.create_task(replica.sessions.run(), name="sessions")
        for loop in loops:
            group.create_task(loop.run(), name=loop.name)
        try:
            yield replica
        finally:
            await replica.server.stop()
            await replica.sessions.stop()
            for loop in loops:
                await loop.stop()


class ScriptedNode:
    """A node's end of one stream: it says only what the test says."""

    def __init__(self, address: str, node_id: str, *, token_of: str = "") -> None:
        self.node_id = node_id
        self.generation = 0
        self.received: list[pb.SessionResponse] = []
        self._channel = grpc.aio.insecure_channel(address)
        stub = pb_grpc.NodeServiceStub(self._channel)
        token = f"node:{token_of or node_id}"
        self.call = stub.Session(metadata=(("authorization", f"Bearer {token}"),))

    async def close(self) -> None:
        self.call.cancel()
        await self._channel.close()

    async def say(self, **message: Any) -> None:
        fields = {"generation": self.generation, **message}
        await self.call.write(pb.SessionRequest(**fields))

    async def hear(self) -> pb.SessionResponse:
        """The next message; raises the TdpError that ended the stream."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                response = await self.call.read()
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        if response is grpc.aio.EOF:
            code = await self.call.code()
            raise AssertionError(f"the stream ended with {code}")
        assert isinstance(response, pb.SessionResponse)
        self.received.append(response)
        return response

    async def hear_of(self, kind: str) -> Any:  # noqa: ANN401 - the message of that kind
        """The next message of a kind; others are passed over."""
        while True:
            response = await self.hear()
            if response.WhichOneof("message") == kind:
                return getattr(response, kind)

    async def ended_with(self) -> TdpError:
        """Read until the stream's end, and return its error."""
        while True:
            try:
                await self.hear()
            except TdpError as error:
                return error

    async def hello(self, *held: Attempt, **changes: Any) -> pb.Welcome:
        fields: dict[str, Any] = {
            "protocol_version": 1,
            "node_id": self.node_id,
            "boot_id": IDS.new_id(),
            "incarnation_id": self.node_id,
            "capabilities": [
                pb.CapabilityDeclaration(
                    name=CAPABILITY,
                    version=VERSION,
                    input_schema_json=OBJECT_SCHEMA,
                    output_schema_json=OBJECT_SCHEMA,
                )
            ],
            "slot_count": 8,
            "held_attempts": [
                pb.HeldAttempt(attempt_id=one.attempt_id, lease_version=one.lease_version)
                for one in held
            ],
            "job_credits": 8,
            "ready": True,
        }
        await self.say(hello=pb.Hello(**(fields | changes)))
        welcome: pb.Welcome = await self.hear_of("welcome")
        self.generation = welcome.generation
        return welcome

    async def heartbeat(self, number: int, *leases: Attempt, **changes: Any) -> None:
        listed = [
            pb.LeaseReference(attempt_id=one.attempt_id, lease_version=one.lease_version)
            for one in leases
        ]
        fields: dict[str, Any] = {"number": number, "leases": listed, "ready": True}
        await self.say(heartbeat=pb.Heartbeat(**(fields | changes)))

    async def report(self, *events: pb.NodeEvent) -> None:
        await self.say(events=pb.EventBatch(events=events))


def success_message(attempt: Attempt, **changes: Any) -> pb.NodeEvent:
    fields: dict[str, Any] = {
        "event_id": IDS.new_id(),
        "attempt_id": attempt.attempt_id,
        "lease_version": attempt.lease_version,
        "incarnation_id": attempt.node_id,
        "boot_id": attempt.node_id,
        "succeeded": pb.AttemptSucceeded(output_json='{"ok":true}'),
    }
    return pb.NodeEvent(**(fields | changes))


@asynccontextmanager
async def node_of(replica: Replica, node_id: str, **changes: Any) -> AsyncIterator[ScriptedNode]:
    node = ScriptedNode(replica.address, node_id, **changes)
    try:
        yield node
    finally:
        await node.close()
