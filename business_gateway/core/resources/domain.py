"""References, places and commits of result files: pure rules.

An artifact goes ALLOCATED -> VERIFIED (its part of the commit is) -> COMMITTED (all parts are).
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final, NewType

from business_gateway.core.errors import GatewayError
from foundation.canonical_json import request_hash
from foundation.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)
from foundation.ids import is_id

ArtifactId = NewType("ArtifactId", str)

PATH_BYTES_MAX: Final = 1_024
TYPE_CHARS_MAX: Final = 100
PLACES_MAX: Final = 200
COMMIT_FILES_MAX: Final = 500
SHA256_BYTES: Final = 32
_BASENAME_CHARS_MAX: Final = 80
_BOOT_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_NAME = r"[A-Za-z0-9!#$&^_.+-]{1,100}"
_MEDIA_TYPE = re.compile(rf"{_NAME}/{_NAME}(; ?[ -~]{{1,100}})?")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class ResourceNotFoundError(GatewayError, NotFoundError):
    """There is no such resource or collection."""

    reason = "RESOURCE_NOT_FOUND"


class ResourceRefusedError(GatewayError, PermissionDeniedError):
    """The resource is not the order's, or not this attempt's to write."""

    reason = "RESOURCE_REFUSED"


class ArtifactMismatchError(GatewayError, FailedPreconditionError):
    """The uploaded bytes are missing or not what was declared; nothing was committed."""

    reason = "ARTIFACT_MISMATCH"


class ArtifactCommitConflictError(GatewayError, FailedPreconditionError):
    """This part was committed with other files, or another attempt's file has the path."""

    reason = "ARTIFACT_COMMIT_CONFLICT"


class CommitInProgressError(GatewayError, AbortedError):
    """Another call is committing for this attempt; repeat it in a moment."""

    reason = "COMMIT_IN_PROGRESS"


class ArtifactNotFoundError(GatewayError, NotFoundError):
    """The order has no such artifact; list its artifacts."""

    reason = "ARTIFACT_NOT_FOUND"


class ResourceKind(StrEnum):
    """What a reference begins with."""

    ASSET = "asset"
    ARTIFACT = "artifact"
    COLLECTION = "collection"


class ArtifactState(StrEnum):
    """How far a result file has come."""

    ALLOCATED = "ALLOCATED"
    VERIFIED = "VERIFIED"
    COMMITTED = "COMMITTED"


@dataclass(frozen=True, slots=True)
class ResourceRef:
    """A reference of ours: its kind and the id behind it."""

    kind: ResourceKind
    id: str

    def __str__(self) -> str:
        """The reference as it travels."""
        return f"{self.kind.value}:{self.id}"


@dataclass(frozen=True, slots=True)
class Work:
    """On whose behalf access is asked for; `order_id` is the platform's external_ref."""

    order_id: str
    task_id: str
    execution_id: str
    step_key: str
    item_index: int
    attempt_id: str


@dataclass(frozen=True, slots=True)
class Place:
    """A result file to come."""

    relative_path: str
    type: str
    media_type: str
    size_bytes_max: int


@dataclass(frozen=True, slots=True)
class NewArtifact:
    """A place with the identity and key that it gets if it is new."""

    artifact_id: ArtifactId
    place: Place
    object_key: str


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A result file as the platform says it was uploaded."""

    relative_path: str
    artifact_id: ArtifactId
    size_bytes: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class CommitPart:
    """One part of an attempt's commit: its number, how many there are, and its files."""

    part: int
    part_count: int
    files: tuple[CommittedFile, ...]

    @property
    def request_sha256(self) -> bytes:
        """The hash that tells a repeat from another commit."""
        return request_hash(
            "CommitArtifacts",
            {
                "part_count": self.part_count,
                "files": [
                    [one.relative_path, one.artifact_id, one.size_bytes, one.sha256]
                    for one in self.files
                ],
            },
        )


@dataclass(frozen=True, slots=True)
class Artifact:
    """A result file as stored."""

    artifact_id: ArtifactId
    order_id: str
    execution_id: str
    step_key: str
    attempt_id: str
    relative_path: str
    type: str
    media_type: str
    size_bytes_max: int
    object_key: str
    state: ArtifactState
    size_bytes: int | None
    sha256: bytes | None
    committed_at: datetime | None

    @property
    def ref(self) -> ResourceRef:
        """The reference that stands for it."""
        return ResourceRef(ResourceKind.ARTIFACT, self.artifact_id)


def parse_ref(text: str, field: str) -> ResourceRef:
    """Read a reference; ResourceNotFoundError unless it is one of ours in form."""
    kind, _, identity = text.partition(":")
    if kind not in set(ResourceKind) or not is_id(identity):
        raise ResourceNotFoundError(
            f"{field} {text[:200]!r} is none of ours: expected asset:, artifact: or collection: "
            "and an id"
        )
    return ResourceRef(ResourceKind(kind), identity.lower())


def check_collection(text: str, work: Work) -> None:
    """Raise unless the collection is the work's order."""
    ref = parse_ref(text, "collection_ref")
    if ref.kind is not ResourceKind.COLLECTION:
        raise InvalidArgumentError.of_field("collection_ref", f"{ref} is no collection")
    if ref.id != work.order_id:
        raise refused(ref, work)


def refused(ref: ResourceRef, work: Work) -> ResourceRefusedError:
    """Make the error of a resource that is another's."""
    return ResourceRefusedError(
        f"{ref} is not attempt {work.attempt_id}'s to use, which works for order {work.order_id}",
        metadata={"resource_ref": str(ref), "order_id": work.order_id},
    )


def not_found(ref: ResourceRef) -> ResourceNotFoundError:
    """Make the error of a resource that is not there."""
    return ResourceNotFoundError(
        f"there is no {ref}: check the reference", metadata={"resource_ref": str(ref)}
    )


def grant_valid_s(
    desired: datetime | None, now: datetime, *, valid_s_min: int, valid_s_max: int
) -> int:
    """Return for how long a grant lasts: as desired, within our own bounds.

    A moment in the past gives the least, since the caller's wall clock may be wrong.
    """
    if desired is None:
        return valid_s_max
    wanted_s = int((desired - now) / timedelta(seconds=1))
    return max(valid_s_min, min(wanted_s, valid_s_max))


def object_key(work: Work, boot_id: str, relative_path: str) -> str:
    """Return the key of a place: the attempt, the process and the path decide it."""
    digest = hashlib.sha256(relative_path.encode()).hexdigest()[:16]
    name = _UNSAFE.sub("_", PurePosixPath(relative_path).name)[-_BASENAME_CHARS_MAX:]
    return f"artifacts/{work.order_id}/{work.attempt_id}/{boot_id}/{digest}-{name}"


def check_boot_id(boot_id: str) -> None:
    """Raise InvalidArgumentError unless it can stand in a key."""
    if not _BOOT_ID.fullmatch(boot_id) or set(boot_id) == {"."}:
        raise InvalidArgumentError.of_field(
            "boot_id", f"{boot_id[:100]!r} is not 1 to 100 letters, digits, dots, dashes"
        )


def check_places(places: Sequence[Place]) -> None:
    """Raise InvalidArgumentError naming the first place that is wrong."""
    if not 1 <= len(places) <= PLACES_MAX:
        raise InvalidArgumentError.of_field(
            "artifacts", f"has {len(places)} places: send 1 to {PLACES_MAX}"
        )
    seen: set[str] = set()
    for number, place in enumerate(places):
        _check_place(place, f"artifacts[{number}]")
        if place.relative_path in seen:
            raise InvalidArgumentError.of_field(
                f"artifacts[{number}].relative_path", f"{place.relative_path!r} comes twice"
            )
        seen.add(place.relative_path)


def _check_place(place: Place, field: str) -> None:
    check_relative_path(place.relative_path, f"{field}.relative_path")
    if not 1 <= len(place.type) <= TYPE_CHARS_MAX or "\x00" in place.type:
        found = f"has {len(place.type)} characters: send 1 to {TYPE_CHARS_MAX}"
        raise InvalidArgumentError.of_field(f"{field}.type", found)
    if not _MEDIA_TYPE.fullmatch(place.media_type):
        found = f"{place.media_type[:100]!r} is no media type, such as image/png"
        raise InvalidArgumentError.of_field(f"{field}.media_type", found)
    if place.size_bytes_max < 1:
        found = f"is {place.size_bytes_max}: send at least 1"
        raise InvalidArgumentError.of_field(f"{field}.size_bytes_max", found)


def check_relative_path(path: str, field: str) -> None:
    """Raise InvalidArgumentError unless the path stays within its collection."""
    parts = path.split("/")
    if (
        not path
        or len(path.encode("utf-8", "surrogatepass")) > PATH_BYTES_MAX
        or any(part in {"", ".", ".."} for part in parts)
        or not path.isprintable()
        or "\\" in path
    ):
        raise InvalidArgumentError.of_field(
            field,
            f"{path[:200]!r} is no relative path: no empty, `.` or `..` parts, no backslash or "
            f"control characters, at most {PATH_BYTES_MAX} bytes",
        )


def check_commit(part: CommitPart) -> None:
    """Raise InvalidArgumentError unless the part's numbers, sizes and hashes are well-formed."""
    if not 1 <= part.part <= part.part_count:
        raise InvalidArgumentError.of_field(
            "part", f"is {part.part} of {part.part_count}: parts count from 1"
        )
    if len(part.files) > COMMIT_FILES_MAX:
        raise InvalidArgumentError.of_field(
            "artifacts", f"has {len(part.files)} files: send at most {COMMIT_FILES_MAX} in a part"
        )
    if len({one.artifact_id for one in part.files}) != len(part.files):
        raise InvalidArgumentError.of_field("artifacts", "names a file twice: send each once")
    for number, one in enumerate(part.files):
        if len(one.sha256) != SHA256_BYTES:
            raise InvalidArgumentError.of_field(
                f"artifacts[{number}].sha256", f"has {len(one.sha256)} bytes: send {SHA256_BYTES}"
            )
        if one.size_bytes < 0:
            raise InvalidArgumentError.of_field(
                f"artifacts[{number}].size_bytes", f"is {one.size_bytes}: send 0 or more"
            )


def check_allocated(file: CommittedFile, artifact: Artifact | None, work: Work) -> Artifact:
    """Return the artifact of a committed file.

    Raises ResourceNotFoundError, ResourceRefusedError for another attempt's, and
    ArtifactMismatchError where path or size is not what was allocated.
    """
    ref = ResourceRef(ResourceKind.ARTIFACT, file.artifact_id)
    if artifact is None:
        raise not_found(ref)
    if artifact.attempt_id != work.attempt_id or artifact.order_id != work.order_id:
        raise refused(ref, work)
    if artifact.relative_path != file.relative_path:
        raise mismatch(file, f"it was allocated for {artifact.relative_path!r}")
    if file.size_bytes > artifact.size_bytes_max:
        raise mismatch(file, f"at most {artifact.size_bytes_max} bytes were allocated")
    return artifact


def mismatch(file: CommittedFile, why: str) -> ArtifactMismatchError:
    """Make the error of bytes that are not what was declared."""
    return ArtifactMismatchError(
        f"{file.relative_path!r} ({file.size_bytes} bytes, SHA-256 {file.sha256.hex()}) cannot be "
        f"committed: {why}; upload it again",
        metadata={"relative_path": file.relative_path[:200], "artifact_id": file.artifact_id},
    )
