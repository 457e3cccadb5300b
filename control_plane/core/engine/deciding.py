"""One execution's decision with the envelopes of its events: what every advance writes."""

from control_plane.core.engine.decisions import Decision, PlannedEvent
from control_plane.core.engine.domain import decide
from control_plane.core.engine.ports import Advance, EnvelopedEvent, LoadedExecution
from control_plane.core.executions.domain import ExecutionEvent
from control_plane.core.executions.envelope import envelope
from foundation.ids import IdSource


class Deciding:
    """Decides executions; it changes nothing, so that a transaction may run it again."""

    def __init__(self, ids: IdSource) -> None:
        """`ids` name the events."""
        self._ids = ids

    def __call__(self, execution: LoadedExecution) -> Advance:
        """Decide one execution and write its events' envelopes."""
        decision = decide(execution.workflow, execution.facts, execution.now)
        events = tuple(
            self._enveloped(execution, decision, planned, execution.last_sequence + 1 + place)
            for place, planned in enumerate(decision.events)
        )
        return Advance(execution, decision, events)

    def _enveloped(
        self,
        execution: LoadedExecution,
        decision: Decision,
        planned: PlannedEvent,
        sequence: int,
    ) -> EnvelopedEvent:
        facts, change = execution.facts, decision.execution
        # Documents belong to the status that the execution has in the end, not to those it
        # passed through on the way.
        is_last = change is not None and planned.status is change.status
        event = ExecutionEvent(
            application_id=facts.application_id,
            task_id=facts.task_id,
            execution_id=facts.execution_id,
            external_ref=facts.external_ref,
            sequence=sequence,
            run=facts.run,
            status=planned.status,
            progress=planned.progress_percent,
            output_json=change.output_json if change is not None and is_last else "",
            failure_json=change.failure_json if change is not None and is_last else "",
        )
        event_id = self._ids.new_id()
        return EnvelopedEvent(
            event_id=event_id,
            sequence=sequence,
            type=planned.type.value,
            status=planned.status.value,
            progress_percent=planned.progress_percent,
            envelope=envelope(event, planned.type, event_id, execution.now),
        )
