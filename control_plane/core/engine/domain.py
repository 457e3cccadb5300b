"""The decision: a pure function from a workflow, the facts and the time.

It is level-triggered: what it answers depends on how things stand and never on which
wake-up came, so that wake-ups may be lost, repeated and reordered. Each call is one pass
over the steps in the order of their dependencies, without recursion.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from control_plane.core.engine.closing import close, failure_of, is_closed, timeout_failure
from control_plane.core.engine.decisions import (
    AttemptStop,
    Decision,
    ExecutionChange,
    PlannedEvent,
    RequestCreation,
)
from control_plane.core.engine.facts import ExecutionFacts, StepFacts
from control_plane.core.engine.items import (
    advance_items,
    expand,
    instance_progress,
    progress_of_items,
)
from control_plane.core.engine.limiting import item_variables, step_uses
from control_plane.core.engine.opening import dependencies_complete, open_instance
from control_plane.core.engine.timeouts import due_at, time_out
from control_plane.core.engine.workspace import Workspace
from control_plane.core.errors import DocumentInvalidError
from control_plane.core.executions.domain import ExecutionEventType, StepRef, event_for
from control_plane.core.executions.execution_state import (
    EXECUTION_MACHINE,
    PROGRESS_BEFORE_SUCCESS_MAX,
    PROGRESS_MAX,
    ClosingReason,
    ExecutionStatus,
)
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.step_state import STEP_MACHINE, StepStatus, is_complete
from control_plane.core.expressions.errors import ExpressionFailedError
from control_plane.core.scheduling.domain import Requirement
from control_plane.core.scheduling.limits import uses_to_json
from control_plane.core.workflows.compiling import CompiledStep, CompiledWorkflow
from control_plane.core.workflows.domain import StepKind

PROGRESS_EVENT_INTERVAL: Final = timedelta(seconds=1)

_STARTED: Final = frozenset({StepStatus.RUNNING, StepStatus.WAITING, StepStatus.SUCCEEDED})


@dataclass(frozen=True, slots=True)
class _End:
    """How the execution ends, or is going to end."""

    status: ExecutionStatus
    failure_json: str = ""
    output_json: str = ""
    stops: tuple[AttemptStop, ...] = ()
    is_over: bool = False


def decide(workflow: CompiledWorkflow, facts: ExecutionFacts, now: datetime) -> Decision:
    """Return everything that follows from the facts at this moment.

    Applying the decision and deciding again at the same moment changes nothing. `now` is
    the database's time, as are all times in the facts.
    """
    if EXECUTION_MACHINE.is_terminal(facts.status):
        return Decision()
    work = Workspace(workflow, facts, now)
    end = _known_end(facts)
    if end is None:
        end = _advance(work)
    if end is not None and not end.is_over:
        end = _close(work, end)
    return _Summary(work, end).decision()


def _known_end(facts: ExecutionFacts) -> _End | None:
    """Return the end that was decided before, or that a cancel asks for now."""
    if facts.closing_as is not None:
        return _End(ExecutionStatus(facts.closing_as), facts.failure_json)
    if facts.status is ExecutionStatus.CANCELING or facts.cancel_requested:
        return _End(ExecutionStatus.CANCELED)
    return None


def _advance(work: Workspace) -> _End | None:
    """Move the steps on; return the execution's end if that has come."""
    deadline_at = work.facts.deadline_at
    too_late = deadline_at is not None and work.now >= deadline_at
    if not too_late:
        work.ensure(StepRef(key) for key in work.workflow.steps)
        for step in work.workflow.order:
            _advance_step(work, step)
    broken = _first_broken(work)
    if broken is not None:
        return _End(ExecutionStatus.FAILED, failure_of(broken).to_json())
    if all(_is_complete(work, step) for step in work.workflow.order):
        return _succeed(work)
    if too_late:
        failure = timeout_failure(work.workflow.definition.timeout)
        return _End(ExecutionStatus.TIMED_OUT, failure.to_json())
    return None


def _advance_step(work: Workspace, step: CompiledStep) -> None:
    holder = work.holder(step)
    if holder.status is not StepStatus.PENDING:
        time_out(work, holder)
    elif not dependencies_complete(work, step):
        return
    elif step.for_each is None:
        open_instance(work, step, holder, {})
    else:
        if not holder.input_json:
            expand(work, step, step.for_each)
        for item in work.items(step):
            time_out(work, item)
        if work.holder(step).status is StepStatus.PENDING:
            advance_items(work, step)


def _is_complete(work: Workspace, step: CompiledStep) -> bool:
    status = work.holder(step).status
    return is_complete(status, continues_on_failure=step.definition.continues_on_failure)


def _first_broken(work: Workspace) -> StepFacts | None:
    """Return the first step, in the order of dependencies, that is over and not complete."""
    for step in work.workflow.order:
        holder = work.holder(step)
        if STEP_MACHINE.is_terminal(holder.status) and not _is_complete(work, step):
            return holder
    return None


def _succeed(work: Workspace) -> _End:
    """Map the output; an execution whose output cannot be mapped fails."""
    output = work.workflow.output
    try:
        output_json = output.render(work.documents.variables(output.reads))
    except (ExpressionFailedError, DocumentInvalidError) as error:
        failure = Failure(error.reason, f"output: {error}")
        return _End(ExecutionStatus.FAILED, failure.to_json())
    failure_step = work.workflow.failure_step
    if failure_step is not None and work.holder(failure_step).status is StepStatus.PENDING:
        work.end(work.holder(failure_step), StepStatus.SKIPPED)
    return _End(ExecutionStatus.SUCCEEDED, output_json=output_json, is_over=True)


def _close(work: Workspace, end: _End) -> _End:
    work.documents.set_failure(end.failure_json)
    stops = close(work, end.status)
    return _End(end.status, end.failure_json, stops=stops, is_over=is_closed(work))


class _Summary:
    """Turns the draft into a decision."""

    def __init__(self, work: Workspace, end: _End | None) -> None:
        self._work = work
        self._facts = work.facts
        self._end = end
        self._path = self._statuses()
        self._status = self._path[-1] if self._path else self._facts.status

    def decision(self) -> Decision:
        creates, moves = self._work.changes()
        progress, progress_due_at = self._progress()
        return Decision(
            creates=creates,
            moves=moves,
            requests=self._requests(),
            voids=self._work.voids(),
            stops=self._end.stops if self._end else (),
            execution=self._execution(progress),
            events=self._events(progress),
            next_due_at=self._next_due_at(progress_due_at),
        )

    def _statuses(self) -> tuple[ExecutionStatus, ...]:
        """Return the statuses to enter, in order."""
        path: list[ExecutionStatus] = []
        status = self._facts.status
        if status is ExecutionStatus.CREATED and not self._ends_as_canceled():
            path.append(status := ExecutionStatus.QUEUED)
        if status is ExecutionStatus.QUEUED and self._has_started():
            path.append(status := ExecutionStatus.RUNNING)
        if self._end is not None:
            if self._end.is_over:
                path.append(self._end.status)
            elif self._ends_as_canceled() and status is not ExecutionStatus.CANCELING:
                path.append(ExecutionStatus.CANCELING)
        return tuple(path)

    def _ends_as_canceled(self) -> bool:
        return self._end is not None and self._end.status is ExecutionStatus.CANCELED

    def _has_started(self) -> bool:
        """Whether any work was ever dispatched, or a person was ever asked."""
        return any(
            one.attempt_number > 1 or (one.status in _STARTED and one.ready_at is not None)
            for one in self._work.instances()
        )

    def _execution(self, progress: int) -> ExecutionChange | None:
        end = self._end
        closing_as = self._facts.closing_as
        failure_json = self._facts.failure_json
        if end is not None and end.failure_json:
            closing_as, failure_json = ClosingReason(end.status), end.failure_json
        change = ExecutionChange(
            path=self._path,
            status=self._status,
            closing_as=closing_as,
            progress_percent=progress,
            output_json=end.output_json if end else "",
            failure_json=failure_json,
        )
        unchanged = (
            not self._path
            and closing_as == self._facts.closing_as
            and progress == self._facts.progress_percent
        )
        return None if unchanged else change

    def _progress(self) -> tuple[int, datetime | None]:
        """Return the progress to write, and when a rise that is held back may be told."""
        known = self._facts.progress_percent
        if self._status is ExecutionStatus.SUCCEEDED:
            return PROGRESS_MAX, None
        if self._status is not ExecutionStatus.RUNNING or self._end is not None:
            return known, None
        reached = min(self._mean_progress(), PROGRESS_BEFORE_SUCCESS_MAX)
        if reached <= known:
            return known, None
        told_at = self._facts.progress_event_at
        if told_at is not None and self._work.now < told_at + PROGRESS_EVENT_INTERVAL:
            return known, told_at + PROGRESS_EVENT_INTERVAL
        return reached, None

    def _mean_progress(self) -> int:
        order = self._work.workflow.order
        return sum(self._step_progress(step) for step in order) // len(order) if order else 0

    def _step_progress(self, step: CompiledStep) -> int:
        holder = self._work.holder(step)
        if step.for_each is None or STEP_MACHINE.is_terminal(holder.status):
            return instance_progress(holder)
        return progress_of_items(self._work.items(step)) if holder.input_json else 0

    def _events(self, progress: int) -> tuple[PlannedEvent, ...]:
        known = self._facts.progress_percent
        events: list[PlannedEvent] = []
        for status in self._path:
            if (event := event_for(status)) is not None:
                last = status is self._status
                events.append(PlannedEvent(event, status, progress if last else known))
        if progress > known and self._status is ExecutionStatus.RUNNING and not events:
            events.append(PlannedEvent(ExecutionEventType.PROGRESS, self._status, progress))
        return tuple(events)

    def _requests(self) -> tuple[RequestCreation, ...]:
        if self._end is not None and self._end.is_over:
            return ()
        wanting = (
            one.ref
            for one in self._work.instances()
            if one.status is StepStatus.READY and not one.has_request
        )
        return tuple(self._request(self._work.current(ref)) for ref in self._work.ordered(wanting))

    def _request(self, instance: StepFacts) -> RequestCreation:
        definition = self._work.workflow.steps[instance.ref.step_key].definition
        assert definition.kind is StepKind.CAPABILITY, "approvals never rest in READY"
        requirement = Requirement(
            definition.capability, definition.capability_version, definition.affinity
        )
        available_at = instance.not_before or self._work.now
        return RequestCreation(
            instance.ref,
            instance.attempt_number,
            requirement,
            available_at,
            self._limits_json(instance.ref),
        )

    def _limits_json(self, ref: StepRef) -> str:
        step = self._work.workflow.steps[ref.step_key]
        if not step.limits:
            return ""
        variables = item_variables(self._work, step, ref)
        return uses_to_json(step_uses(self._work, step, ref, variables))

    def _next_due_at(self, progress_due_at: datetime | None) -> datetime | None:
        if self._end is not None and self._end.is_over:
            return None
        moments = [due_at(self._work, one) for one in self._work.instances()]
        moments.append(progress_due_at)
        if self._end is None:
            moments.append(self._facts.deadline_at)
        return min((one for one in moments if one is not None), default=None)
