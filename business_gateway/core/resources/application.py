"""The use cases of resources: grants, places, commits, downloads."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from business_gateway.core.objects import GrantMethod, ObjectStore, PresignedRequest
from business_gateway.core.paging import page_cursor, page_position, page_size
from business_gateway.core.resources.domain import (
    Artifact,
    ArtifactId,
    ArtifactNotFoundError,
    ArtifactState,
    CommitPart,
    NewArtifact,
    Place,
    ResourceKind,
    ResourceRef,
    Work,
    check_allocated,
    check_boot_id,
    check_collection,
    check_commit,
    check_places,
    grant_valid_s,
    not_found,
    object_key,
    parse_ref,
    refused,
)
from business_gateway.core.resources.ports import ResourceStore
from business_gateway.core.resources.verifying import ByteVerifier
from foundation.clock import Clock
from foundation.errors import InvalidArgumentError
from foundation.failpoints import failpoint
from foundation.ids import IdSource, parse_id

_PATH_SEPARATOR = "\x1f"


@dataclass(frozen=True, slots=True)
class GrantLimits:
    """How long grants and downloads last, and how many objects are hashed at once."""

    valid_s_min: int = 60
    valid_s_max: int = 900
    download_valid_s: int = 300
    hashes_max: int = 4


@dataclass(frozen=True, slots=True)
class Grant:
    """Access to one object, and what is known of its bytes (0 and None where nothing is)."""

    request: PresignedRequest
    size_bytes: int = 0
    sha256: bytes | None = None


@dataclass(frozen=True, slots=True)
class AllocatedPlace:
    """A place, its reference and the grant to write it."""

    artifact: Artifact
    grant: Grant


@dataclass(frozen=True, slots=True)
class ArtifactPage:
    """Some artifacts by path, and the cursor of the next page: empty on the last."""

    artifacts: Sequence[Artifact]
    next_cursor: str


@dataclass(frozen=True, slots=True)
class GrantRequest:
    """What access is asked for."""

    resource_ref: str
    method: GrantMethod
    desired_expiry: datetime | None
    scope_type: str = ""
    scope_ref: str = ""


class Resources:
    """What the platform asks the owner of the bytes, on behalf of an attempt."""

    def __init__(
        self,
        store: ResourceStore,
        objects: ObjectStore,
        ids: IdSource,
        clock: Clock,
        limits: GrantLimits,
    ) -> None:
        self._store = store
        self._objects = objects
        self._ids = ids
        self._clock = clock
        self._limits = limits
        self._verifier = ByteVerifier(objects, hashes_max=limits.hashes_max)

    async def issue_grant(self, work: Work, asked: GrantRequest) -> Grant:
        """Grant access to one resource of the work's order.

        Raises ResourceNotFoundError, ResourceRefusedError, InvalidArgumentError.
        """
        _check_scope(asked)
        ref = parse_ref(asked.resource_ref, "resource_ref")
        valid_s = self._valid_s(asked.desired_expiry)
        if ref.kind is ResourceKind.COLLECTION:
            raise InvalidArgumentError.of_field(
                "resource_ref", f"{ref} is a collection: ask for one of its artifacts"
            )
        if asked.method is GrantMethod.PUT:
            return await self._write_grant(work, ref, valid_s)
        if ref.kind is ResourceKind.ASSET:
            return await self._asset_grant(work, ref, valid_s)
        return await self._artifact_grant(work, ref, valid_s)

    async def allocate(
        self,
        work: Work,
        boot_id: str,
        collection_ref: str,
        places: Sequence[Place],
        desired_expiry: datetime | None,
    ) -> Sequence[AllocatedPlace]:
        """Reserve one place for each path, the same ones again when asked again.

        Raises ResourceNotFoundError, ResourceRefusedError, InvalidArgumentError.
        """
        check_collection(collection_ref, work)
        check_boot_id(boot_id)
        check_places(places)
        if not await self._store.order_exists(work.order_id):
            raise not_found(ResourceRef(ResourceKind.COLLECTION, work.order_id))
        new = [
            NewArtifact(
                ArtifactId(self._ids.new_id()),
                one,
                object_key(work, boot_id, one.relative_path),
            )
            for one in places
        ]
        await failpoint("artifact.allocate.before")
        artifacts = await self._store.allocate(work, boot_id, new)
        await failpoint("artifact.allocate.after")
        valid_s = self._valid_s(desired_expiry)
        return [AllocatedPlace(one, self._put_grant(one, valid_s)) for one in artifacts]

    async def commit(self, work: Work, collection_ref: str, part: CommitPart) -> int:
        """Verify a part's bytes and commit it; returns the number of its files.

        Raises ArtifactMismatchError, ArtifactCommitConflictError, ResourceNotFoundError,
        ResourceRefusedError, InvalidArgumentError, ObjectStoreUnavailableError.
        """
        check_collection(collection_ref, work)
        check_commit(part)
        known = await self._store.committed_count(work, part)
        if known is not None:
            return known
        artifacts = await self._store.artifacts([one.artifact_id for one in part.files])
        pairs = [
            (one, check_allocated(one, artifacts.get(one.artifact_id), work)) for one in part.files
        ]
        await self._verifier.verify(pairs)
        await failpoint("artifact.commit.before")
        count = await self._store.commit(work, part)
        await failpoint("artifact.commit.after")
        return count

    def _valid_s(self, desired: datetime | None) -> int:
        limits = self._limits
        return grant_valid_s(
            desired,
            self._clock.now(),
            valid_s_min=limits.valid_s_min,
            valid_s_max=limits.valid_s_max,
        )

    async def _asset_grant(self, work: Work, ref: ResourceRef, valid_s: int) -> Grant:
        found = await self._store.source_of(work.order_id, ref.id)
        if found is None:
            raise not_found(ref)
        if not found.is_orders_source:
            raise refused(ref, work)
        request = self._objects.presign_get(found.object_key, valid_s)
        return Grant(request, found.size_bytes, found.sha256)

    async def _artifact_grant(self, work: Work, ref: ResourceRef, valid_s: int) -> Grant:
        artifact = await self._artifact(work, ref)
        if artifact.state is not ArtifactState.COMMITTED:
            raise refused(ref, work)
        request = self._objects.presign_get(artifact.object_key, valid_s)
        return Grant(request, artifact.size_bytes or 0, artifact.sha256)

    async def _write_grant(self, work: Work, ref: ResourceRef, valid_s: int) -> Grant:
        if ref.kind is not ResourceKind.ARTIFACT:
            raise refused(ref, work)
        artifact = await self._artifact(work, ref)
        if artifact.attempt_id != work.attempt_id or artifact.state is not ArtifactState.ALLOCATED:
            raise refused(ref, work)
        return self._put_grant(artifact, valid_s)

    async def _artifact(self, work: Work, ref: ResourceRef) -> Artifact:
        artifact = await self._store.artifact(ArtifactId(ref.id))
        if artifact is None:
            raise not_found(ref)
        if artifact.order_id != work.order_id:
            raise refused(ref, work)
        return artifact

    def _put_grant(self, artifact: Artifact, valid_s: int) -> Grant:
        request = self._objects.presign_put(artifact.object_key, artifact.media_type, valid_s)
        return Grant(request, artifact.size_bytes_max)


class Artifacts:
    """What a client reads of an order's results."""

    def __init__(self, store: ResourceStore, objects: ObjectStore, limits: GrantLimits) -> None:
        self._store = store
        self._objects = objects
        self._limits = limits

    async def page(self, order_id: str, cursor: str, size: int) -> ArtifactPage:
        """Read a page of committed artifacts by path; ResourceNotFoundError for no such order."""
        wanted = parse_id(order_id, "order_id")
        limit = page_size(size)
        scope = f"artifacts:{wanted}"
        position = page_position(cursor, scope)
        after = None if position is None else _split(position)
        if not await self._store.order_exists(wanted):
            raise not_found(ResourceRef(ResourceKind.COLLECTION, wanted))
        found = await self._store.page(wanted, after, limit + 1)
        if len(found) <= limit:
            return ArtifactPage(found, "")
        last = found[limit - 1]
        position = f"{last.artifact_id}{_PATH_SEPARATOR}{last.relative_path}"
        return ArtifactPage(found[:limit], page_cursor(scope, position))

    async def download(self, order_id: str, artifact_id: str) -> PresignedRequest:
        """Allow reading one committed artifact; ArtifactNotFoundError."""
        artifact = await self.committed(order_id, artifact_id)
        name = artifact.relative_path.rsplit("/", 1)[-1]
        return self._objects.presign_get(artifact.object_key, self._limits.download_valid_s, name)

    async def committed(self, order_id: str, artifact_id: str) -> Artifact:
        """Read one committed artifact of the order; ArtifactNotFoundError."""
        wanted = ArtifactId(parse_id(artifact_id, "artifact_id"))
        artifact = await self._store.artifact(wanted)
        if (
            artifact is None
            or artifact.order_id != parse_id(order_id, "order_id")
            or artifact.state is not ArtifactState.COMMITTED
        ):
            raise ArtifactNotFoundError(f"order {order_id} has no artifact {wanted}: list them")
        return artifact


def _split(position: str) -> tuple[str, str]:
    artifact_id, _, path = position.partition(_PATH_SEPARATOR)
    return path, parse_id(artifact_id, "cursor")


def _check_scope(asked: GrantRequest) -> None:
    if bool(asked.scope_type) != bool(asked.scope_ref):
        raise InvalidArgumentError.of_field("scope_type", "comes with scope_ref, or neither does")
    if asked.scope_type:
        raise InvalidArgumentError.of_field(
            "scope_type",
            f"{asked.scope_type[:64]!r} is not offered here: ask for the whole resource",
            reason="RESOURCE_SCOPE_UNSUPPORTED",
        )
