"""What an attempt is to this process, and what its end comes to.

    WAITING ──may run──> QUEUED ──slot──> RUNNING ──outcome──> ENDING ──stored──> FINISHED
       ^                    │                │                    │
       └──lease passed──────┴────────────────┘                    └──not to be told──> gone

An inline attempt takes no slot. FINISHED ones are held until their final event is acknowledged.
"""

import asyncio
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import assert_never

from node_agent.core.execution.ports import (
    Failed,
    Outcome,
    Stopped,
    Succeeded,
    Usage,
    WorkFailure,
)
from node_agent.core.journal.domain import RunSpec, StopReason, StoredAttempt
from node_agent.core.journal.events import Fact, WorkFailed, WorkStopped, WorkSucceeded
from node_agent.core.session.lease_clock import HeldLease, LeaseVersion
from node_agent.limits import FAILURE_MESSAGE_CHARS_MAX, LOG_TAIL_CHARS_MAX, OUTPUT_BYTES_MAX


class Phase(StrEnum):
    """Where an attempt stands in this process."""

    WAITING = "WAITING"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    ENDING = "ENDING"
    FINISHED = "FINISHED"


class StopCause(IntEnum):
    """Why a running attempt was told to stop; a higher one replaces a lower one."""

    LEASE_PASSED = 1
    """Its deadline came: it waits, and goes on if the lease is renewed."""
    DRAIN = 2
    TIMEOUT = 3
    """Its run time-out, by our own clock."""
    ORDERED = 4
    """CANCEL or TIMEOUT by the control plane, as `stop_reason` says."""
    FORGOTTEN = 5
    """It is no longer ours: nothing is told of it."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt; only the runner changes it."""

    spec: RunSpec
    is_inline: bool
    phase: Phase = Phase.WAITING
    was_started: bool = False
    stop_reason: StopReason | None = None
    run_timeout_s: float = 0.0
    checkpoint_json: str | None = None
    artifact_paths: set[str] = field(default_factory=set)
    """Every path reported so far, each once."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    stop_cause: StopCause | None = None
    waits_since_process_start: bool = False
    """Found in the journal at start-up, and not run by this process yet."""

    @property
    def lease(self) -> HeldLease:
        """Its lease, as messages name it."""
        return HeldLease(self.spec.attempt_id, LeaseVersion(self.spec.lease_version))

    @property
    def is_unfinished(self) -> bool:
        """Whether no end of it is stored."""
        return self.phase is not Phase.FINISHED

    @property
    def is_working(self) -> bool:
        """Whether the host has it."""
        return self.phase is Phase.RUNNING

    def ask_to_stop(self, cause: StopCause) -> None:
        """Have the host end it; the weightier cause counts."""
        self.stop_cause = max(cause, self.stop_cause or cause)
        self.stop.set()

    def runs_again(self) -> None:
        """Clear what stopped it, so that it can be run."""
        self.stop = asyncio.Event()
        self.stop_cause = None
        self.waits_since_process_start = False


def stored_attempt(stored: StoredAttempt, *, is_inline: bool) -> Attempt:
    """Return an attempt as an earlier process left it."""
    return Attempt(
        spec=stored.spec,
        is_inline=is_inline,
        phase=Phase.FINISHED if stored.is_finished else Phase.WAITING,
        was_started=stored.was_started,
        stop_reason=stored.stop_reason,
        run_timeout_s=stored.run_timeout_s,
        checkpoint_json=stored.checkpoint_json,
        artifact_paths=set(stored.artifact_paths),
        waits_since_process_start=True,
    )


# --- What an outcome comes to. ---


@dataclass(frozen=True, slots=True)
class Tell:
    """The end is told."""

    fact: Fact


@dataclass(frozen=True, slots=True)
class Wait:
    """It was stopped for its lease alone, and may go on once that is renewed."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Nothing is told: it belongs to somebody else by now."""


End = Tell | Wait | Drop


def end_of(attempt: Attempt, outcome: Outcome) -> End:
    """Decide what the host's outcome comes to; work that got done is told whatever stopped it."""
    if attempt.stop_cause is StopCause.FORGOTTEN:
        return Drop()
    match outcome:
        case Succeeded():
            return Tell(_success(attempt, outcome))
        case Failed(failure, usage):
            return Tell(WorkFailed(fitting(failure), usage))
        case Stopped(usage):
            return _stopped(attempt, usage)
        case _ as unreachable:
            assert_never(unreachable)


def stop_without_run(attempt: Attempt) -> WorkStopped:
    """Return what is told of an attempt that was ordered to stop and is not running."""
    return WorkStopped((attempt.stop_reason or StopReason.CANCEL).value, Usage())


def interrupted(attempt: Attempt) -> WorkFailed:
    """Return what is told of an attempt that may not go on where it was interrupted."""
    if attempt.waits_since_process_start:
        reason, why = "AGENT_RESTARTED", "the agent was restarted"
    else:
        reason, why = "LEASE_PASSED", "the lease was not renewed in time"
    return infrastructure_failure(
        reason,
        f"{why} while {attempt.spec.capability} {attempt.spec.capability_version} was running, "
        "which cannot be resumed: it has to be run again",
    )


def infrastructure_failure(reason: str, message: str) -> WorkFailed:
    """Return a failure of which the work is innocent, to be tried again."""
    return WorkFailed(WorkFailure(reason, message, retryable=True, infrastructure=True), Usage())


def fitting(failure: WorkFailure) -> WorkFailure:
    """Return the failure within the bounds of the contract, and in text that can be sent."""
    return WorkFailure(
        failure.reason,
        _sendable(failure.message)[:FAILURE_MESSAGE_CHARS_MAX],
        failure.retryable,
        failure.next_retry_delay_s,
        failure.infrastructure,
        _sendable(failure.log_tail)[-LOG_TAIL_CHARS_MAX:],
    )


def _success(attempt: Attempt, done: Succeeded) -> WorkSucceeded | WorkFailed:
    size_bytes = len(done.output_json.encode("utf-8", "replace"))
    if size_bytes > OUTPUT_BYTES_MAX:
        return _refused(
            "OUTPUT_TOO_LARGE",
            f"the output has {size_bytes} bytes, more than {OUTPUT_BYTES_MAX}: write it as an "
            "artifact, and return its reference",
            done.usage,
            retryable=False,
        )
    reported_count = len(attempt.artifact_paths)
    if done.artifact_count != reported_count:
        return _refused(
            "ARTIFACT_COUNT_MISMATCH",
            f"the work names {done.artifact_count} artifacts, {reported_count} were reported",
            done.usage,
            retryable=True,
        )
    output_json = _sendable(done.output_json)
    return WorkSucceeded(output_json, reported_count, done.collection_ref, done.usage)


def _refused(reason: str, message: str, usage: Usage, *, retryable: bool) -> WorkFailed:
    return WorkFailed(WorkFailure(reason, message, retryable=retryable), usage)


def _stopped(attempt: Attempt, usage: Usage) -> End:
    match attempt.stop_cause:
        case StopCause.ORDERED:
            reason = attempt.stop_reason or StopReason.CANCEL
            return Tell(WorkStopped(reason.value, usage))
        case StopCause.TIMEOUT:
            return Tell(WorkStopped(StopReason.TIMEOUT.value, usage))
        case StopCause.LEASE_PASSED:
            return Wait()
        case _:
            # Drained; or the host gave up by itself, which is no fault of the work either.
            return Tell(WorkStopped(StopReason.DRAIN.value, usage))


def _sendable(text: str) -> str:
    """Return the text with what no UTF-8 can hold (lone surrogates) replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")
