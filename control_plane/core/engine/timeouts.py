"""Times out what waits too long for a node or for an answer."""

from datetime import datetime

from control_plane.core.engine.deadlines import total_deadline_at
from control_plane.core.engine.facts import StepFacts
from control_plane.core.engine.workspace import Workspace
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.step_state import StepStatus


def time_out(work: Workspace, instance: StepFacts) -> None:
    """End the instance if its deadline is over; running attempts have a sweep of their own."""
    deadline_at = due_at(work, instance)
    if deadline_at is None or work.now < deadline_at:
        return
    waits = instance.status is StepStatus.WAITING
    reason = "APPROVAL_TIMED_OUT" if waits else "QUEUE_TIMED_OUT"
    what = "nobody answered" if waits else "no node took it"
    failure = Failure(
        reason,
        f"step {instance.ref}: {what} before {deadline_at.isoformat()}",
        instance.ref.step_key,
        instance.ref.item_index,
    )
    work.end(instance, StepStatus.TIMED_OUT, failure)


def due_at(work: Workspace, instance: StepFacts) -> datetime | None:
    """When the engine has to look at the instance; None where no time of it runs down here.

    A pause stops queue time, and only that: the step's total time goes on.
    """
    if instance.status is StepStatus.READY and work.facts.paused:
        if instance.ready_at is None or instance.deadline_at is None:
            return None
        timeouts = work.workflow.steps[instance.ref.step_key].definition.timeouts
        return total_deadline_at(timeouts, instance.ready_at)
    if instance.status in (StepStatus.READY, StepStatus.WAITING):
        return instance.deadline_at
    return None
