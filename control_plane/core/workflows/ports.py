"""What the use cases of workflows need of their store."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PublishedWorkflow:
    """One published version; `definition_json` is canonical, empty in lists."""

    name: str
    version: str
    digest: str
    definition_json: str
    published_at: datetime
    deprecated_at: datetime | None


class WorkflowStore(Protocol):
    """Published versions, which never change but for being deprecated."""

    async def publish(
        self, name: str, version: str, digest: str, definition_json: str
    ) -> tuple[PublishedWorkflow, bool]:
        """Store a version unless it is there; return what is there and whether it is new.

        The caller compares digests: the version may be there with other content.
        """
        ...

    async def get(self, name: str, version: str) -> PublishedWorkflow | None:
        """Read one version; an empty one means the newest that is not deprecated."""
        ...

    async def list(
        self, name: str, after: tuple[str, str] | None, limit: int
    ) -> Sequence[PublishedWorkflow]:
        """Read up to `limit` versions after (name, version), in that order, or of one name."""
        ...

    async def deprecate(self, name: str, version: str) -> PublishedWorkflow | None:
        """Deprecate a version, once; None if there is none."""
        ...

    async def known_capabilities(self) -> frozenset[tuple[str, str]]:
        """Every (capability, version) that some node has declared."""
        ...
