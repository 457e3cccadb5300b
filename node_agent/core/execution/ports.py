"""The border between the agent's core, which owns attempts, and the host that runs them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

from node_agent.core.session.lease_clock import AttemptId


@dataclass(frozen=True, slots=True)
class CapabilityDeclaration:
    """What a capability is called and takes; schemas are JSON Schema 2020-12, canonical JSON.

    An inline capability runs in the agent's event loop and takes no slot. One that supports
    resume goes on after a restart of the agent, with its last checkpoint, if it has one.
    """

    name: str
    version: str
    input_schema_json: str
    output_schema_json: str
    inline: bool
    supports_resume: bool = False


@dataclass(frozen=True, slots=True)
class RunOrder:
    """Everything an attempt needs to run.

    `checkpoint_json` is the last durable checkpoint of this attempt when it is resumed.
    `work_folder` exists, is private to the attempt, and is deleted by the core after its end.
    A limit of None is the host's default, which for time-outs means none.
    """

    attempt_id: AttemptId
    lease_version: int
    task_id: str
    execution_id: str
    step_key: str
    item_index: int
    attempt_number: int
    capability: str
    capability_version: str
    input_json: str
    checkpoint_json: str | None
    work_folder: Path
    run_timeout_s: float | None
    heartbeat_timeout_s: float | None
    memory_bytes_max: int | None


@dataclass(frozen=True, slots=True)
class Grant:
    """A short right to read or write one object; its URL is a secret and never shown.

    `size_bytes` is the size where known (GET), or the most that may be written (PUT), 0 where
    unknown; `sha256` has 32 bytes, or none where unknown.
    """

    grant_id: str
    resource_ref: str
    method: Literal["GET", "PUT"]
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    expires_at: datetime
    size_bytes: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class ArtifactRequest:
    """A place asked for: a relative path with `/`, and the most bytes to be written, at least 1."""

    relative_path: str
    type: str
    media_type: str
    size_bytes_max: int


@dataclass(frozen=True, slots=True)
class AllocatedArtifact:
    """A place to upload to, with its PUT grant."""

    relative_path: str
    resource_ref: str
    grant: Grant


@dataclass(frozen=True, slots=True)
class UploadedArtifact:
    """A file that is wholly uploaded; `sha256` has 32 bytes."""

    relative_path: str
    resource_ref: str
    size_bytes: int
    sha256: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What an attempt consumed: CPU of its process, peak resident memory, wall time."""

    cpu_time_ms: int = 0
    memory_bytes_max: int = 0
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class WorkFailure:
    """Why work failed; `infrastructure` where the work itself is innocent."""

    reason: str
    message: str
    retryable: bool
    next_retry_delay_s: float | None = None
    infrastructure: bool = False
    log_tail: str = ""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The work is done; `collection_ref` is empty without artifacts."""

    output_json: str
    collection_ref: str
    artifact_count: int
    usage: Usage


@dataclass(frozen=True, slots=True)
class Failed:
    """The work failed."""

    failure: WorkFailure
    usage: Usage


@dataclass(frozen=True, slots=True)
class Stopped:
    """The work was asked to stop, and stopped."""

    usage: Usage


Outcome = Succeeded | Failed | Stopped


class AttemptServices(Protocol):
    """What the core does for one running attempt; errors are TdpErrors and reach the capability."""

    async def progress(self, percent: int, message: str) -> None:
        """Report how far the attempt is, 0 to 100; not durable."""
        ...

    async def save_checkpoint(self, document_json: str) -> None:
        """Store the attempt's checkpoint; durable when it returns."""
        ...

    async def authorize(self, resource_ref: str) -> Grant:
        """Return a fresh GET grant; asked again, it is renewed when near its end."""
        ...

    async def allocate(
        self, collection_ref: str, requests: Sequence[ArtifactRequest]
    ) -> Sequence[AllocatedArtifact]:
        """Return places in the order of the requests; asked again, fresh grants for them."""
        ...

    async def uploaded(self, artifacts: Sequence[UploadedArtifact]) -> None:
        """Store the list of artifacts ahead of the result; durable when it returns."""
        ...


class CapabilityHost(Protocol):
    """Runs capabilities."""

    def declarations(self) -> Sequence[CapabilityDeclaration]:
        """Everything that this host can run."""
        ...

    async def start(self) -> None:
        """Get ready to run; children may be started."""
        ...

    async def run(self, order: RunOrder, services: AttemptServices, stop: asyncio.Event) -> Outcome:
        """Run one attempt to its end; never raises for failures of the work.

        Once `stop` is set it ends soon, with the child killed if it does not end by itself.
        """
        ...

    async def stop(self) -> None:
        """End all children; idempotent, legal before start, returns only when stopped."""
        ...
