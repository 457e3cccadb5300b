"""What the use cases of grants need."""

from collections.abc import Sequence
from typing import Protocol

from control_plane.core.grants.domain import (
    Access,
    Allocation,
    ArtifactPlace,
    Grant,
    GrantHolder,
    GrantRequest,
    LiveAttempt,
)
from control_plane.core.workflows.domain import WorkflowDefinition


class GrantStore(Protocol):
    """Live attempts, their grants and their artifacts."""

    async def live_attempt(self, holder: GrantHolder) -> LiveAttempt:
        """Read the attempt; LeaseLostError unless it is live on this node under this lease."""
        ...

    async def committed_by(self, execution_id: str, resource_ref: str) -> str | None:
        """Return the key of the step whose committed artifact the reference is, or None."""
        ...

    async def definition(self, snapshot_digest: str) -> WorkflowDefinition:
        """Return the frozen definition that an execution runs."""
        ...

    async def allocated_to(self, attempt_id: str, resource_ref: str) -> bool:
        """Whether the reference was allocated to this attempt."""
        ...

    async def grant_of_key(self, attempt: LiveAttempt, key: str) -> Grant | None:
        """Return the grant that was given for this key and still lasts, or None."""
        ...

    async def grant(self, attempt: LiveAttempt, grant_id: str) -> Grant:
        """Return one of the attempt's grants; GrantNotFoundError."""
        ...

    async def save(self, attempt: LiveAttempt, grants: Sequence[Grant]) -> None:
        """Store grants, sealed; LeaseLostError if the lease has moved meanwhile."""
        ...

    async def save_allocations(
        self, attempt: LiveAttempt, boot_id: str, collection_ref: str, made: Sequence[Allocation]
    ) -> None:
        """Store places and their grants; LeaseLostError if the lease has moved meanwhile."""
        ...


class ResourceProvider(Protocol):
    """The business system that owns the bytes.

    Raises ProviderMissingError, ProviderAnswerError, and UnavailableError when it cannot be
    reached.
    """

    async def issue(self, attempt: LiveAttempt, request: GrantRequest) -> Access:
        """Ask for access to one resource."""
        ...

    async def allocate(
        self,
        attempt: LiveAttempt,
        boot_id: str,
        collection_ref: str,
        places: Sequence[ArtifactPlace],
    ) -> Sequence[tuple[str, Access]]:
        """Ask for places: a reference and access for each, in order."""
        ...
