"""What becomes of a node's report: whether it counts, why not, and what it ends."""

from dataclasses import dataclass
from typing import Final

from control_plane.core.executions.attempt_state import (
    ATTEMPT_MACHINE,
    AttemptStatus,
    accepts_success,
)
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.outcomes import (
    AttemptFacts,
    Ending,
    failed,
    stopped,
    succeeded,
    success_pending,
)

ATTEMPT_UNKNOWN: Final = "ATTEMPT_UNKNOWN"
NODE_MISMATCH: Final = "NODE_MISMATCH"
LEASE_LOST: Final = "LEASE_LOST"
ATTEMPT_ENDED: Final = "ATTEMPT_ENDED"
RESULT_PENDING: Final = "RESULT_PENDING"
TIMED_OUT_BEFORE: Final = "TIMED_OUT_BEFORE"
ARTIFACT_COUNT_MISMATCH: Final = "ARTIFACT_COUNT_MISMATCH"
OUTPUT_INVALID: Final = "OUTPUT_INVALID"


@dataclass(frozen=True, slots=True)
class ResultSeen:
    """What a success says, and how many of its artifacts were reported before."""

    output_json: str
    artifact_count: int
    collection_ref: str
    reported_count: int
    output_problem: str = ""
    """Why the output breaks the capability's schema; empty where it does not."""


@dataclass(frozen=True, slots=True)
class ReportVerdict:
    """What becomes of a node's event: accepted or not with the reason, and what it ends."""

    accepted: bool
    reason: str = ""
    ending: Ending | None = None


def refusal_of(facts: AttemptFacts | None, node_id: str, lease_version: int) -> str:
    """Return why an event about this attempt has no effect; empty where it may have one."""
    if facts is None:
        return ATTEMPT_UNKNOWN
    if facts.node_id != node_id:
        return NODE_MISMATCH
    if facts.lease_version != lease_version:
        return LEASE_LOST
    if ATTEMPT_MACHINE.is_terminal(facts.status):
        return _refusal_when(facts.status)
    return RESULT_PENDING if facts.pending_result else ""


def refusal_after(ending: Ending) -> str:
    """Return why events that follow this ending have no effect."""
    return RESULT_PENDING if ending.commit else _refusal_when(ending.status)


def _refusal_when(status: AttemptStatus) -> str:
    return LEASE_LOST if status is AttemptStatus.LOST else ATTEMPT_ENDED


def judge_success(facts: AttemptFacts, result: ResultSeen, usage_json: str = "") -> ReportVerdict:
    """Decide a success of a live attempt; one that is refused still ends it.

    The node has nothing more to say about the attempt, so waiting for its lease would only
    cost time.
    """
    if not accepts_success(facts.stop_reason):
        ending = stopped(facts.stop_reason, None, usage_json=usage_json)
        return ReportVerdict(accepted=False, reason=TIMED_OUT_BEFORE, ending=ending)
    if result.artifact_count != result.reported_count:
        message = (
            f"the result names {result.artifact_count} artifacts, {result.reported_count} were "
            "reported before it: the work is done again"
        )
        failure = Failure(ARTIFACT_COUNT_MISMATCH, message, retryable=True)
        ending = failed(facts.stop_reason, failure, usage_json=usage_json)
        return ReportVerdict(accepted=False, reason=ARTIFACT_COUNT_MISMATCH, ending=ending)
    if result.output_problem:
        failure = Failure(OUTPUT_INVALID, result.output_problem)
        ending = failed(facts.stop_reason, failure, usage_json=usage_json)
        return ReportVerdict(accepted=False, reason=OUTPUT_INVALID, ending=ending)
    if result.artifact_count == 0:
        return ReportVerdict(accepted=True, ending=succeeded(result.output_json, usage_json))
    ending = success_pending(
        facts, result.output_json, result.collection_ref, result.artifact_count, usage_json
    )
    return ReportVerdict(accepted=True, ending=ending)
