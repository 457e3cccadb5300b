"""Times out what waits too long for a node or for an answer."""

from control_plane.core.engine.facts import StepFacts
from control_plane.core.engine.workspace import Workspace
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.step_state import StepStatus


def time_out(work: Workspace, instance: StepFacts) -> None:
    """End the instance if its deadline is over; running attempts have a sweep of their own."""
    if not _runs_down(work, instance) or instance.deadline_at is None:
        return
    if work.now < instance.deadline_at:
        return
    waits = instance.status is StepStatus.WAITING
    reason = "APPROVAL_TIMED_OUT" if waits else "QUEUE_TIMED_OUT"
    what = "nobody answered" if waits else "no node took it"
    failure = Failure(
        reason,
        f"step {instance.ref}: {what} before {instance.deadline_at.isoformat()}",
        instance.ref.step_key,
        instance.ref.item_index,
    )
    work.end(instance, StepStatus.TIMED_OUT, failure)


def is_timed(work: Workspace, instance: StepFacts) -> bool:
    """Whether the engine has to look again at the instance's deadline."""
    return instance.deadline_at is not None and _runs_down(work, instance)


def _runs_down(work: Workspace, instance: StepFacts) -> bool:
    """A pause stops queue time, and only that."""
    if instance.status is StepStatus.READY:
        return not work.facts.paused
    return instance.status is StepStatus.WAITING
