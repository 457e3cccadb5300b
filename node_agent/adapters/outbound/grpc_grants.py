"""GrantService over gRPC: one connection a replica, the next one when one does not answer."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC
from typing import Final, Literal, TypeVar

import grpc
from google.protobuf.message import Message

from foundation.errors import InternalError, UnavailableError
from foundation.grpc.channel import bearer_metadata, call_unary, open_channel
from node_agent.adapters.outbound.grpc_session import ControlPlaneAddress, TargetRotation
from node_agent.core.execution.ports import AllocatedArtifact, ArtifactRequest, Grant
from node_agent.core.session.lease_clock import HeldLease
from node_agent.limits import GRANT_CALL_TIMEOUT_S
from tdp.node.v1 import node_service_pb2 as pb
from tdp.node.v1 import node_service_pb2_grpc as pb_grpc

_METHODS: Final[dict[int, Literal["GET", "PUT"]]] = {
    pb.GRANT_METHOD_GET: "GET",
    pb.GRANT_METHOD_PUT: "PUT",
}
RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


class GrantMalformedError(InternalError):
    """The control plane answered a grant that cannot be used."""

    reason = "GRANT_MALFORMED"


class GrpcGrants:
    """GrantService; close it after use."""

    def __init__(self, address: ControlPlaneAddress, credential: str, boot_id: str) -> None:
        """Dial nothing yet."""
        self._address = address
        self._metadata = bearer_metadata(credential)
        self._boot_id = boot_id
        self._rotation = TargetRotation(address.targets)
        self._target = self._rotation.next()
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def close(self) -> None:
        """End the connections. Idempotent."""
        while self._channels:
            _, channel = self._channels.popitem()
            await channel.close()

    async def authorize(self, lease: HeldLease, resource_ref: str, key: str) -> Grant:
        """See GrantService."""
        request = pb.AuthorizeResourceRequest(
            idempotency_key=key,
            attempt_id=lease.attempt_id,
            lease_version=lease.lease_version,
            resource_ref=resource_ref,
            method=pb.GRANT_METHOD_GET,
        )
        response = await self._call(lambda stub: self._unary(stub.AuthorizeResource, request))
        return _grant(response.grant)

    async def renew(self, lease: HeldLease, grant_id: str, key: str) -> Grant:
        """See GrantService."""
        request = pb.RenewGrantRequest(
            idempotency_key=key,
            attempt_id=lease.attempt_id,
            lease_version=lease.lease_version,
            grant_id=grant_id,
        )
        response = await self._call(lambda stub: self._unary(stub.RenewGrant, request))
        return _grant(response.grant)

    async def allocate(
        self, lease: HeldLease, collection_ref: str, requests: Sequence[ArtifactRequest], key: str
    ) -> Sequence[AllocatedArtifact]:
        """See GrantService."""
        request = pb.AllocateArtifactsRequest(
            idempotency_key=key,
            attempt_id=lease.attempt_id,
            lease_version=lease.lease_version,
            boot_id=self._boot_id,
            collection_ref=collection_ref,
            artifacts=[
                pb.ArtifactRequest(
                    relative_path=one.relative_path,
                    type=one.type,
                    media_type=one.media_type,
                    size_bytes_max=one.size_bytes_max,
                )
                for one in requests
            ],
        )
        response = await self._call(lambda stub: self._unary(stub.AllocateArtifacts, request))
        if len(response.artifacts) != len(requests):
            raise GrantMalformedError(
                f"{len(requests)} places were asked for, {len(response.artifacts)} given"
            )
        return [
            AllocatedArtifact(one.relative_path, one.resource_ref, _grant(one.grant))
            for one in response.artifacts
        ]

    async def _call(
        self, call: Callable[[pb_grpc.NodeServiceStub], Awaitable[ResponseT]]
    ) -> ResponseT:
        target = self._target
        try:
            return await call(self._stub(target))
        except UnavailableError:
            # The next try goes to the next replica, unless somebody else has moved on already.
            # The connection stays: other calls may be under way on it.
            if self._target == target:
                self._target = self._rotation.next()
            raise

    async def _unary(
        self,
        method: "grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]",
        request: RequestT,
    ) -> ResponseT:
        return await call_unary(
            method, request, timeout_s=GRANT_CALL_TIMEOUT_S, metadata=self._metadata
        )

    def _stub(self, target: str) -> pb_grpc.NodeServiceStub:
        channel = self._channels.get(target)
        if channel is None:
            channel = open_channel(self._address.channel_config(target, retries=True))
            self._channels[target] = channel
        return pb_grpc.NodeServiceStub(channel)  # type: ignore[no-untyped-call, unused-ignore]


def _grant(message: pb.AccessGrant) -> Grant:
    method = _METHODS.get(message.method)
    if method is None or not message.url or not message.HasField("expire_time"):
        raise GrantMalformedError(
            f"grant {message.grant_id!r} for {message.resource_ref!r} lacks its method, URL or end"
        )
    return Grant(
        grant_id=message.grant_id,
        resource_ref=message.resource_ref,
        method=method,
        url=message.url,
        headers=dict(message.headers),
        expires_at=message.expire_time.ToDatetime(tzinfo=UTC),
        size_bytes=message.size_bytes,
        sha256=message.sha256,
    )
