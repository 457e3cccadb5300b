"""Result files of one attempt: places asked for in batches, files streamed to them."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from foundation.clock import Clock
from node_agent.core.execution.ports import (
    AllocatedArtifact,
    ArtifactRequest,
    AttemptServices,
    Grant,
    UploadedArtifact,
)
from node_agent.sdk.errors import Fatal
from node_agent.sdk.files import FileTransfers
from node_agent.sdk.ledger import ArtifactLedger

ALLOCATION_COUNT_MAX: Final = 200
# S3 takes no more in one PUT.
ARTIFACT_BYTES_MAX: Final = 5 * 1024**3
_GRANT_MARGIN: Final = timedelta(seconds=20)


class Artifacts:
    """The collection that an attempt writes to."""

    def __init__(
        self,
        collection_ref: str,
        services: AttemptServices,
        transfers: FileTransfers,
        ledger: ArtifactLedger,
        clock: Clock,
        on_bytes: Callable[[], None],
    ) -> None:
        """Start with no place."""
        self.collection_ref = collection_ref
        self._services = services
        self._transfers = transfers
        self._ledger = ledger
        self._clock = clock
        self._on_bytes = on_bytes
        self._places: dict[str, tuple[ArtifactRequest, AllocatedArtifact]] = {}

    async def reserve(self, requests: Sequence[ArtifactRequest]) -> None:
        """Ask for places ahead, 200 in one message; `put` uses them while they are good.

        Optional: `put` asks for itself where nothing fits.
        """
        for start in range(0, len(requests), ALLOCATION_COUNT_MAX):
            batch = requests[start : start + ALLOCATION_COUNT_MAX]
            places = await self._services.allocate(self.collection_ref, batch)
            for request, place in zip(batch, places, strict=True):
                self._places[request.relative_path] = request, place

    async def put(self, path: str, file: Path, type: str, media_type: str) -> UploadedArtifact:  # noqa: A002 - the contract's word, and the author's
        """Upload a file under a relative path, whole; it is listed with the attempt's result.

        `type` is what it is to the business (`image`, `manifest`). The same path again
        replaces the file.

        Raises:
            Fatal: ARTIFACT_TOO_LARGE, over 5 GiB.
            TdpError: no place was given, or the upload failed for good.
        """
        size_bytes = (await asyncio.to_thread(file.stat)).st_size
        if size_bytes > ARTIFACT_BYTES_MAX:
            raise Fatal(
                "ARTIFACT_TOO_LARGE",
                f"artifact {path} has {size_bytes} bytes, over the limit of {ARTIFACT_BYTES_MAX};"
                " split it",
            )
        request = ArtifactRequest(path, type, media_type, max(1, size_bytes))
        place = _Place(self, request, self._reserved(request))
        transferred = await self._transfers.upload(file, place.grant, self._on_bytes)
        artifact = UploadedArtifact(
            relative_path=path,
            resource_ref=place.resource_ref,
            size_bytes=transferred.size_bytes,
            sha256=transferred.sha256,
            media_type=media_type,
        )
        await self._ledger.record(artifact)
        return artifact

    async def allocate_one(self, request: ArtifactRequest) -> AllocatedArtifact:
        """Ask for one place now."""
        (place,) = await self._services.allocate(self.collection_ref, [request])
        return place

    def is_good(self, grant: Grant) -> bool:
        """Whether there is time left to begin an upload."""
        now: datetime = self._clock.now()
        return grant.expires_at - now > _GRANT_MARGIN

    def _reserved(self, request: ArtifactRequest) -> AllocatedArtifact | None:
        """A place asked for ahead, if it is for the same kind of file and large enough."""
        reserved, place = self._places.pop(request.relative_path, (None, None))
        if reserved is None or (reserved.type, reserved.media_type) != (
            request.type,
            request.media_type,
        ):
            return None
        return place if reserved.size_bytes_max >= request.size_bytes_max else None


class _Place:
    """Where one file goes: the reserved place first, a newly allocated one after that."""

    def __init__(
        self, artifacts: Artifacts, request: ArtifactRequest, reserved: AllocatedArtifact | None
    ) -> None:
        self._artifacts = artifacts
        self._request = request
        self._reserved = reserved
        self.resource_ref = ""

    async def grant(self) -> Grant:
        place, self._reserved = self._reserved, None
        if place is None or not self._artifacts.is_good(place.grant):
            place = await self._artifacts.allocate_one(self._request)
        self.resource_ref = place.resource_ref
        return place.grant
