"""How attempts end, in one place: what a report, a lost lease or a settled result makes of them.

Pure: facts in, what to write out. Whoever ends an attempt (the inbox, the lease sweep, a stop
order, the settlement of a pending result) goes through `conclude`.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from typing import Final

from control_plane.core.engine.deadlines import queue_deadline_at
from control_plane.core.engine.retry import (
    AttemptCounters,
    AttemptEnd,
    AttemptOutcome,
    Retry,
    after_attempt,
)
from control_plane.core.errors import TransitionForbiddenError
from control_plane.core.executions.attempt_state import (
    ATTEMPT_MACHINE,
    AttemptStatus,
    StopReason,
    end_after_stop,
)
from control_plane.core.executions.domain import AttemptId, ExecutionId, StepRef
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.step_state import StepStatus
from control_plane.core.wakeups import LocalHints
from control_plane.core.workflows.domain import StepDefinition


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """An attempt with its step instance and execution, as stored and locked."""

    attempt_id: AttemptId
    execution_id: ExecutionId
    ref: StepRef
    number: int
    task_id: str
    application_id: str
    node_id: str
    lease_version: int
    status: AttemptStatus
    stop_reason: StopReason | None
    pending_result: str
    """The stored success that waits for its artifacts' commit, JSON; empty without one."""
    step_status: StepStatus
    step_attempt_number: int
    failure_count: int
    loss_count: int
    ready_at: datetime | None
    capability: str
    capability_version: str
    closing: bool
    """Whether the execution is ending, so that nothing is tried again."""
    canceling: bool
    """Whether it is ending because of a cancel, which the failure step heeds too."""
    snapshot_digest: str
    holds_slots: bool = False
    """Whether slots of limits come back with its end."""

    @property
    def is_over(self) -> bool:
        """Whether nothing that a node says can change it any more."""
        return ATTEMPT_MACHINE.is_terminal(self.status) or bool(self.pending_result)

    @property
    def moves_step(self) -> bool:
        """Whether the step instance still stands with this attempt."""
        return self.step_status is StepStatus.RUNNING and self.step_attempt_number == self.number


@dataclass(frozen=True, slots=True)
class Ending:
    """That an attempt is over, and how.

    `end` is None for a success only. `by_node` says that the node itself reported it, so that
    it needs no order to stop. `commit` is the payload of the artifact commit that a success
    has to wait for; empty for one that is final at once.
    """

    end: AttemptEnd | None
    status: AttemptStatus
    output_json: str = ""
    failure: Failure | None = None
    next_delay_s: float | None = None
    usage_json: str = ""
    log_tail: str = ""
    by_node: bool = True
    pending_result: str = ""
    commit: str = ""


@dataclass(frozen=True, slots=True)
class StepMove:
    """The step instance as it is to be; `retry_at` is set for READY only."""

    status: StepStatus
    attempt_number: int
    failure_count: int
    loss_count: int
    output_json: str = ""
    failure_json: str = ""
    retry_at: datetime | None = None
    deadline_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Conclusion:
    """Everything to write for one attempt that is over.

    `step` is None where the step instance has moved on without this attempt, or waits for the
    result's artifacts. `timeline_type` is empty where nothing is worth an entry.
    """

    facts: AttemptFacts
    ending: Ending
    step: StepMove | None
    timeline_type: str = ""
    timeline_detail: str = "{}"

    @property
    def frees_capacity(self) -> bool:
        """Whether slot and resources come back: not when a pending result freed them before."""
        return not self.facts.pending_result

    @property
    def needs_cancel(self) -> bool:
        """Whether the node has to be told, as it did not report the end and was not told yet."""
        return not self.ending.by_node and self.facts.stop_reason is None


# --- Endings. ---


def succeeded(output_json: str, usage_json: str = "") -> Ending:
    """Return the ending of work that is done and has no artifacts to commit."""
    return Ending(None, AttemptStatus.SUCCEEDED, output_json=output_json, usage_json=usage_json)


def success_pending(
    facts: AttemptFacts,
    output_json: str,
    collection_ref: str,
    artifact_count: int,
    usage_json: str = "",
) -> Ending:
    """Return the ending of work whose artifacts are to be committed first.

    The attempt stays RUNNING without a lease until `settled` ends it.
    """
    result = {"output_json": output_json, "collection_ref": collection_ref}
    commit = {
        "attempt_id": facts.attempt_id,
        "lease_version": facts.lease_version,
        "application_id": facts.application_id,
        "task_id": facts.task_id,
        "execution_id": facts.execution_id,
        "step_key": facts.ref.step_key,
        "item_index": facts.ref.item_index,
        "attempt_number": facts.number,
        "collection_ref": collection_ref,
        "artifact_count": artifact_count,
        "output_json": output_json,
    }
    return Ending(
        None,
        AttemptStatus.RUNNING,
        usage_json=usage_json,
        pending_result=_text(result),
        commit=_text(commit),
    )


def settled(facts: AttemptFacts, failure: Failure | None) -> Ending:
    """Return the ending of a pending result: its output, or the failure of its commit."""
    if failure is not None:
        return Ending(AttemptEnd.FAILED, AttemptStatus.FAILED, failure=failure)
    return succeeded(json.loads(facts.pending_result)["output_json"])


def failed(
    stop_reason: StopReason | None,
    failure: Failure,
    *,
    infrastructure: bool = False,
    next_delay_s: float | None = None,
    usage_json: str = "",
    log_tail: str = "",
) -> Ending:
    """Return the ending of work that failed; an order to stop that came before has its way."""
    if stop_reason in (StopReason.CANCEL, StopReason.TIMEOUT):
        ending = stopped(stop_reason, stop_reason, usage_json=usage_json, cause=failure)
        return replace(ending, log_tail=log_tail)
    end = AttemptEnd.DRAINED if infrastructure else AttemptEnd.FAILED
    if failure.reason in _TIMED_OUT_REASONS:
        end = AttemptEnd.TIMED_OUT
    return Ending(
        end,
        AttemptStatus.TIMED_OUT if end is AttemptEnd.TIMED_OUT else AttemptStatus.FAILED,
        failure=failure,
        next_delay_s=next_delay_s,
        usage_json=usage_json,
        log_tail=log_tail,
    )


def stopped(
    ordered: StopReason | None,
    reported: StopReason | None,
    *,
    usage_json: str = "",
    cause: Failure | None = None,
) -> Ending:
    """Return the ending of an attempt that its node reports as stopped.

    What was ordered counts. Without an order the node may have reached the run time-out by its
    own clock, or drained; that it was cancelled is never taken from the node.
    """
    if ordered is None and reported is StopReason.TIMEOUT:
        ordered = StopReason.TIMEOUT
    status = end_after_stop(ordered)
    end = _END_OF[status]
    drained = StopReason.DRAIN in (ordered, reported) and end is AttemptEnd.LOST
    return Ending(
        AttemptEnd.DRAINED if drained else end,
        status,
        failure=_failure_of(AttemptEnd.DRAINED if drained else end, cause),
        usage_json=usage_json,
    )


def expired(stop_reason: StopReason | None) -> Ending:
    """Return the ending of an attempt whose lease ran out."""
    status = end_after_stop(stop_reason)
    end = _END_OF[status]
    return Ending(end, status, failure=_failure_of(end), by_node=False)


def never_sent(stop_reason: StopReason) -> Ending:
    """Return the ending of an attempt that was stopped before its node heard of it."""
    status = end_after_stop(stop_reason)
    end = _END_OF[status]
    # Nobody runs it, so nobody has to be told.
    return Ending(end, status, failure=_failure_of(end), by_node=True)


def missing() -> Ending:
    """Return the ending of an accepted attempt that its node no longer knows."""
    message = "the node no longer holds this attempt: its journal is new or was restored"
    return Ending(
        AttemptEnd.LOST,
        AttemptStatus.LOST,
        failure=Failure("JOURNAL_LOST", message, retryable=True),
    )


def removed(stop_reason: StopReason | None) -> Ending:
    """Return the ending of an attempt whose node an operator has removed."""
    status = end_after_stop(stop_reason)
    end = _END_OF[status]
    failure = _failure_of(end)
    if end is AttemptEnd.LOST:
        failure = Failure("NODE_REMOVED", "an operator removed the node", retryable=True)
    # The node is forgotten, so nobody can be told.
    return Ending(end, status, failure=failure, by_node=True)


# With these a node reports that the work gave no sign of life, or took too long by its clock.
_TIMED_OUT_REASONS: Final = frozenset({"HEARTBEAT_TIMEOUT", "RUN_TIMEOUT"})
_END_OF: Final = {
    AttemptStatus.LOST: AttemptEnd.LOST,
    AttemptStatus.CANCELED: AttemptEnd.CANCELED,
    AttemptStatus.TIMED_OUT: AttemptEnd.TIMED_OUT,
}
_SENTENCES: Final = {
    AttemptEnd.LOST: ("LEASE_EXPIRED", "the node was not heard of until the lease ran out"),
    AttemptEnd.CANCELED: ("CANCELED", "the attempt was cancelled"),
    AttemptEnd.TIMED_OUT: ("RUN_TIMED_OUT", "the attempt ran longer than its run time-out"),
    AttemptEnd.DRAINED: ("NODE_DRAINED", "the node gave the work back"),
}


def _failure_of(end: AttemptEnd, cause: Failure | None = None) -> Failure:
    reason, message = _SENTENCES[end]
    return Failure(reason, message, retryable=end is not AttemptEnd.CANCELED, cause=cause)


# --- Conclusions. ---


def conclude(
    facts: AttemptFacts,
    ending: Ending,
    definition: StepDefinition | None,
    now: datetime,
    random: Random,
) -> Conclusion:
    """Decide what an ending does to its attempt and step instance.

    `definition` may be None for a success, which asks no policy. Raises
    TransitionForbiddenError for an attempt that is over already.
    """
    if ATTEMPT_MACHINE.is_terminal(facts.status):
        raise TransitionForbiddenError(f"attempt {facts.attempt_id} has ended as {facts.status}")
    ATTEMPT_MACHINE.path(facts.status, ending.status)
    if ending.commit or not facts.moves_step:
        return Conclusion(facts, ending, None)
    if ending.end is None:
        return Conclusion(facts, ending, _success_move(facts, ending))
    assert definition is not None, "an end without success asks the step's policy"
    return _concluded_failure(facts, ending, definition, now, random)


def _success_move(facts: AttemptFacts, ending: Ending) -> StepMove:
    return StepMove(
        StepStatus.SUCCEEDED,
        facts.number,
        facts.failure_count,
        facts.loss_count,
        output_json=ending.output_json,
    )


def _concluded_failure(
    facts: AttemptFacts,
    ending: Ending,
    definition: StepDefinition,
    now: datetime,
    random: Random,
) -> Conclusion:
    assert ending.end is not None
    failure = ending.failure or _failure_of(ending.end)
    delay_s = ending.next_delay_s
    ready_at = facts.ready_at or now
    total = definition.timeouts.total
    decided = after_attempt(
        definition,
        AttemptCounters(facts.number, facts.failure_count, facts.loss_count),
        AttemptOutcome(
            ending.end, failure, None if delay_s is None else timedelta(seconds=delay_s)
        ),
        now,
        random,
        total_deadline_at=None if total is None else ready_at + total,
        closing=facts.closing,
    )
    counters = decided.counters
    detail = {"attempt": facts.number, "reason": failure.reason, "node_id": facts.node_id}
    kind = "attempt.lost" if ending.end is AttemptEnd.LOST else ""
    if isinstance(decided, Retry):
        move = StepMove(
            StepStatus.READY,
            counters.attempt_number,
            counters.failures,
            counters.losses,
            failure_json=failure.to_json(),
            retry_at=decided.at,
            deadline_at=queue_deadline_at(definition.timeouts, ready_at, decided.at),
        )
        detail["retry_at"] = decided.at.isoformat()
        return Conclusion(facts, ending, move, kind or "step.retry", _text(detail))
    move = StepMove(
        decided.status,
        facts.number,
        counters.failures,
        counters.losses,
        failure_json=decided.failure.to_json(),
    )
    return Conclusion(facts, ending, move, kind, _text(detail))


def _text(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Aftermath:
    """Whom to wake once the transaction that ended attempts has committed."""

    execution_ids: frozenset[str] = frozenset()
    node_ids: frozenset[str] = frozenset()
    """Nodes with new commands."""
    frees_capacity: bool = False
    asks_again: bool = False
    """Whether there are new scheduling requests."""
    commits_artifacts: bool = False

    def __or__(self, other: "Aftermath") -> "Aftermath":
        """Return what wakes everybody whom either wakes."""
        return Aftermath(
            self.execution_ids | other.execution_ids,
            self.node_ids | other.node_ids,
            self.frees_capacity or other.frees_capacity,
            self.asks_again or other.asks_again,
            self.commits_artifacts or other.commits_artifacts,
        )

    def give(self, hints: LocalHints) -> None:
        """Give the hints; to be called after the commit."""
        hints.engine.add(sorted(self.execution_ids))
        hints.nodes.add(sorted(self.node_ids))
        if self.frees_capacity:
            hints.capacity_freed()
        if self.asks_again:
            hints.requests_ready()
        if self.commits_artifacts:
            hints.artifact_commits.set()


def aftermath_of(conclusions: Sequence[Conclusion], node_ids: Iterable[str]) -> Aftermath:
    """Return whom the conclusions wake; `node_ids` are those that were given a command."""
    return Aftermath(
        execution_ids=frozenset(one.facts.execution_id for one in conclusions),
        node_ids=frozenset(node_ids),
        frees_capacity=any(one.frees_capacity for one in conclusions),
        asks_again=any(
            one.step is not None and one.step.retry_at is not None for one in conclusions
        ),
        commits_artifacts=any(one.ending.commit for one in conclusions),
    )


@dataclass(frozen=True, slots=True)
class StopOrder:
    """A live attempt to stop, and why; `StopReason.CANCEL` or `TIMEOUT`."""

    execution_id: ExecutionId
    ref: StepRef
    attempt_number: int
    reason: StopReason


@dataclass(frozen=True, slots=True)
class Settlement:
    """The end of a pending result: None for committed artifacts, else why they were not."""

    attempt_id: AttemptId
    failure: Failure | None = None
