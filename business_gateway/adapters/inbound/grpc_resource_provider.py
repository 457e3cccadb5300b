"""ResourceProviderService: the platform asks for access to the business's bytes."""

import hmac
from datetime import UTC, datetime
from typing import Final

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from business_gateway.core.errors import GatewayError
from business_gateway.core.objects import GrantMethod
from business_gateway.core.resources.application import Grant, GrantRequest, Resources
from business_gateway.core.resources.domain import (
    ArtifactId,
    CommitPart,
    CommittedFile,
    Place,
    ResourceKind,
    Work,
    parse_ref,
)
from foundation.errors import InvalidArgumentError, UnauthenticatedError
from foundation.grpc.context import ServicerContext
from foundation.grpc.server import GrpcService
from foundation.ids import parse_id
from foundation.principals import Principal, PrincipalKind
from foundation.secrets import hash_token
from tdp.resource.v1 import resource_provider_service_pb2 as pb
from tdp.resource.v1 import resource_provider_service_pb2_grpc as pb_grpc

SERVICE_NAME: Final = pb.DESCRIPTOR.services_by_name["ResourceProviderService"].full_name
_METHODS: Final = {pb.ACCESS_METHOD_GET: GrantMethod.GET, pb.ACCESS_METHOD_PUT: GrantMethod.PUT}
_WIRE_METHODS: Final = {method: value for value, method in _METHODS.items()}


class ProviderSecretRefusedError(GatewayError, UnauthenticatedError):
    """The provider secret is not the one that was agreed with the platform."""

    reason = "PROVIDER_SECRET_REFUSED"


class ProviderAuthenticator:
    """Knows one caller, the control plane, by the provider secret."""

    def __init__(self, secret: str) -> None:
        self._secret_sha256 = hash_token(secret)

    async def authenticate(self, method: str, token: str) -> Principal:
        """Return the control plane; ProviderSecretRefusedError."""
        if not hmac.compare_digest(hash_token(token), self._secret_sha256):
            raise ProviderSecretRefusedError("the bearer token is not the provider secret")
        return Principal(PrincipalKind.OPERATOR, "control-plane")


class ResourceProviderServicer(pb_grpc.ResourceProviderServiceServicer):
    """Translates between the contract and the use cases."""

    def __init__(self, resources: Resources, application_id: str) -> None:
        self._resources = resources
        self._application_id = application_id

    async def IssueGrant(
        self, request: pb.IssueGrantRequest, context: ServicerContext
    ) -> pb.IssueGrantResponse:
        if request.method not in _METHODS:
            raise InvalidArgumentError.of_field("method", "is missing: send GET or PUT")
        asked = GrantRequest(
            request.resource_ref,
            _METHODS[request.method],
            _moment(request, "desired_expire_time"),
            request.scope_type,
            request.scope_ref,
        )
        grant = await self._resources.issue_grant(self._work(request.work), asked)
        return pb.IssueGrantResponse(grant=_grant(grant))

    async def AllocateArtifacts(
        self, request: pb.AllocateArtifactsRequest, context: ServicerContext
    ) -> pb.AllocateArtifactsResponse:
        places = [
            Place(one.relative_path, one.type, one.media_type, one.size_bytes_max)
            for one in request.artifacts
        ]
        allocated = await self._resources.allocate(
            self._work(request.work),
            request.boot_id,
            request.collection_ref,
            places,
            _moment(request, "desired_expire_time"),
        )
        return pb.AllocateArtifactsResponse(
            artifacts=[
                pb.AllocatedPlace(
                    relative_path=one.artifact.relative_path,
                    resource_ref=str(one.artifact.ref),
                    grant=_grant(one.grant),
                )
                for one in allocated
            ]
        )

    async def CommitArtifacts(
        self, request: pb.CommitArtifactsRequest, context: ServicerContext
    ) -> pb.CommitArtifactsResponse:
        part = CommitPart(
            request.part,
            request.part_count,
            tuple(_file(one, number) for number, one in enumerate(request.artifacts)),
        )
        work = self._work(request.work)
        count = await self._resources.commit(work, request.collection_ref, part)
        return pb.CommitArtifactsResponse(committed_count=count)

    def _work(self, work: pb.WorkIdentity) -> Work:
        if work.application_id != self._application_id:
            raise InvalidArgumentError.of_field(
                "work.application_id",
                f"{work.application_id[:64]!r} is not served here: this is another "
                "application's provider",
                reason="APPLICATION_UNKNOWN",
            )
        if not work.step_key:
            raise InvalidArgumentError.of_field("work.step_key", "is empty: send the step's key")
        return Work(
            order_id=parse_id(work.external_ref, "work.external_ref"),
            task_id=parse_id(work.task_id, "work.task_id"),
            execution_id=parse_id(work.execution_id, "work.execution_id"),
            step_key=work.step_key,
            item_index=work.item_index,
            attempt_id=parse_id(work.attempt_id, "work.attempt_id"),
        )


def resource_provider(servicer: ResourceProviderServicer) -> GrpcService:
    """Return the service for the gateway's gRPC server."""

    def add(server: grpc.aio.Server) -> None:
        pb_grpc.add_ResourceProviderServiceServicer_to_server(servicer, server)

    return GrpcService(SERVICE_NAME, add)


def _file(file: pb.CommittedArtifact, number: int) -> CommittedFile:
    ref = parse_ref(file.resource_ref, f"artifacts[{number}].resource_ref")
    if ref.kind is not ResourceKind.ARTIFACT:
        raise InvalidArgumentError.of_field(
            f"artifacts[{number}].resource_ref", f"{ref} is no artifact"
        )
    return CommittedFile(file.relative_path, ArtifactId(ref.id), file.size_bytes, file.sha256)


def _grant(grant: Grant) -> pb.ProviderGrant:
    expire_time = Timestamp()
    expire_time.FromDatetime(grant.request.expires_at)
    return pb.ProviderGrant(
        url=grant.request.url,
        method=_WIRE_METHODS[grant.request.method],
        headers=dict(grant.request.headers),
        expire_time=expire_time,
        size_bytes=grant.size_bytes,
        sha256=grant.sha256 or b"",
    )


def _moment(
    request: pb.IssueGrantRequest | pb.AllocateArtifactsRequest, field: str
) -> datetime | None:
    if not request.HasField("desired_expire_time"):
        return None
    try:
        return request.desired_expire_time.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError.of_field(field, "is no moment in time") from error
