"""The agent's services as a child sees them: each call a message, each answer matched by number."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from node_agent.adapters.outbound.process_host.frames import Frames, Message
from node_agent.adapters.outbound.process_host.messages import (
    allocated_from,
    error_from,
    grant_from,
    request_document,
    uploaded_document,
)
from node_agent.core.execution.ports import (
    AllocatedArtifact,
    ArtifactRequest,
    AttemptServices,
    Grant,
    UploadedArtifact,
)


class RemoteServices(AttemptServices):
    """Calls over the connection to the agent; `answered` takes what the reader gets."""

    def __init__(self, frames: Frames) -> None:
        """Have no call open."""
        self._frames = frames
        self._numbers = itertools.count(1)
        self._open: dict[int, asyncio.Future[Any]] = {}

    async def progress(self, percent: int, message: str) -> None:
        """Send progress; there is no answer."""
        await self._frames.send({"kind": "progress", "percent": percent, "message": message})

    async def alive(self) -> None:
        """Send a sign of life; there is no answer."""
        await self._frames.send({"kind": "alive"})

    async def save_checkpoint(self, document_json: str) -> None:
        """Store a checkpoint."""
        await self._call("save_checkpoint", document_json)

    async def authorize(self, resource_ref: str) -> Grant:
        """Get a GET grant."""
        return grant_from(await self._call("authorize", resource_ref))

    async def allocate(
        self, collection_ref: str, requests: Sequence[ArtifactRequest]
    ) -> Sequence[AllocatedArtifact]:
        """Get places with PUT grants."""
        documents = [request_document(request) for request in requests]
        places = await self._call("allocate", [collection_ref, documents])
        return [allocated_from(place) for place in places]

    async def uploaded(self, artifacts: Sequence[UploadedArtifact]) -> None:
        """List uploaded artifacts."""
        await self._call("uploaded", [uploaded_document(artifact) for artifact in artifacts])

    def answered(self, message: Message) -> None:
        """Give an answer to the call that waits for it."""
        future = self._open.pop(message["number"], None)
        if future is None or future.done():
            return
        if message.get("error") is not None:
            future.set_exception(error_from(message["error"]))
        else:
            future.set_result(message["result"])

    async def _call(self, method: str, argument: object) -> Any:  # noqa: ANN401 - JSON, read by the caller
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[number] = future
        try:
            await self._frames.send(
                {"kind": "call", "number": number, "method": method, "argument": argument}
            )
            return await future
        finally:
            self._open.pop(number, None)
