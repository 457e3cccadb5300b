"""What the core does for one running attempt: progress, checkpoints, grants, artifact lists."""

from collections.abc import Callable, Sequence

from foundation.errors import MessageTooLargeError
from foundation.failpoints import failpoint
from node_agent.core.execution.attempt import Attempt
from node_agent.core.execution.grants import AttemptGrants
from node_agent.core.execution.ports import (
    AllocatedArtifact,
    ArtifactRequest,
    Grant,
    UploadedArtifact,
)
from node_agent.core.execution.reporting import Reporter
from node_agent.core.journal.domain import SaveCheckpoint
from node_agent.core.journal.ports import Journal
from node_agent.core.session.mailbox import Mailbox
from node_agent.limits import CHECKPOINT_BYTES_MAX, PROGRESS_MESSAGE_CHARS_MAX

_PERCENT_MAX = 100


class RunningServices:
    """See AttemptServices; for as long as the attempt runs."""

    def __init__(
        self,
        attempt: Attempt,
        journal: Journal,
        reporter: Reporter,
        mailbox: Mailbox,
        grants: AttemptGrants,
        make_folder: Callable[[], object],
    ) -> None:
        """`make_folder` makes the attempt's work folder, if it is not there yet."""
        self._attempt = attempt
        self._journal = journal
        self._reporter = reporter
        self._mailbox = mailbox
        self._grants = grants
        self._make_folder = make_folder

    async def progress(self, percent: int, message: str) -> None:
        """See AttemptServices."""
        if self._attempt.is_working:
            told = min(max(percent, 0), _PERCENT_MAX)
            text = message[:PROGRESS_MESSAGE_CHARS_MAX].encode("utf-8", "replace").decode("utf-8")
            self._mailbox.report_progress(self._attempt.lease, told, text)

    async def save_checkpoint(self, document_json: str) -> None:
        """See AttemptServices."""
        size_bytes = len(document_json.encode("utf-8"))
        if size_bytes > CHECKPOINT_BYTES_MAX:
            raise MessageTooLargeError(
                f"the checkpoint has {size_bytes} bytes, more than {CHECKPOINT_BYTES_MAX}: keep "
                "large state in the work folder"
            )
        self._make_folder()
        await failpoint("agent.checkpoint.before")
        await self._journal.submit([SaveCheckpoint(self._attempt.spec.attempt_id, document_json)])
        self._attempt.checkpoint_json = document_json
        await failpoint("agent.checkpoint.after")

    async def authorize(self, resource_ref: str) -> Grant:
        """See AttemptServices."""
        self._make_folder()
        return await self._grants.authorize(resource_ref)

    async def allocate(
        self, collection_ref: str, requests: Sequence[ArtifactRequest]
    ) -> Sequence[AllocatedArtifact]:
        """See AttemptServices."""
        self._make_folder()
        return await self._grants.allocate(collection_ref, requests)

    async def uploaded(self, artifacts: Sequence[UploadedArtifact]) -> None:
        """See AttemptServices."""
        if artifacts:
            await self._reporter.artifacts(self._attempt, artifacts)
