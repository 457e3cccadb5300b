"""A platform that asks the gateway for access to bytes, as the control plane does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import aiohttp
import grpc
from google.protobuf.message import Message

from foundation.errors import TdpError
from foundation.grpc.channel import bearer_metadata
from foundation.grpc.status import from_rpc_error
from tdp.resource.v1 import resource_provider_service_pb2 as pb
from tdp.resource.v1 import resource_provider_service_pb2_grpc as pb_grpc
from tests.integration.business_gateway.gateway import APPLICATION_ID, PROVIDER_SECRET, Running

AnswerT = TypeVar("AnswerT")


def identity(kind: int, number: int) -> str:
    return f"0190a000-0000-7000-8000-{kind:04x}{number:08x}"


@dataclass(frozen=True)
class Platform:
    """Calls the provider on behalf of one attempt of one order."""

    running: Running
    stub: pb_grpc.ResourceProviderServiceStub
    order_id: str
    asset_id: str
    attempt_id: str = identity(5, 1)
    boot_id: str = identity(6, 1)
    step_key: str = "clean"
    secret: str = PROVIDER_SECRET
    application_id: str = APPLICATION_ID
    execution_id: str = field(default=identity(3, 1))

    def with_(self, **changes: Any) -> Platform:
        return replace(self, **changes)

    @property
    def collection_ref(self) -> str:
        return f"collection:{self.order_id}"

    @property
    def work(self) -> pb.WorkIdentity:
        return pb.WorkIdentity(
            application_id=self.application_id,
            task_id=identity(2, 1),
            external_ref=self.order_id,
            execution_id=self.execution_id,
            step_key=self.step_key,
            item_index=-1,
            attempt_id=self.attempt_id,
        )

    async def grant(
        self,
        resource_ref: str,
        method: pb.AccessMethod.ValueType = pb.ACCESS_METHOD_GET,
        **fields: Any,
    ) -> pb.ProviderGrant:
        request = pb.IssueGrantRequest(
            work=self.work, resource_ref=resource_ref, method=method, **fields
        )
        return (await self._call(self.stub.IssueGrant, request)).grant

    async def allocate(self, *paths: str, **fields: Any) -> list[pb.AllocatedPlace]:
        places = [
            pb.ArtifactPlace(
                relative_path=path,
                type="image",
                media_type="image/png",
                size_bytes_max=fields.get("size_bytes_max", 1_000),
            )
            for path in paths
        ]
        request = pb.AllocateArtifactsRequest(
            work=self.work,
            boot_id=self.boot_id,
            collection_ref=fields.get("collection_ref", self.collection_ref),
            artifacts=places,
        )
        return list((await self._call(self.stub.AllocateArtifacts, request)).artifacts)

    async def commit(
        self,
        files: Sequence[pb.CommittedArtifact],
        part: int = 1,
        part_count: int = 1,
        collection_ref: str = "",
    ) -> int:
        request = pb.CommitArtifactsRequest(
            work=self.work,
            collection_ref=collection_ref or self.collection_ref,
            artifacts=files,
            part=part,
            part_count=part_count,
        )
        return int((await self._call(self.stub.CommitArtifacts, request)).committed_count)

    async def _call(self, method: Callable[..., Awaitable[AnswerT]], request: Message) -> AnswerT:
        try:
            return await method(request, metadata=bearer_metadata(self.secret), timeout=60)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None


async def upload(grant: pb.ProviderGrant, content: bytes) -> int:
    """PUT the bytes as a node does; the status of the answer."""
    async with (
        aiohttp.ClientSession() as client,
        client.put(grant.url, data=content, headers=dict(grant.headers)) as answer,
    ):
        return answer.status


async def download(url: str) -> bytes:
    async with aiohttp.ClientSession() as client, client.get(url) as answer:
        assert answer.status == 200
        return await answer.read()


def reason_of(error: TdpError) -> tuple[str, str]:
    return error.code.value, error.reason


@asynccontextmanager
async def platform_of(running: Running) -> AsyncIterator[Platform]:
    order = await running.client.order("k1")
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{running.gateway.grpc_server.port}")
    async with channel:
        yield Platform(
            running,
            pb_grpc.ResourceProviderServiceStub(channel),
            order["order_id"],
            order["source_asset_id"],
        )
