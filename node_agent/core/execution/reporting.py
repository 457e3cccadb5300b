"""Turns facts about attempts into stored events; the sender is woken once they are on disk."""

from collections.abc import Callable, Sequence
from typing import Protocol

from foundation.clock import Clock
from foundation.failpoints import failpoint
from foundation.wakeup import Wakeup
from node_agent.core.execution.attempt import Attempt
from node_agent.core.execution.ports import UploadedArtifact
from node_agent.core.journal.domain import FinishAttempt, ReportArtifacts
from node_agent.core.journal.events import ArtifactsReported, Fact, NewEvent
from node_agent.core.journal.ports import Journal
from node_agent.limits import ARTIFACTS_PER_EVENT_MAX


class EventDepth(Protocol):
    """Counts the events that wait to be acknowledged."""

    def added(self, event_count: int) -> None:
        """Note events that were stored."""
        ...


class Reporter:
    """Stores what attempts have to tell."""

    def __init__(
        self,
        journal: Journal,
        depth: EventDepth,
        sender_wakeup: Wakeup,
        clock: Clock,
        new_id: Callable[[], str],
        boot_id: str,
    ) -> None:
        self._journal = journal
        self._depth = depth
        self._sender_wakeup = sender_wakeup
        self._clock = clock
        self._new_id = new_id
        self._boot_id = boot_id

    def finishing(self, attempt: Attempt, fact: Fact) -> FinishAttempt:
        """Return the write that ends an attempt; `stored` is to be called once it is on disk."""
        event = self._event(attempt, fact)
        return FinishAttempt(event, waits_for_earlier=bool(attempt.artifact_paths))

    def stored(self, event_count: int) -> None:
        """Have stored events sent."""
        if event_count:
            self._depth.added(event_count)
            self._sender_wakeup.set()

    async def finish(self, attempt: Attempt, fact: Fact) -> None:
        """Store the attempt's end with its event, however long the disk stays full."""
        await failpoint("agent.result.before")
        await self._journal.submit_in_any_case([self.finishing(attempt, fact)])
        await failpoint("agent.result.after")
        self.stored(1)

    async def artifacts(self, attempt: Attempt, artifacts: Sequence[UploadedArtifact]) -> None:
        """Store a list of artifacts ahead of the result; raises LocalDiskFullError."""
        parts = [
            artifacts[start : start + ARTIFACTS_PER_EVENT_MAX]
            for start in range(0, len(artifacts), ARTIFACTS_PER_EVENT_MAX)
        ]
        writes = [
            ReportArtifacts(
                self._event(attempt, ArtifactsReported(tuple(part))),
                [one.relative_path for one in part],
            )
            for part in parts
        ]
        await failpoint("agent.artifacts.before")
        await self._journal.submit(writes)
        await failpoint("agent.artifacts.after")
        attempt.artifact_paths.update(one.relative_path for one in artifacts)
        self.stored(len(writes))

    def _event(self, attempt: Attempt, fact: Fact) -> NewEvent:
        return NewEvent(
            event_id=self._new_id(),
            attempt_id=attempt.spec.attempt_id,
            lease_version=attempt.spec.lease_version,
            boot_id=self._boot_id,
            occurred_at=self._clock.now().isoformat(),
            fact=fact,
        )
