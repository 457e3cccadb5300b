"""What a running capability is given: inputs, artifacts, progress, checkpoints, cancellation."""

import asyncio
import hashlib
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog
from pydantic import BaseModel

from foundation.canonical_json import JsonLimits, canonical_json
from foundation.clock import Clock
from node_agent.core.execution.ports import (
    ArtifactRequest,
    AttemptServices,
    Grant,
    RunOrder,
    UploadedArtifact,
)
from node_agent.sdk.artifacts import Artifacts
from node_agent.sdk.errors import Fatal
from node_agent.sdk.files import FileTransfers
from node_agent.sdk.ledger import ArtifactLedger
from node_agent.sdk.reports import Reports

CHECKPOINT_LIMITS: Final = JsonLimits(size_bytes_max=256 * 1024)
_READ_BYTES: Final = 1024 * 1024
_Model = TypeVar("_Model", bound=BaseModel)
_Result = TypeVar("_Result")
Document = BaseModel | Mapping[str, Any]


class WorkCancelledError(Exception):
    """Raised by `raise_if_cancelled`; letting it out ends the attempt as stopped."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a host provides for one attempt."""

    services: AttemptServices
    transfers: FileTransfers
    clock: Clock
    alive: Callable[[], Awaitable[None]]


class Context:
    """The surroundings of one attempt, for an asynchronous capability.

    `progress`, `heartbeat`, `cancelled` and `raise_if_cancelled` may be used in any thread;
    the coroutines belong to the attempt's event loop.
    """

    def __init__(self, order: RunOrder, surroundings: Surroundings) -> None:
        """Touch nothing yet; to be made in a running loop."""
        self._order = order
        self._surroundings = surroundings
        self._cancelled = threading.Event()
        self._artifacts: Artifacts | None = None
        ledger_file = order.work_folder / "artifacts.jsonl"
        self.ledger = ArtifactLedger(ledger_file, surroundings.services.uploaded)
        self.reports = Reports(surroundings.services.progress, surroundings.alive)
        self._log: structlog.stdlib.BoundLogger | None = None

    @property
    def log(self) -> structlog.stdlib.BoundLogger:
        """A log whose end is shown with a failure, like everything printed."""
        if self._log is None:
            logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(
                self._order.capability
            )
            self._log = logger.bind(attempt_id=self._order.attempt_id)
        return self._log

    @property
    def work_folder(self) -> Path:
        """A private folder on disk; it lasts as long as the attempt, over restarts of the agent."""
        return _made(self._order.work_folder / "files")

    @property
    def attempt_id(self) -> str:
        """The attempt's id: the same after a resume, new in a retry."""
        return self._order.attempt_id

    @property
    def attempt_number(self) -> int:
        """Which try of the step this is, from 1."""
        return self._order.attempt_number

    # --- In any thread. ---

    def progress(self, percent: float, message: str = "") -> None:
        """Tell how far the work is, 0 to 100, as often as you like; it also shows life."""
        self.reports.progress(percent, message)

    def heartbeat(self) -> None:
        """Show that the work goes on where there is no progress to tell."""
        self.reports.alive()

    @property
    def cancelled(self) -> bool:
        """Whether the attempt shall stop; it is killed a few seconds after."""
        return self._cancelled.is_set()

    def is_cancelled(self) -> bool:
        """The same as a function, to be handed on."""
        return self._cancelled.is_set()

    def raise_if_cancelled(self) -> None:
        """Raise WorkCancelledError if the attempt shall stop."""
        if self._cancelled.is_set():
            raise WorkCancelledError

    def cancel(self) -> None:
        """Ask the work to stop; for hosts and tests."""
        self._cancelled.set()

    # --- Checkpoints. ---

    @property
    def last_checkpoint(self) -> dict[str, Any] | None:
        """The last durable checkpoint of this attempt, None at its first start."""
        text = self._order.checkpoint_json
        if text is None:
            return None
        document: dict[str, Any] = json.loads(text)
        return document

    def last_checkpoint_as(self, model: type[_Model]) -> _Model | None:
        """The last checkpoint as a model; None too if it has another shape (an older version)."""
        text = self._order.checkpoint_json
        if text is None:
            return None
        try:
            return model.model_validate_json(text)
        except ValueError:
            self.log.warning("checkpoint_ignored", model=model.__name__)
            return None

    async def checkpoint(self, document: Document) -> None:
        """Store where a resumed attempt shall go on; durable when it returns.

        At most 256 KiB; larger state belongs in a file of `work_folder`.
        """
        text = document.model_dump_json() if isinstance(document, BaseModel) else _text(document)
        canonical = canonical_json(text, field="checkpoint", limits=CHECKPOINT_LIMITS)
        await self.ledger.sync()
        await self._surroundings.services.save_checkpoint(canonical)
        self.heartbeat()

    # --- Files. ---

    async def open_input(self, resource_ref: str) -> Path:
        """Bring a resource here and return its file, whole and checked against its SHA-256.

        A second call, and a resumed attempt, use what is here already.

        Raises:
            TdpError: it may not be read, is missing, or could not be transferred.
        """
        inputs = _made(self._order.work_folder / "inputs")
        file = inputs / hashlib.sha256(resource_ref.encode()).hexdigest()[:32]
        grant = await self._surroundings.services.authorize(resource_ref)
        if not await self._is_here(file, grant):
            grants = _GrantsAfter(
                grant, lambda: self._surroundings.services.authorize(resource_ref)
            )
            await self._surroundings.transfers.download(grants.next, file, self.heartbeat)
        return file

    async def _is_here(self, file: Path, grant: Grant) -> bool:
        if not grant.sha256:
            return False
        return await asyncio.to_thread(_digest, file, self.heartbeat) == grant.sha256

    def artifacts(self, collection_ref: str) -> Artifacts:
        """Return the collection to write to; an attempt has one.

        Raises:
            Fatal: COLLECTION_CHANGED, another one was used before.
        """
        if self._artifacts is None:
            surroundings = self._surroundings
            self._artifacts = Artifacts(
                collection_ref,
                surroundings.services,
                surroundings.transfers,
                self.ledger,
                surroundings.clock,
                self.heartbeat,
            )
        if self._artifacts.collection_ref != collection_ref:
            raise Fatal(
                "COLLECTION_CHANGED",
                f"the attempt writes to {self._artifacts.collection_ref!r}, so it cannot write to"
                f" {collection_ref!r} too; use one collection",
            )
        return self._artifacts

    @property
    def collection_ref(self) -> str:
        """The collection that was written to, empty if none was."""
        return self._artifacts.collection_ref if self._artifacts is not None else ""


class _GrantsAfter:
    """A grant at hand first, then fresh ones."""

    def __init__(self, first: Grant, fresh: Callable[[], Awaitable[Grant]]) -> None:
        self._first: Grant | None = first
        self._fresh = fresh

    async def next(self) -> Grant:
        first, self._first = self._first, None
        return first if first is not None else await self._fresh()


class BlockingArtifacts:
    """`Artifacts` for a synchronous capability."""

    def __init__(
        self, artifacts: Artifacts, wait: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        """Wait for the coroutines of the asynchronous one."""
        self._artifacts = artifacts
        self._wait = wait

    def reserve(self, requests: Sequence[ArtifactRequest]) -> None:
        """See Artifacts.reserve."""
        self._wait(self._artifacts.reserve(requests))

    def put(self, path: str, file: Path, type: str, media_type: str) -> UploadedArtifact:  # noqa: A002 - the contract's word, and the author's
        """See Artifacts.put."""
        uploaded: UploadedArtifact = self._wait(self._artifacts.put(path, file, type, media_type))
        return uploaded


class BlockingContext:
    """The surroundings of one attempt, for a synchronous capability, which runs in a thread."""

    def __init__(self, context: Context) -> None:
        """Stand on an asynchronous context; to be made in its running loop."""
        self._context = context
        self._loop = asyncio.get_running_loop()
        self.progress = context.progress
        self.heartbeat = context.heartbeat
        self.is_cancelled = context.is_cancelled
        self.raise_if_cancelled = context.raise_if_cancelled
        self.last_checkpoint_as = context.last_checkpoint_as

    @property
    def log(self) -> structlog.stdlib.BoundLogger:
        """See Context."""
        return self._context.log

    @property
    def work_folder(self) -> Path:
        """See Context."""
        return self._context.work_folder

    @property
    def attempt_id(self) -> str:
        """See Context."""
        return self._context.attempt_id

    @property
    def attempt_number(self) -> int:
        """See Context."""
        return self._context.attempt_number

    @property
    def cancelled(self) -> bool:
        """See Context."""
        return self._context.cancelled

    @property
    def last_checkpoint(self) -> dict[str, Any] | None:
        """See Context."""
        return self._context.last_checkpoint

    def checkpoint(self, document: Document) -> None:
        """See Context.checkpoint."""
        self._wait(self._context.checkpoint(document))

    def open_input(self, resource_ref: str) -> Path:
        """See Context.open_input."""
        return self._wait(self._context.open_input(resource_ref))

    def artifacts(self, collection_ref: str) -> BlockingArtifacts:
        """See Context.artifacts."""
        return BlockingArtifacts(self._context.artifacts(collection_ref), self._wait)

    def _wait(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, allow_nan=False)


def _digest(file: Path, alive: Callable[[], None]) -> bytes | None:
    """The SHA-256 of a file's content, None if there is no file."""
    if not file.exists():
        return None
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while piece := content.read(_READ_BYTES):
            digest.update(piece)
            alive()
    return digest.digest()
