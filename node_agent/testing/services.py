"""The agent's part for a capability under test: local files, everything kept, every call told."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from node_agent.adapters.outbound.process_host.local_services import LocalServices
from node_agent.core.execution.ports import (
    AllocatedArtifact,
    ArtifactRequest,
    Grant,
    UploadedArtifact,
)

AfterCall = Callable[[str], Awaitable[None]]
"""Told the name of a call of the work once it has taken effect, before the work gets the answer."""


class StagedServices(LocalServices):
    """Local services whose calls are points at which a test may stop or kill the work."""

    def __init__(self, inputs: Mapping[str, Path], output: Path, after_call: AfterCall) -> None:
        """Take the input files by reference, the folder for artifacts, and who is told."""
        super().__init__(inputs, output, self._note_progress)
        self._after_call = after_call
        self.progress_told: list[tuple[int, str]] = []
        self.checkpoints: list[str] = []

    def _note_progress(self, percent: int, message: str) -> None:
        self.progress_told.append((percent, message))

    @property
    def checkpoint_documents(self) -> list[dict[str, Any]]:
        """All checkpoints in their order."""
        return [json.loads(one) for one in self.checkpoints]

    async def save_checkpoint(self, document_json: str) -> None:
        """Keep it."""
        await super().save_checkpoint(document_json)
        self.checkpoints.append(document_json)
        await self._after_call("checkpoint")

    async def authorize(self, resource_ref: str) -> Grant:
        """Grant a file."""
        grant = await super().authorize(resource_ref)
        await self._after_call("open_input")
        return grant

    async def allocate(
        self, collection_ref: str, requests: Sequence[ArtifactRequest]
    ) -> Sequence[AllocatedArtifact]:
        """Give places."""
        places = await super().allocate(collection_ref, requests)
        await self._after_call("allocate")
        return places

    async def uploaded(self, artifacts: Sequence[UploadedArtifact]) -> None:
        """Keep the list."""
        await super().uploaded(artifacts)
        await self._after_call("report_artifacts")
