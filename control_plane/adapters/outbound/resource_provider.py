"""ResourceProviderService of a business system, called with its secret over checked addresses."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import grpc.aio

from control_plane.adapters.outbound.address_guard import AddressGuard, AddressRefusedError
from control_plane.core.applications.application import provider_secret_place
from control_plane.core.grants.committing import CommitOrder, ReportedArtifact
from control_plane.core.grants.domain import (
    Access,
    ArtifactPlace,
    GrantMethod,
    GrantRequest,
    LiveAttempt,
    ProviderAnswerError,
    ProviderMissingError,
)
from control_plane.limits import CHANNELS_MAX, COMMIT_TIMEOUT_S, PROVIDER_TIMEOUT_S
from foundation.errors import ErrorCode, TdpError, UnavailableError
from foundation.grpc.channel import (
    ChannelConfig,
    ClientTls,
    bearer_metadata,
    call_unary,
    open_channel,
)
from foundation.grpc.times import moment_of, timestamp
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Database
from foundation.secrets import KeyRing
from tdp.resource.v1 import resource_provider_service_pb2 as pb
from tdp.resource.v1 import resource_provider_service_pb2_grpc as pb_grpc

_RETRYABLE: Final = frozenset(
    {ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.RESOURCE_EXHAUSTED}
)
_METHODS: Final = {
    GrantMethod.GET: pb.ACCESS_METHOD_GET,
    GrantMethod.PUT: pb.ACCESS_METHOD_PUT,
}
_METHODS_BACK: Final = {number: method for method, number in _METHODS.items()}
_SQL: Final = NamedSql.load("control_plane.sql.queries", "grants.sql")


class GrpcResourceProviders:
    """Implements ResourceProvider and ArtifactCommitter for every application's provider."""

    def __init__(self, database: Database, keys: KeyRing, guard: AddressGuard) -> None:
        self._database = database
        self._keys = keys
        self._guard = guard
        self._channels: dict[tuple[str, str], grpc.aio.Channel] = {}

    async def close(self) -> None:
        """Close all channels; idempotent."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def issue(self, attempt: LiveAttempt, request: GrantRequest) -> Access:
        """Ask for access to one resource."""
        stub = await self._stub(attempt.provider_url)
        message = pb.IssueGrantRequest(
            work=_work_of(attempt),
            resource_ref=request.resource_ref,
            method=_METHODS[request.method],
            desired_expire_time=timestamp(attempt.expires_at),
            scope_type=request.scope_type,
            scope_ref=request.scope_ref,
        )
        metadata = _metadata(attempt.provider_secret)
        try:
            response = await call_unary(
                stub.IssueGrant, message, timeout_s=PROVIDER_TIMEOUT_S, metadata=metadata
            )
        except TdpError as error:
            raise _meant(error) from error
        return _access(response.grant)

    async def allocate(
        self,
        attempt: LiveAttempt,
        boot_id: str,
        collection_ref: str,
        places: Sequence[ArtifactPlace],
    ) -> Sequence[tuple[str, Access]]:
        """Ask for places: a reference and access for each, in order."""
        stub = await self._stub(attempt.provider_url)
        message = pb.AllocateArtifactsRequest(
            work=_work_of(attempt),
            boot_id=boot_id,
            collection_ref=collection_ref,
            artifacts=[
                pb.ArtifactPlace(
                    relative_path=one.relative_path,
                    type=one.type,
                    media_type=one.media_type,
                    size_bytes_max=one.size_bytes_max,
                )
                for one in places
            ],
            desired_expire_time=timestamp(attempt.expires_at),
        )
        metadata = _metadata(attempt.provider_secret)
        try:
            response = await call_unary(
                stub.AllocateArtifacts, message, timeout_s=PROVIDER_TIMEOUT_S, metadata=metadata
            )
        except TdpError as error:
            raise _meant(error) from error
        answered = [one.relative_path for one in response.artifacts]
        if answered != [one.relative_path for one in places]:
            raise ProviderAnswerError("the provider answered other places than were asked for")
        return [(one.resource_ref, _access(one.grant)) for one in response.artifacts]

    async def commit(
        self, order: CommitOrder, artifacts: Sequence[ReportedArtifact], part: int, part_count: int
    ) -> None:
        """Have one part verified and committed; raises what the provider answered."""
        row = await self._database.fetchrow(_SQL.resource_provider, order.application_id)
        url = "" if row is None else row["resource_provider_url"]
        sealed = None if row is None else row["resource_provider_secret"]
        secret = None
        if sealed is not None:
            secret = self._keys.open(sealed, provider_secret_place(order.application_id))
        message = pb.CommitArtifactsRequest(
            work=pb.WorkIdentity(
                application_id=order.application_id,
                task_id=order.task_id,
                external_ref=order.external_ref,
                execution_id=order.execution_id,
                step_key=order.step_key,
                item_index=order.item_index,
                attempt_id=order.attempt_id,
            ),
            collection_ref=order.collection_ref,
            artifacts=[
                pb.CommittedArtifact(
                    relative_path=one.relative_path,
                    resource_ref=one.resource_ref,
                    size_bytes=one.size_bytes,
                    sha256=one.sha256,
                    media_type=one.media_type,
                )
                for one in artifacts
            ],
            part=part,
            part_count=part_count,
        )
        stub = await self._stub(url)
        await call_unary(
            stub.CommitArtifacts,
            message,
            timeout_s=COMMIT_TIMEOUT_S,
            metadata=_metadata(secret),
        )

    async def _stub(self, url: str) -> pb_grpc.ResourceProviderServiceStub:
        if not url:
            raise ProviderMissingError(
                "the application has no resource provider: set one with SetResourceProvider"
            )
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 443
        try:
            address = (await self._guard.resolve(host, port))[0]
        except AddressRefusedError as error:
            raise UnavailableError(f"the resource provider cannot be called: {error}") from error
        dialled = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        channel = self._channels.get((url, dialled))
        if channel is None:
            if len(self._channels) >= CHANNELS_MAX:
                await self._channels.pop(next(iter(self._channels))).close()
            tls = ClientTls() if parts.scheme == "grpcs" else None
            channel = open_channel(ChannelConfig(target=dialled, tls=tls, authority=host))
            self._channels[url, dialled] = channel
        return pb_grpc.ResourceProviderServiceStub(channel)


def _work_of(attempt: LiveAttempt) -> pb.WorkIdentity:
    return pb.WorkIdentity(
        application_id=attempt.application_id,
        task_id=attempt.task_id,
        external_ref=attempt.external_ref,
        execution_id=attempt.execution_id,
        step_key=attempt.step_key,
        item_index=attempt.item_index,
        attempt_id=attempt.holder.attempt_id,
    )


def _metadata(secret: bytes | None) -> tuple[tuple[str, str], ...]:
    """Carry the secret as text: its own if it is text, else in hexadecimal."""
    if secret is None:
        return ()
    try:
        text = secret.decode("ascii")
    except UnicodeDecodeError:
        text = secret.hex()
    return bearer_metadata(text if text.isprintable() else secret.hex())


def _access(grant: pb.ProviderGrant) -> Access:
    method = _METHODS_BACK.get(grant.method)
    if method is None:
        raise ProviderAnswerError("the provider answered a grant without a method")
    return Access(
        url=grant.url,
        method=method,
        headers=dict(grant.headers),
        expires_at=moment_of(grant.expire_time),
        size_bytes=grant.size_bytes,
        sha256=grant.sha256,
    )


def _meant(error: TdpError) -> TdpError:
    """Return what a provider's answer means to the node: try again, or give the attempt up."""
    if error.code in _RETRYABLE:
        return UnavailableError(
            f"the resource provider does not answer: {error}", retry_delay_s=error.retry_delay_s
        )
    return ProviderAnswerError(f"the resource provider answered {error.code}: {error}")
