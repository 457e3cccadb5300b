"""The core's part for one capability run alone: local files instead of a store, no servers."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from foundation.errors import InvalidArgumentError, NotFoundError
from node_agent.core.execution.ports import (
    AllocatedArtifact,
    ArtifactRequest,
    AttemptServices,
    Grant,
    UploadedArtifact,
)

_NEVER = datetime.max.replace(tzinfo=UTC)


class LocalServices(AttemptServices):
    """Inputs are named files, artifacts land in a folder; its grants are file grants."""

    def __init__(
        self, inputs: Mapping[str, Path], output: Path, on_progress: Callable[[int, str], None]
    ) -> None:
        """Take the input files by resource reference, and the folder for artifacts."""
        self._inputs = dict(inputs)
        self._output = output.resolve()
        self._on_progress = on_progress
        self.checkpoint_json: str | None = None
        self.artifacts: dict[str, UploadedArtifact] = {}

    async def progress(self, percent: int, message: str) -> None:
        """Show progress."""
        self._on_progress(percent, message)

    async def save_checkpoint(self, document_json: str) -> None:
        """Keep the last checkpoint in memory: a run alone is not resumed."""
        self.checkpoint_json = document_json

    async def authorize(self, resource_ref: str) -> Grant:
        """Grant an input file; raises NotFoundError for anything else."""
        file = self._inputs.get(resource_ref)
        if file is None:
            raise NotFoundError(
                f"resource {resource_ref!r} is none of this run's inputs:"
                f" {', '.join(self._inputs) or '(none)'}",
                reason="RESOURCE_MISSING",
            )
        size_bytes, sha256 = await asyncio.to_thread(_size_and_digest, file)
        return Grant(
            resource_ref,
            resource_ref,
            "GET",
            file.resolve().as_uri(),
            {},
            _NEVER,
            size_bytes,
            sha256,
        )

    async def allocate(
        self, collection_ref: str, requests: Sequence[ArtifactRequest]
    ) -> Sequence[AllocatedArtifact]:
        """Give places below the output folder; raises InvalidArgumentError for one outside it."""
        return [self._place(collection_ref, request) for request in requests]

    async def uploaded(self, artifacts: Sequence[UploadedArtifact]) -> None:
        """Keep the list."""
        self.artifacts.update({artifact.relative_path: artifact for artifact in artifacts})

    def _place(self, collection_ref: str, request: ArtifactRequest) -> AllocatedArtifact:
        path = PurePosixPath(request.relative_path)
        if path.is_absolute() or ".." in path.parts:
            raise InvalidArgumentError.of_field(
                "relative_path", f"{request.relative_path!r} leaves the collection"
            )
        resource_ref = f"{collection_ref}/{path}"
        url = (self._output / path).as_uri()
        grant = Grant(
            resource_ref, resource_ref, "PUT", url, {}, _NEVER, request.size_bytes_max, b""
        )
        return AllocatedArtifact(request.relative_path, resource_ref, grant)


def _size_and_digest(file: Path) -> tuple[int, bytes]:
    with file.open("rb") as content:
        return file.stat().st_size, hashlib.file_digest(content, "sha256").digest()
