"""The grant calls of NodeService: translates between the contract and their use cases."""

from control_plane.core.grants.application import Grants
from control_plane.core.grants.domain import ArtifactPlace, Grant, GrantMethod, GrantRequest
from foundation.errors import InvalidArgumentError
from foundation.grpc.context import ServicerContext as Context
from foundation.grpc.times import timestamp
from foundation.principals import current_principal
from tdp.node.v1 import node_service_pb2 as pb

_METHODS = {pb.GRANT_METHOD_GET: GrantMethod.GET, pb.GRANT_METHOD_PUT: GrantMethod.PUT}
_METHODS_BACK = {method: number for number, method in _METHODS.items()}


class GrantCalls:
    """Serves AuthorizeResource, RenewGrant and AllocateArtifacts for NodeService."""

    def __init__(self, grants: Grants) -> None:
        self._grants = grants

    async def AuthorizeResource(
        self, request: pb.AuthorizeResourceRequest, context: Context
    ) -> pb.AuthorizeResourceResponse:
        method = _METHODS.get(request.method)
        if method is None:
            raise InvalidArgumentError.of_field("method", "is not given: send GET or PUT")
        grant = await self._grants.authorize(
            current_principal(),
            request.attempt_id,
            request.lease_version,
            GrantRequest(
                request.idempotency_key,
                request.resource_ref,
                method,
                request.scope_type,
                request.scope_ref,
            ),
        )
        return pb.AuthorizeResourceResponse(grant=_message(grant))

    async def RenewGrant(
        self, request: pb.RenewGrantRequest, context: Context
    ) -> pb.RenewGrantResponse:
        grant = await self._grants.renew(
            current_principal(),
            request.attempt_id,
            request.lease_version,
            request.idempotency_key,
            request.grant_id,
        )
        return pb.RenewGrantResponse(grant=_message(grant))

    async def AllocateArtifacts(
        self, request: pb.AllocateArtifactsRequest, context: Context
    ) -> pb.AllocateArtifactsResponse:
        made = await self._grants.allocate(
            current_principal(),
            request.attempt_id,
            request.lease_version,
            request.idempotency_key,
            request.boot_id,
            request.collection_ref,
            tuple(
                ArtifactPlace(one.relative_path, one.type, one.media_type, one.size_bytes_max)
                for one in request.artifacts
            ),
        )
        return pb.AllocateArtifactsResponse(
            artifacts=[
                pb.AllocatedArtifact(
                    relative_path=one.place.relative_path,
                    resource_ref=one.resource_ref,
                    grant=_message(one.grant),
                )
                for one in made
            ]
        )


def _message(grant: Grant) -> pb.AccessGrant:
    return pb.AccessGrant(
        grant_id=grant.grant_id,
        resource_ref=grant.request.resource_ref,
        method=_METHODS_BACK[grant.request.method],
        url=grant.access.url,
        headers=grant.access.headers,
        expire_time=timestamp(grant.access.expires_at),
        size_bytes=grant.access.size_bytes,
        sha256=grant.access.sha256,
    )
