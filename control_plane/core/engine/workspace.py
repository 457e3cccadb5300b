"""The facts as they would be after what has been decided so far, and the difference to before."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from control_plane.core.engine.decisions import RequestVoiding, StepChange
from control_plane.core.engine.documents import Documents
from control_plane.core.engine.facts import ExecutionFacts, StepFacts
from control_plane.core.executions.domain import NO_ITEM, StepKey, StepRef
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.step_state import STEP_MACHINE, StepStatus
from control_plane.core.workflows.compiling import CompiledStep, CompiledWorkflow


class Workspace:
    """A draft of the decision: reads see what was decided before."""

    def __init__(self, workflow: CompiledWorkflow, facts: ExecutionFacts, now: datetime) -> None:
        """Start from the facts, with nothing decided."""
        self.workflow = workflow
        self.facts = facts
        self.now = now
        self.documents = Documents(facts, self.current)
        self._steps = dict(facts.steps)
        self._changed: set[StepRef] = set()
        self._items: dict[StepKey, list[StepRef]] = {}
        for ref in sorted(facts.steps, key=lambda one: one.item_index):
            self._note_item(ref)

    def current(self, ref: StepRef) -> StepFacts:
        """Return the instance as it stands now; a PENDING one where there is none yet."""
        return self._steps.get(ref) or StepFacts(ref)

    def holder(self, step: CompiledStep) -> StepFacts:
        """Return the instance of the step that has no index."""
        return self.current(StepRef(step.key))

    def items(self, step: CompiledStep) -> list[StepFacts]:
        """Return the items of a for_each step by index."""
        return [self._steps[ref] for ref in self._items.get(step.key, ())]

    def instances(self) -> list[StepFacts]:
        """Return every instance there is, created ones included."""
        return list(self._steps.values())

    def ordered(self, refs: Iterable[StepRef]) -> list[StepRef]:
        """Sort by the definition's order, then by item, whatever order the facts came in."""
        return sorted(refs, key=self._position)

    def ensure(self, refs: Iterable[StepRef]) -> None:
        """Create, as PENDING, those of the instances that do not exist."""
        for ref in refs:
            if ref not in self._steps:
                self._put(StepFacts(ref))
                self._note_item(ref)

    def change(self, step: StepFacts, **fields: Any) -> StepFacts:
        """Change fields of the instance and return it; the status only as its machine allows."""
        changed = replace(step, **fields)
        STEP_MACHINE.path(step.status, changed.status)
        self._put(changed)
        return changed

    def end(self, step: StepFacts, status: StepStatus, failure: Failure | None = None) -> None:
        """End the instance with this status."""
        failure_json = "" if failure is None else failure.to_json()
        self.change(step, status=status, failure_json=failure_json, deadline_at=None)

    def changes(self) -> tuple[tuple[StepChange, ...], tuple[StepChange, ...]]:
        """Return what is to be created and what is to be changed, in the definition's order."""
        creates: list[StepChange] = []
        moves: list[StepChange] = []
        for ref in self.ordered(self._changed):
            before, after = self.facts.steps.get(ref), self._steps[ref]
            if before is None:
                creates.append(self._change(None, after))
            elif before != after:
                moves.append(self._change(before.status, after))
        return tuple(creates), tuple(moves)

    def voids(self) -> tuple[RequestVoiding, ...]:
        """Return the requests of instances that have stopped waiting for a node."""
        return tuple(
            RequestVoiding(ref, before.attempt_number)
            for ref in self.ordered(self._changed)
            if (before := self.facts.steps.get(ref)) is not None
            and before.has_request
            and before.status is StepStatus.READY
            and self._steps[ref].status is not StepStatus.READY
        )

    def _put(self, step: StepFacts) -> None:
        self._steps[step.ref] = step
        self._changed.add(step.ref)

    def _note_item(self, ref: StepRef) -> None:
        if ref.item_index != NO_ITEM:
            self._items.setdefault(ref.step_key, []).append(ref)

    def _position(self, ref: StepRef) -> tuple[int, int]:
        return self.workflow.steps[ref.step_key].place, ref.item_index

    def _change(self, from_status: StepStatus | None, after: StepFacts) -> StepChange:
        return StepChange(
            ref=after.ref,
            place=self.workflow.steps[after.ref.step_key].place,
            from_status=from_status,
            to_status=after.status,
            attempt_number=after.attempt_number,
            progress_percent=after.progress_percent,
            input_json=after.input_json,
            output_json=after.output_json,
            failure_json=after.failure_json,
            deadline_at=after.deadline_at,
            ready_at=after.ready_at,
        )
