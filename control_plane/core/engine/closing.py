"""Brings an execution to its end: nothing new starts, what runs is stopped, then it is over."""

from datetime import timedelta

from control_plane.core.engine.decisions import AttemptStop
from control_plane.core.engine.facts import StepFacts
from control_plane.core.engine.opening import open_instance
from control_plane.core.engine.timeouts import time_out
from control_plane.core.engine.workspace import Workspace
from control_plane.core.executions.attempt_state import StopReason
from control_plane.core.executions.domain import StepRef
from control_plane.core.executions.execution_state import ExecutionStatus
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.step_state import STEP_MACHINE, StepStatus
from control_plane.core.workflows.compiling import CompiledStep


def failure_of(broken: StepFacts) -> Failure:
    """Return the execution's failure for a step that ended badly."""
    cause = Failure.from_json(broken.failure_json) if broken.failure_json else None
    ending = broken.status.lower().replace("_", " ")
    message = f"step {broken.ref} {ending}" + (f": {cause.message}" if cause else "")
    reason = f"STEP_{broken.status}"
    return Failure(reason, message, broken.ref.step_key, broken.ref.item_index, cause=cause)


def timeout_failure(timeout: timedelta) -> Failure:
    """Return the failure of an execution that took too long."""
    message = f"the execution did not finish within its time-out of {timeout}"
    return Failure("EXECUTION_TIMED_OUT", message)


def close(work: Workspace, end: ExecutionStatus) -> tuple[AttemptStop, ...]:
    """Drop what has not started, and return the live attempts that are still to be stopped."""
    reason = StopReason.TIMEOUT if end is ExecutionStatus.TIMED_OUT else StopReason.CANCEL
    spared = None if end is ExecutionStatus.CANCELED else work.workflow.failure_step
    stops: list[StepRef] = []
    for instance in work.instances():
        if spared is not None and instance.ref.step_key == spared.key:
            continue
        if instance.status is StepStatus.RUNNING:
            if instance.stop_reason in (None, StopReason.DRAIN):
                stops.append(instance.ref)
        elif not STEP_MACHINE.is_terminal(instance.status):
            work.end(instance, StepStatus.CANCELED)
    if spared is not None:
        _advance_failure_step(work, spared)
    return tuple(
        AttemptStop(ref, work.current(ref).attempt_number, reason) for ref in work.ordered(stops)
    )


def is_closed(work: Workspace) -> bool:
    """Whether nothing of the execution is left to end."""
    return all(STEP_MACHINE.is_terminal(one.status) for one in work.instances())


def _advance_failure_step(work: Workspace, step: CompiledStep) -> None:
    """Start the failure step once all else is over, so that it sees how everything ended."""
    ref = StepRef(step.key)
    work.ensure([ref])
    instance = work.current(ref)
    others_over = all(
        STEP_MACHINE.is_terminal(one.status) for one in work.instances() if one.ref != ref
    )
    if instance.status is StepStatus.PENDING and others_over:
        open_instance(work, step, instance, {})
    else:
        time_out(work, instance)
