"""CommitArtifacts: the durable step between a success with artifacts and its acceptance."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from control_plane.core.executions.domain import AttemptId
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.outcomes import Aftermath, Settlement
from control_plane.core.wakeups import LocalHints
from control_plane.limits import ARTIFACTS_PER_COMMIT_PART_MAX
from foundation.errors import ErrorCode, TdpError
from foundation.outbox.model import Delivered, OutboxRow, Outcome, Retry

_REFUSED: Final = frozenset(
    {
        ErrorCode.FAILED_PRECONDITION,
        ErrorCode.INVALID_ARGUMENT,
        ErrorCode.NOT_FOUND,
        ErrorCode.ALREADY_EXISTS,
        ErrorCode.OUT_OF_RANGE,
    }
)


@dataclass(frozen=True, slots=True)
class ReportedArtifact:
    """One uploaded file, as its node reported it."""

    relative_path: str
    resource_ref: str
    size_bytes: int
    sha256: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class CommitOrder:
    """What is to be committed: the attempt's identity and where its artifacts belong."""

    attempt_id: str
    application_id: str
    task_id: str
    external_ref: str
    execution_id: str
    step_key: str
    item_index: int
    collection_ref: str


class CommitStore(Protocol):
    """What was reported of an attempt, and the end of its pending result."""

    async def external_ref(self, task_id: str) -> str:
        """Return the application's own reference of a task."""
        ...

    async def reported(self, attempt_id: str) -> Sequence[ReportedArtifact]:
        """Read the attempt's reported artifacts, by path."""
        ...


class PendingResults(Protocol):
    """Ends pending results."""

    async def settle(self, settlements: Sequence[Settlement]) -> Aftermath:
        """End pending results; those that are not pending (any more) are left alone."""
        ...


class ArtifactCommitter(Protocol):
    """The provider's side; raises the TdpError that it answered, Unavailable if unreachable."""

    async def commit(
        self, order: CommitOrder, artifacts: Sequence[ReportedArtifact], part: int, part_count: int
    ) -> None:
        """Have one part verified and committed."""
        ...


class CommitPublisher:
    """Implements Publisher over artifact_commits: ask the provider, then settle the result."""

    def __init__(
        self,
        store: CommitStore,
        committer: ArtifactCommitter,
        results: PendingResults,
        hints: LocalHints,
    ) -> None:
        self._store = store
        self._committer = committer
        self._results = results
        self._hints = hints

    async def publish(self, rows: Sequence[OutboxRow]) -> Sequence[Outcome]:
        """Commit each row's artifacts; a refusal settles the result as failed, and is done."""
        return [await self._commit(row) for row in rows]

    async def _commit(self, row: OutboxRow) -> Outcome:
        order = await self._order(row)
        try:
            await self._commit_parts(order)
        except TdpError as error:
            if error.code not in _REFUSED:
                return Retry(f"the resource provider answered {error.code}: {error}")
            failure = Failure(
                error.reason,
                f"the artifacts could not be committed: {error}; the work is done again",
                step_key=order.step_key,
                item_index=order.item_index,
                retryable=True,
            )
            return await self._settle(order, failure)
        return await self._settle(order, None)

    async def _commit_parts(self, order: CommitOrder) -> None:
        artifacts = await self._store.reported(order.attempt_id)
        size = ARTIFACTS_PER_COMMIT_PART_MAX
        parts = [artifacts[start : start + size] for start in range(0, len(artifacts), size)]
        for number, part in enumerate(parts, start=1):
            await self._committer.commit(order, part, number, len(parts))

    async def _settle(self, order: CommitOrder, failure: Failure | None) -> Outcome:
        settlement = Settlement(AttemptId(order.attempt_id), failure)
        aftermath = await self._results.settle([settlement])
        aftermath.give(self._hints)
        return Delivered()

    async def _order(self, row: OutboxRow) -> CommitOrder:
        payload = json.loads(row.payload)
        return CommitOrder(
            attempt_id=payload["attempt_id"],
            application_id=payload["application_id"],
            task_id=payload["task_id"],
            external_ref=await self._store.external_ref(payload["task_id"]),
            execution_id=payload["execution_id"],
            step_key=payload["step_key"],
            item_index=payload["item_index"],
            collection_ref=payload["collection_ref"],
        )
