"""One run of an attempt: its order, its folder, its services and its run time-out."""

import asyncio
import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import structlog

from foundation.failpoints import failpoint
from node_agent.core.execution.attempt import Attempt, StopCause, infrastructure_failure
from node_agent.core.execution.grants import AttemptGrants, GrantTools
from node_agent.core.execution.ports import CapabilityHost, Failed, Outcome, RunOrder, Succeeded
from node_agent.core.execution.reporting import Reporter
from node_agent.core.execution.services import RunningServices
from node_agent.core.journal.domain import StartAttempt
from node_agent.core.journal.ports import Journal
from node_agent.core.session.lease_clock import AttemptId
from node_agent.core.session.mailbox import Mailbox

_log = structlog.stdlib.get_logger(__name__)


class WorkFolders(Protocol):
    """One private folder for each attempt."""

    def work_folder(self, attempt_id: AttemptId) -> Path:
        """Return where the attempt's folder is, whether it is there or not."""
        ...

    def make_work_folder(self, attempt_id: AttemptId) -> Path:
        """Return the attempt's folder, made if it is missing; OSError if that fails."""
        ...

    def remove_empty_work_folder(self, attempt_id: AttemptId) -> bool:
        """Remove the folder if it is empty or missing, quickly, and say whether it is gone."""
        ...

    def remove_work_folder(self, attempt_id: AttemptId) -> None:
        """Remove the folder with all that is in it; may take a while."""
        ...

    def remove_unknown_work_folders(self, known: Sequence[AttemptId]) -> int:
        """Remove what attempts left that are no longer held; return their number."""
        ...


class AttemptRuns:
    """Hands attempts to the host and keeps their run time-outs."""

    def __init__(
        self,
        host: CapabilityHost,
        journal: Journal,
        reporter: Reporter,
        mailbox: Mailbox,
        folders: WorkFolders,
        grants: GrantTools,
    ) -> None:
        self._host = host
        self._journal = journal
        self._reporter = reporter
        self._mailbox = mailbox
        self._folders = folders
        self._grants = grants
        self._timers: dict[AttemptId, asyncio.TimerHandle] = {}

    async def outcome(self, attempt: Attempt) -> Outcome:
        """Run an attempt to its end; a fault of the host is a failure of this attempt alone."""
        attempt_id = attempt.spec.attempt_id
        await failpoint("agent.start.before")
        if not attempt.was_started:
            attempt.was_started = True
            if not attempt.is_inline:
                # Of an inline attempt this was stored together with its command.
                await self._journal.submit_in_any_case([StartAttempt(attempt_id)])
        await failpoint("agent.start.after")
        self._arm_timeout(attempt, attempt.run_timeout_s)
        try:
            order = _order(attempt, self._folder(attempt))
            _log.debug("attempt_started", **_named(attempt))
            outcome = await self._host.run(order, self._services(attempt), attempt.stop)
            _log.debug("attempt_ended", **_named(attempt), **_told(outcome))
            return outcome
        except Exception as error:  # noqa: BLE001 - one attempt's fault must not end the others
            _log.exception("attempt_failed_in_host")
            failed = infrastructure_failure(
                "HOST_FAILED", f"the agent could not run the work: {type(error).__name__}: {error}"
            )
            return Failed(failed.failure, failed.usage)
        finally:
            timer = self._timers.pop(attempt_id, None)
            if timer is not None:
                timer.cancel()

    def extend_timeout(self, attempt: Attempt, extension_s: float) -> None:
        """Move the time-out of an attempt that runs; another one gets its own when it does."""
        timer = self._timers.pop(attempt.spec.attempt_id, None)
        if timer is not None:
            timer.cancel()
            left_s = timer.when() - asyncio.get_running_loop().time()
            self._arm_timeout(attempt, max(left_s, 0.0) + extension_s)

    def _arm_timeout(self, attempt: Attempt, left_s: float) -> None:
        if attempt.run_timeout_s > 0:
            self._timers[attempt.spec.attempt_id] = asyncio.get_running_loop().call_later(
                left_s, attempt.ask_to_stop, StopCause.TIMEOUT
            )

    def _folder(self, attempt: Attempt) -> Path:
        """Return the attempt's folder; inline ones seldom use theirs, and making it takes longer.

        Theirs is made by the first of their services that may end in a file.
        """
        if attempt.is_inline:
            return self._folders.work_folder(attempt.spec.attempt_id)
        return self._folders.make_work_folder(attempt.spec.attempt_id)

    def _services(self, attempt: Attempt) -> RunningServices:
        return RunningServices(
            attempt,
            self._journal,
            self._reporter,
            self._mailbox,
            AttemptGrants(attempt.lease, self._grants),
            partial(self._folders.make_work_folder, attempt.spec.attempt_id),
        )


def _named(attempt: Attempt) -> dict[str, str | int]:
    return {
        "attempt_id": attempt.spec.attempt_id,
        "capability": attempt.spec.capability,
        "capability_version": attempt.spec.capability_version,
        "attempt_number": attempt.spec.attempt_number,
    }


def _told(outcome: Outcome) -> dict[str, str | int]:
    usage = dataclasses.asdict(outcome.usage)
    match outcome:
        case Succeeded():
            return {"outcome": "SUCCEEDED", "artifact_count": outcome.artifact_count, **usage}
        case Failed():
            failure = outcome.failure
            return {
                "outcome": "FAILED",
                "reason": failure.reason,
                "message": failure.message,
                "retryable": failure.retryable,
                **usage,
            }
        case _:
            return {"outcome": "STOPPED", **usage}


def _order(attempt: Attempt, folder: Path) -> RunOrder:
    spec = attempt.spec
    return RunOrder(
        attempt_id=spec.attempt_id,
        lease_version=spec.lease_version,
        task_id=spec.task_id,
        execution_id=spec.execution_id,
        step_key=spec.step_key,
        item_index=spec.item_index,
        attempt_number=spec.attempt_number,
        capability=spec.capability,
        capability_version=spec.capability_version,
        input_json=spec.input_json,
        checkpoint_json=attempt.checkpoint_json,
        work_folder=folder,
        # The core keeps the run time-out itself, since EXTEND moves it.
        run_timeout_s=None,
        heartbeat_timeout_s=spec.heartbeat_timeout_s or None,
        memory_bytes_max=spec.memory_bytes_max or None,
    )
