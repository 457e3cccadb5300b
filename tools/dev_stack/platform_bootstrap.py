"""First things in a fresh control plane: application, keys, join token, workflows; by RPCs only."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc.aio
from google.protobuf.duration_pb2 import Duration

from foundation.errors import AlreadyExistsError
from foundation.grpc.channel import (
    ChannelConfig,
    Metadata,
    bearer_metadata,
    call_unary,
    open_channel,
)
from foundation.secrets import hash_token
from foundation.signatures import SigningSecret
from tdp.control.v1 import (
    application_service_pb2 as applications,
)
from tdp.control.v1 import (
    application_service_pb2_grpc,
    node_admin_service_pb2_grpc,
    workflow_service_pb2_grpc,
)
from tdp.control.v1 import node_admin_service_pb2 as nodes
from tdp.control.v1 import workflow_service_pb2 as workflows
from tools.dev_stack.platform_state import PlatformSecrets

_APPLICATION_NAME: Final = "business-gateway"
_CLIENT_NAME: Final = "development-client"
_CALL_TIMEOUT_S: Final = 20.0
_JOIN_TOKEN_TTL_S: Final = 365 * 24 * 3600
_SCOPES: Final = (applications.API_KEY_SCOPE_SUBMIT, applications.API_KEY_SCOPE_READ)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What has to be registered: the application with its endpoints, and the workflow files."""

    callback_url: str
    provider_url: str
    workflow_files: Sequence[Path]
    application_id: str = ""


@asynccontextmanager
async def operator_channel(target: str) -> AsyncIterator[grpc.aio.Channel]:
    """Open a channel to a control plane on loopback."""
    async with open_channel(ChannelConfig(target=target)) as channel:
        yield channel


async def bootstrap(target: str, secrets: PlatformSecrets, wishes: Wishes) -> str:
    """Register everything that is not there yet; answer the application's id.

    It may be repeated, also after it was cut off: what is there is found, and what changed
    (a port) is set anew.
    """
    admin = bearer_metadata(secrets.admin_key)
    async with operator_channel(target) as channel:
        application_id = await _application(channel, admin, secrets, wishes)
        await _api_key(channel, admin, application_id, secrets.submit_key, "gateway")
        client_id = await _client_application(channel, admin)
        await _api_key(channel, admin, client_id, secrets.client_key, "client")
        await _join_token(channel, admin, secrets.join_token)
        for path in wishes.workflow_files:
            await _workflow(channel, admin, path)
    return application_id


async def _application(
    channel: grpc.aio.Channel, admin: Metadata, secrets: PlatformSecrets, wishes: Wishes
) -> str:
    stub = application_service_pb2_grpc.ApplicationServiceStub(channel)
    application_id = wishes.application_id
    if not application_id:
        request = applications.RegisterApplicationRequest(
            idempotency_key="dev-stack:application",
            name=_APPLICATION_NAME,
            callback_url=wishes.callback_url,
            callback_secret=SigningSecret.parse(secrets.callback_secret).raw,
            resource_provider_url=wishes.provider_url,
            resource_provider_secret=secrets.provider_secret.encode(),
        )
        try:
            registered = await call_unary(
                stub.RegisterApplication, request, timeout_s=_CALL_TIMEOUT_S, metadata=admin
            )
        except AlreadyExistsError as error:
            # A start that was cut off registered it with ports that were lost meanwhile.
            application_id = error.existing_id
        else:
            return registered.application.application_id
    await _set_endpoints(stub, admin, application_id, wishes)
    return application_id


async def _client_application(channel: grpc.aio.Channel, admin: Metadata) -> str:
    """Register who people and programs are that call the control plane themselves.

    Not the gateway: it would be called back about tasks that it knows nothing of.
    """
    request = applications.RegisterApplicationRequest(
        idempotency_key="dev-stack:client-application", name=_CLIENT_NAME
    )
    stub = application_service_pb2_grpc.ApplicationServiceStub(channel)
    registered = await call_unary(
        stub.RegisterApplication, request, timeout_s=_CALL_TIMEOUT_S, metadata=admin
    )
    return registered.application.application_id


async def _set_endpoints(
    stub: application_service_pb2_grpc.ApplicationServiceStub,
    admin: Metadata,
    application_id: str,
    wishes: Wishes,
) -> None:
    found = await call_unary(
        stub.GetApplication,
        applications.GetApplicationRequest(application_id=application_id),
        timeout_s=_CALL_TIMEOUT_S,
        metadata=admin,
    )
    application = found.application
    if application.callback_url != wishes.callback_url or application.callback_disabled:
        callback = applications.SetCallbackEndpointRequest(
            idempotency_key=f"dev-stack:{uuid.uuid4()}",
            application_id=application_id,
            callback_url=wishes.callback_url,
        )
        await call_unary(
            stub.SetCallbackEndpoint, callback, timeout_s=_CALL_TIMEOUT_S, metadata=admin
        )
    if application.resource_provider_url != wishes.provider_url:
        provider = applications.SetResourceProviderRequest(
            idempotency_key=f"dev-stack:{uuid.uuid4()}",
            application_id=application_id,
            resource_provider_url=wishes.provider_url,
        )
        await call_unary(
            stub.SetResourceProvider, provider, timeout_s=_CALL_TIMEOUT_S, metadata=admin
        )


async def _api_key(
    channel: grpc.aio.Channel, admin: Metadata, application_id: str, key: str, purpose: str
) -> None:
    request = applications.CreateApiKeyRequest(
        idempotency_key=f"dev-stack:key:{purpose}",
        application_id=application_id,
        key_sha256=hash_token(key),
        scopes=_SCOPES,
    )
    stub = application_service_pb2_grpc.ApplicationServiceStub(channel)
    await call_unary(stub.CreateApiKey, request, timeout_s=_CALL_TIMEOUT_S, metadata=admin)


async def _join_token(channel: grpc.aio.Channel, admin: Metadata, token: str) -> None:
    request = nodes.CreateJoinTokenRequest(
        idempotency_key="dev-stack:join-token",
        token_sha256=hash_token(token),
        ttl=Duration(seconds=_JOIN_TOKEN_TTL_S),
    )
    stub = node_admin_service_pb2_grpc.NodeAdminServiceStub(channel)
    await call_unary(stub.CreateJoinToken, request, timeout_s=_CALL_TIMEOUT_S, metadata=admin)


async def _workflow(channel: grpc.aio.Channel, admin: Metadata, path: Path) -> None:
    definition = await asyncio.to_thread(path.read_text, "utf-8")
    request = workflows.PublishWorkflowRequest(definition=definition)
    stub = workflow_service_pb2_grpc.WorkflowServiceStub(channel)
    await call_unary(stub.PublishWorkflow, request, timeout_s=_CALL_TIMEOUT_S, metadata=admin)


async def node_session(target: str, admin_key: str, name: str) -> tuple[int, bool]:
    """Answer a node's newest session's number and whether it is ready; (0, False) if unknown."""
    stub_request = nodes.ListNodesRequest(page_size=1000)
    async with operator_channel(target) as channel:
        stub = node_admin_service_pb2_grpc.NodeAdminServiceStub(channel)
        answer = await call_unary(
            stub.ListNodes,
            stub_request,
            timeout_s=_CALL_TIMEOUT_S,
            metadata=bearer_metadata(admin_key),
        )
    for node in answer.nodes:
        if node.name == name:
            return node.generation, node.runtime == nodes.NODE_RUNTIME_READY
    return 0, False
