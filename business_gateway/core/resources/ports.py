"""What the use cases of resources need from outside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from business_gateway.core.resources.domain import (
    Artifact,
    ArtifactId,
    CommitPart,
    NewArtifact,
    Work,
)


@dataclass(frozen=True, slots=True)
class ReadableObject:
    """An object that may be read: whose order it is, where it lies, and what is known of it."""

    is_orders_source: bool
    object_key: str
    size_bytes: int
    sha256: bytes | None


class ResourceStore(Protocol):
    """Artifacts and the sources of orders, in the gateway's database."""

    async def order_exists(self, order_id: str) -> bool:
        """Whether there is such an order."""
        ...

    async def source_of(self, order_id: str, asset_id: str) -> ReadableObject | None:
        """Return the READY asset; None where there is none. It may be another order's source."""
        ...

    async def artifact(self, artifact_id: ArtifactId) -> Artifact | None:
        """Read one."""
        ...

    async def artifacts(self, artifact_ids: Sequence[ArtifactId]) -> Mapping[ArtifactId, Artifact]:
        """Read several, those that exist, in one round trip."""
        ...

    async def allocate(
        self, work: Work, boot_id: str, artifacts: Sequence[NewArtifact]
    ) -> Sequence[Artifact]:
        """Store new places and return those of (attempt, boot, path), old or new, in order."""
        ...

    async def committed_count(self, work: Work, part: CommitPart) -> int | None:
        """Return the count of a part that is committed already, None if it is not.

        Raises ArtifactCommitConflictError when that part had other files.
        """
        ...

    async def commit(self, work: Work, part: CommitPart) -> int:
        """Mark the part's files VERIFIED, and all of the attempt COMMITTED with the last part.

        Answers a repeat; raises ArtifactCommitConflictError.
        """
        ...

    async def page(
        self, order_id: str, after_path: tuple[str, str] | None, limit: int
    ) -> Sequence[Artifact]:
        """Read up to `limit` committed artifacts of an order by (path, id)."""
        ...


class ArtifactSweepStore(Protocol):
    """Places that were never committed."""

    async def left_places(self, older_than_s: float, limit: int) -> Sequence[Artifact]:
        """Read up to `limit` uncommitted places of that age, oldest first."""
        ...

    async def forget(self, artifact_ids: Sequence[ArtifactId]) -> None:
        """Remove those of them that are still uncommitted."""
        ...
