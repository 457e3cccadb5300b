"""A store in memory around the engine: applies decisions, plays nodes, checks every write."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from control_plane.adapters.outbound.cel import CelCompiler
from control_plane.core.engine.deadlines import queue_deadline_at
from control_plane.core.engine.decisions import Decision, StepChange
from control_plane.core.engine.domain import decide
from control_plane.core.engine.facts import ExecutionFacts, StepFacts
from control_plane.core.engine.retry import (
    AttemptCounters,
    AttemptEnd,
    AttemptOutcome,
    Retry,
    after_attempt,
)
from control_plane.core.executions.attempt_state import StopReason
from control_plane.core.executions.domain import (
    ExecutionEventType,
    ExecutionId,
    StepKey,
    StepRef,
    TaskId,
)
from control_plane.core.executions.execution_state import (
    EXECUTION_MACHINE,
    ExecutionState,
    ExecutionStatus,
)
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.step_state import STEP_MACHINE, StepStatus, is_complete
from control_plane.core.workflows.compiling import CompiledWorkflow
from control_plane.core.workflows.publishing import check_definition

CEL = CelCompiler()
START = datetime(2026, 1, 1, tzinfo=UTC)
LIVE = frozenset({ExecutionStatus.CREATED, ExecutionStatus.QUEUED, ExecutionStatus.RUNNING})


def step(key: str, *depends_on: str, **fields: Any) -> dict[str, Any]:
    """Return the document of a step that needs nothing special."""
    bare = {"key": key, "capability": "c", "capability_version": "1", "depends_on": [*depends_on]}
    return bare | fields


def workflow(*steps: dict[str, Any], **fields: Any) -> CompiledWorkflow:
    """Publish a definition of these steps."""
    text = json.dumps({"name": "w", "version": "1", "steps": steps, **fields})
    return check_definition(text, CEL, lambda _name, _version: True).workflow


@dataclass(slots=True)
class World:
    """One execution, with what a database and a scheduler would keep of it."""

    workflow: CompiledWorkflow
    input_json: str = "{}"
    now: datetime = START
    events: list[tuple[ExecutionEventType, ExecutionStatus, int]] = field(default_factory=list)
    requests: dict[StepRef, int] = field(default_factory=dict)
    counters: dict[StepRef, AttemptCounters] = field(default_factory=dict)
    dispatched: list[tuple[str, int]] = field(default_factory=list)
    next_due_at: datetime | None = None
    output_json: str = ""
    state: ExecutionState = field(default_factory=ExecutionState)
    dice: Random = field(default_factory=lambda: Random(7))
    facts: ExecutionFacts = field(init=False)

    def __post_init__(self) -> None:
        self.facts = ExecutionFacts(
            execution_id=ExecutionId("e"),
            task_id=TaskId("t"),
            application_id="a",
            input_json=self.input_json,
            deadline_at=self.now + self.workflow.definition.timeout,
        )

    # What a driver does.

    def wake(self) -> Decision:
        """Decide and apply, and check that deciding again changes nothing."""
        decision = decide(self.workflow, self.facts, self.now)
        self._apply(decision)
        again = decide(self.workflow, self.facts, self.now)
        assert again.changes_nothing, again
        assert again.next_due_at == decision.next_due_at
        return decision

    def _apply(self, decision: Decision) -> None:
        steps = dict(self.facts.steps)
        for change in decision.creates:
            assert change.ref not in steps
            steps[change.ref] = _applied(StepFacts(change.ref), change)
        for change in decision.moves:
            before = steps[change.ref]
            assert before.status is change.from_status
            steps[change.ref] = _applied(before, change)
        for void in decision.voids:
            assert self.requests.pop(void.ref) == void.attempt_number
            steps[void.ref] = replace(steps[void.ref], has_request=False)
        for request in decision.requests:
            assert request.ref not in self.requests
            assert steps[request.ref].status is StepStatus.READY
            self.requests[request.ref] = request.attempt_number
            steps[request.ref] = replace(steps[request.ref], has_request=True)
        for stop in decision.stops:
            assert steps[stop.ref].status is StepStatus.RUNNING
            steps[stop.ref] = replace(steps[stop.ref], stop_reason=stop.reason)
        self.facts = replace(self.facts, steps=steps)
        self._apply_execution(decision)
        self.next_due_at = decision.next_due_at

    def _apply_execution(self, decision: Decision) -> None:
        change = decision.execution
        if change is None:
            assert not decision.events
            return
        for status in change.path:
            self.state = self.state.moved(status, self.now)
        if self.facts.closing_as is not None:
            assert change.closing_as is self.facts.closing_as
        assert change.progress_percent >= self.facts.progress_percent
        rose = change.progress_percent > self.facts.progress_percent
        self.output_json = change.output_json
        self.facts = replace(
            self.facts,
            status=change.status,
            closing_as=change.closing_as,
            failure_json=change.failure_json,
            progress_percent=change.progress_percent,
            progress_event_at=self.now if rose else self.facts.progress_event_at,
        )
        self.events += [(one.type, one.status, one.progress_percent) for one in decision.events]

    # What a scheduler, nodes and people do.

    def set(self, ref: StepRef, **fields: Any) -> None:
        """Change a step as somebody other than the engine would, by its machine."""
        before = self.facts.steps[ref]
        after = replace(before, **fields)
        STEP_MACHINE.path(before.status, after.status)
        self.facts = replace(self.facts, steps={**self.facts.steps, ref: after})

    def step(self, key: str, item_index: int = -1) -> StepFacts:
        """Return the step as stored."""
        return self.facts.steps[StepRef(StepKey(key), item_index)]

    def statuses(self) -> dict[str, str]:
        """Return the status of every instance."""
        return {str(ref): one.status.value for ref, one in self.facts.steps.items()}

    def dispatchable(self) -> list[StepRef]:
        """Return what the dispatch transaction would accept."""
        failure_step = self.workflow.failure_step
        spared = failure_step.key if failure_step else None
        if self.facts.status not in LIVE or self.facts.paused:
            return []
        return sorted(
            ref
            for ref in self.requests
            if self.facts.steps[ref].status is StepStatus.READY
            and (self.facts.closing_as is None or ref.step_key == spared)
            and self.now >= (self.facts.steps[ref].not_before or self.now)
        )

    def dispatch(self, ref: StepRef) -> None:
        """Start the attempt that was asked for, and check that nothing started too early."""
        number = self.requests.pop(ref)
        assert self.facts.steps[ref].attempt_number == number
        for key in self.workflow.steps[ref.step_key].definition.depends_on:
            lenient = self.workflow.steps[key].definition.continues_on_failure
            status = self.step(key).status
            assert is_complete(status, continues_on_failure=lenient), (ref, key, status)
        self.dispatched.append((str(ref), number))
        self.set(ref, status=StepStatus.RUNNING, has_request=False, deadline_at=None)

    def succeed(self, ref: StepRef, output: object) -> None:
        """Accept a success, as the attempt inbox would."""
        assert self.facts.steps[ref].stop_reason is not StopReason.TIMEOUT
        text = json.dumps(output)
        self.set(ref, status=StepStatus.SUCCEEDED, output_json=text, progress_percent=100)

    def fail(self, ref: StepRef, end: AttemptEnd, *, retryable: bool = True) -> None:
        """Accept the end of an attempt without success, and retry by the policy."""
        running = self.facts.steps[ref]
        definition = self.workflow.steps[ref.step_key].definition
        outcome = AttemptOutcome(end, Failure("BROKEN", "it broke", retryable=retryable))
        counters = self.counters.get(ref, AttemptCounters(running.attempt_number))
        result = after_attempt(definition, counters, outcome, self.now, self.dice)
        self.counters[ref] = result.counters
        if isinstance(result, Retry):
            self.set(
                ref,
                status=StepStatus.READY,
                attempt_number=result.counters.attempt_number,
                not_before=result.at,
                deadline_at=queue_deadline_at(
                    definition.timeouts, running.ready_at or self.now, result.at
                ),
                stop_reason=None,
                progress_percent=0,
            )
        else:
            self.set(ref, status=result.status, failure_json=result.failure.to_json())

    def run_out(self, outputs: Mapping[str, object] | None = None) -> None:
        """Wake, dispatch everything and let it succeed, until nothing moves."""
        self.wake()
        while ready := self.dispatchable():
            for ref in ready:
                self.dispatch(ref)
                self.succeed(ref, (outputs or {}).get(ref.step_key))
            self.wake()

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)

    @property
    def status(self) -> str:
        """The execution's status, as text."""
        return self.facts.status.value

    @property
    def is_over(self) -> bool:
        """Whether the execution is terminal."""
        return EXECUTION_MACHINE.is_terminal(self.facts.status)


def _applied(before: StepFacts, change: StepChange) -> StepFacts:
    STEP_MACHINE.path(before.status, change.to_status)
    return replace(
        before,
        status=change.to_status,
        attempt_number=change.attempt_number,
        progress_percent=change.progress_percent,
        input_json=change.input_json,
        output_json=change.output_json,
        failure_json=change.failure_json,
        deadline_at=change.deadline_at,
        ready_at=change.ready_at,
    )
