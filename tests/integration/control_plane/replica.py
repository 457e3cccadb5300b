"""A whole replica inside the test, on a real PostgreSQL and NATS, with keys and stubs."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc.aio

from control_plane.bootstrap import ControlPlane
from control_plane.settings import ControlPlaneSettings
from foundation.lifecycle import StopRequest, Supervision, run_services
from foundation.secrets import TokenKind, hash_token, new_token
from tdp.control.v1 import application_service_pb2 as application_pb
from tdp.control.v1 import application_service_pb2_grpc as application_grpc
from tdp.control.v1 import node_admin_service_pb2_grpc as node_admin_grpc
from tdp.control.v1 import schedule_service_pb2_grpc as schedule_grpc
from tdp.control.v1 import system_service_pb2_grpc as system_grpc
from tdp.control.v1 import task_service_pb2_grpc as task_grpc
from tdp.control.v1 import workflow_service_pb2 as workflow_pb
from tdp.control.v1 import workflow_service_pb2_grpc as workflow_grpc
from tdp.node.v1 import node_service_pb2_grpc as node_grpc

Metadata = tuple[tuple[str, str], ...]
SECRET = b"callback-secret-of-32-bytes-....."
PROVIDER_SECRET = b"provider-secret-of-32-bytes-...."
WORKFLOW = """
name: two-steps
version: "1"
input_schema: {type: object, properties: {x: {type: integer}}, required: [x]}
steps:
  - {key: a, capability: noop, capability_version: "1", input: {x: "${input.x}"}}
  - key: b
    capability: noop
    capability_version: "1"
    depends_on: [a]
    input: {y: "${steps.a.output.x}"}
output: {z: "${steps.b.output.y}"}
"""


def metadata_of(key: str) -> Metadata:
    return (("authorization", f"Bearer {key}"),)


@dataclass(frozen=True, slots=True)
class Replica:
    """The running replica with a channel, the operator's key, and stubs of every service."""

    plane: ControlPlane
    channel: grpc.aio.Channel
    admin: Metadata

    @property
    def tasks(self) -> task_grpc.TaskServiceStub:
        return task_grpc.TaskServiceStub(self.channel)

    @property
    def workflows(self) -> workflow_grpc.WorkflowServiceStub:
        return workflow_grpc.WorkflowServiceStub(self.channel)

    @property
    def applications(self) -> application_grpc.ApplicationServiceStub:
        return application_grpc.ApplicationServiceStub(self.channel)

    @property
    def schedules(self) -> schedule_grpc.ScheduleServiceStub:
        return schedule_grpc.ScheduleServiceStub(self.channel)

    @property
    def system(self) -> system_grpc.SystemServiceStub:
        return system_grpc.SystemServiceStub(self.channel)

    @property
    def node_admin(self) -> node_admin_grpc.NodeAdminServiceStub:
        return node_admin_grpc.NodeAdminServiceStub(self.channel)

    @property
    def nodes(self) -> node_grpc.NodeServiceStub:
        return node_grpc.NodeServiceStub(self.channel)

    async def publish(self, definition: str = WORKFLOW) -> None:
        await self.workflows.PublishWorkflow(
            workflow_pb.PublishWorkflowRequest(definition=definition), metadata=self.admin
        )

    async def register(
        self, name: str, *, callback_url: str = "", provider_url: str = ""
    ) -> tuple[str, Metadata]:
        """Register an application and return its id and the metadata of its key."""
        registered = await self.applications.RegisterApplication(
            application_pb.RegisterApplicationRequest(
                idempotency_key=f"register-{name}",
                name=name,
                callback_url=callback_url,
                callback_secret=SECRET if callback_url else b"",
                resource_provider_url=provider_url,
                resource_provider_secret=PROVIDER_SECRET if provider_url else b"",
            ),
            metadata=self.admin,
        )
        application_id = registered.application.application_id
        key = await self.key_of(
            application_id,
            application_pb.API_KEY_SCOPE_SUBMIT,
            application_pb.API_KEY_SCOPE_READ,
        )
        return application_id, key

    async def key_of(
        self, application_id: str, *scopes: application_pb.ApiKeyScope.ValueType
    ) -> Metadata:
        """Make a key of the application with these scopes and return its metadata."""
        key = new_token(TokenKind.API_KEY)
        await self.applications.CreateApiKey(
            application_pb.CreateApiKeyRequest(
                idempotency_key=f"key-{hash_token(key).hex()}",
                application_id=application_id,
                key_sha256=hash_token(key),
                scopes=scopes,
            ),
            metadata=self.admin,
        )
        return metadata_of(key)

    async def reading_key(self, name: str) -> Metadata:
        """Register an application and return the metadata of a key that only reads."""
        application_id, _ = await self.register(name)
        key = new_token(TokenKind.API_KEY)
        await self.applications.CreateApiKey(
            application_pb.CreateApiKeyRequest(
                idempotency_key=f"reading-{name}",
                application_id=application_id,
                key_sha256=hash_token(key),
                scopes=[application_pb.API_KEY_SCOPE_READ],
            ),
            metadata=self.admin,
        )
        return metadata_of(key)


def settings_for(dsn: str, nats_url: str, admin_key: str) -> ControlPlaneSettings:
    return ControlPlaneSettings(
        database_dsn=dsn,
        nats_url=nats_url,
        secret_keys="1:" + base64.b64encode(b"k" * 32).decode(),
        bootstrap_admin_key_sha256=hash_token(admin_key).hex(),
        insecure_endpoints_allowed=True,
        private_endpoints_allowed=True,
        lease_ttl_s=3.0,
        heartbeat_interval_s=0.25,
        scheduling_ttl_s=1.5,
        stop_budget_s=0.2,
        claim_ttl_s=2.0,
        backoff_cap_s=1.0,
        database_pool_size_max=8,
        metrics_port=0,
    )


@asynccontextmanager
async def running_replica(dsn: str, nats_url: str) -> AsyncIterator[Replica]:
    """Run a replica until the end of the block."""
    admin_key = new_token(TokenKind.API_KEY)
    plane = ControlPlane(settings_for(dsn, nats_url, admin_key))
    await plane.open()
    stop, ready = StopRequest(), asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(
                run_services(plane.services(), stop, Supervision(on_ready=ready.set)),
                name="replica",
            )
            await ready.wait()
            target = f"127.0.0.1:{plane.server.port}"
            async with grpc.aio.insecure_channel(target) as channel:
                yield Replica(plane, channel, metadata_of(admin_key))
            stop.make("the test is over")
    finally:
        await plane.close()
