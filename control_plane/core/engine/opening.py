"""Opens steps: decides `when`, maps the input, and makes an instance READY or WAITING."""

from collections.abc import Mapping

from control_plane.core.engine.deadlines import queue_deadline_at, wait_deadline_at
from control_plane.core.engine.facts import StepFacts
from control_plane.core.engine.limiting import step_uses
from control_plane.core.engine.workspace import Workspace
from control_plane.core.errors import DocumentInvalidError
from control_plane.core.executions.domain import StepRef
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.step_state import StepStatus, is_complete
from control_plane.core.expressions.errors import ExpressionFailedError
from control_plane.core.expressions.template import Expression
from control_plane.core.expressions.values import JsonValue
from control_plane.core.workflows.compiling import CompiledStep
from control_plane.core.workflows.domain import StepKind


def dependencies_complete(work: Workspace, step: CompiledStep) -> bool:
    """Whether everything that the step waits for is complete."""
    steps = work.workflow.steps
    return all(
        is_complete(
            work.current(StepRef(key)).status,
            continues_on_failure=steps[key].definition.continues_on_failure,
        )
        for key in step.definition.depends_on
    )


def open_instance(
    work: Workspace,
    step: CompiledStep,
    instance: StepFacts,
    variables: Mapping[str, JsonValue],
    *,
    ask: bool = True,
) -> None:
    """Skip, fail or ready one PENDING instance; `variables` add to the usual ones.

    `ask` is false when `when` was decided before, for all items together.
    """
    try:
        if ask and not is_wanted(work, step, variables):
            work.end(instance, StepStatus.SKIPPED)
            return
        input_json = step.input.render(work.documents.variables(step.input.reads, **variables))
        if step.limits:  # A key without a value fails the step before it waits for anything.
            step_uses(work, step, instance.ref, variables)
    except (ExpressionFailedError, DocumentInvalidError) as error:
        work.end(instance, StepStatus.FAILED, expression_failure(instance.ref, error))
        return
    _make_ready(work, step, instance, input_json)


def is_wanted(work: Workspace, step: CompiledStep, variables: Mapping[str, JsonValue]) -> bool:
    """Decide `when`; raise ExpressionFailedError when it yields neither true nor false."""
    if step.when is None:
        return True
    answer = evaluate(work, step.when, variables)
    if not isinstance(answer, bool):
        raise ExpressionFailedError(step.when.source, f"when yields {answer!r}, not true or false")
    return answer


def evaluate(
    work: Workspace, expression: Expression, variables: Mapping[str, JsonValue]
) -> JsonValue:
    """Return the expression's value over the documents and `variables`."""
    return expression.evaluate(work.documents.variables(expression.reads, **variables))


def expression_failure(
    ref: StepRef, error: ExpressionFailedError | DocumentInvalidError
) -> Failure:
    """Return the failure of a step whose expression failed; it is never retried."""
    return Failure(
        reason=error.reason,
        message=f"step {ref}: {error}",
        step_key=ref.step_key,
        item_index=ref.item_index,
    )


def _make_ready(work: Workspace, step: CompiledStep, instance: StepFacts, input_json: str) -> None:
    timeouts = step.definition.timeouts
    if step.definition.kind is StepKind.APPROVAL:
        work.change(
            instance,
            status=StepStatus.WAITING,
            input_json=input_json,
            ready_at=work.now,
            deadline_at=wait_deadline_at(timeouts, work.now),
        )
        return
    work.change(
        instance,
        status=StepStatus.READY,
        attempt_number=1,
        input_json=input_json,
        ready_at=work.now,
        deadline_at=queue_deadline_at(timeouts, work.now, work.now),
    )
