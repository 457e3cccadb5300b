"""A resource provider that answers as it is told, and notes what it was asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp

from foundation.clock import SystemClock
from foundation.grpc.context import ServicerContext as Context
from tdp.resource.v1 import resource_provider_service_pb2 as pb
from tdp.resource.v1 import resource_provider_service_pb2_grpc as pb_grpc
from tests.integration.control_plane.replica import PROVIDER_SECRET


@dataclass(slots=True)
class Provider(pb_grpc.ResourceProviderServiceServicer):
    """Grants everything unless told otherwise."""

    url: str = ""
    grant_url: str = "http://127.0.0.1:1/object"
    refusal: grpc.StatusCode | None = None
    issued: list[pb.IssueGrantRequest] = field(default_factory=list)
    committed: list[pb.CommitArtifactsRequest] = field(default_factory=list)

    async def _check(self, context: Context) -> None:
        metadata = dict(context.invocation_metadata() or ())
        assert metadata["authorization"] == f"Bearer {PROVIDER_SECRET.decode()}"
        if self.refusal is not None:
            await context.abort(self.refusal, "told to refuse")

    def _grant(self, method: pb.AccessMethod.ValueType) -> pb.ProviderGrant:
        expires = Timestamp()
        expires.FromDatetime(SystemClock().now() + timedelta(minutes=5))
        return pb.ProviderGrant(url=self.grant_url, method=method, expire_time=expires)

    async def IssueGrant(
        self,
        request: pb.IssueGrantRequest,
        context: Context,
    ) -> pb.IssueGrantResponse:
        await self._check(context)
        self.issued.append(request)
        return pb.IssueGrantResponse(grant=self._grant(request.method))

    async def AllocateArtifacts(
        self,
        request: pb.AllocateArtifactsRequest,
        context: Context,
    ) -> pb.AllocateArtifactsResponse:
        await self._check(context)
        return pb.AllocateArtifactsResponse(
            artifacts=[
                pb.AllocatedPlace(
                    relative_path=one.relative_path,
                    resource_ref=f"artifact:{request.work.attempt_id}:{one.relative_path}",
                    grant=self._grant(pb.ACCESS_METHOD_PUT),
                )
                for one in request.artifacts
            ]
        )

    async def CommitArtifacts(
        self,
        request: pb.CommitArtifactsRequest,
        context: Context,
    ) -> pb.CommitArtifactsResponse:
        await self._check(context)
        self.committed.append(request)
        return pb.CommitArtifactsResponse(committed_count=len(request.artifacts))


@asynccontextmanager
async def serving_provider() -> AsyncIterator[Provider]:
    """Serve a provider on loopback."""
    provider = Provider()
    server = grpc.aio.server()
    pb_grpc.add_ResourceProviderServiceServicer_to_server(provider, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    provider.url = f"grpc://127.0.0.1:{port}"
    try:
        yield provider
    finally:
        await server.stop(0)
