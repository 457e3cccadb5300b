"""Steps with for_each: the list is evaluated once, its items run side by side, the step gathers.

The instance without an index holds the list as its input from the moment it is evaluated.
"""

from collections.abc import Sequence
from typing import Final

from control_plane.core.engine.facts import StepFacts
from control_plane.core.engine.opening import (
    evaluate,
    expression_failure,
    is_wanted,
    open_instance,
)
from control_plane.core.engine.workspace import Workspace
from control_plane.core.errors import DocumentInvalidError
from control_plane.core.executions.domain import StepRef
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.step_state import STEP_MACHINE, StepStatus
from control_plane.core.expressions.errors import ExpressionFailedError
from control_plane.core.expressions.template import Expression
from control_plane.core.expressions.values import JsonValue, to_json
from control_plane.core.workflows.compiling import CompiledStep
from control_plane.core.workflows.parsing import ITEMS_MAX
from control_plane.limits import DOCUMENT_BYTES_MAX

# An item in back-off is READY, and keeps its place.
_ACTIVE: Final = frozenset({StepStatus.READY, StepStatus.RUNNING, StepStatus.WAITING})
_BROKEN: Final = frozenset({StepStatus.FAILED, StepStatus.TIMED_OUT, StepStatus.CANCELED})


def expand(work: Workspace, step: CompiledStep, for_each: Expression) -> None:
    """Evaluate the list, store it, and create one PENDING instance per item."""
    holder = work.holder(step)
    try:
        if not step.asks_each_item and not is_wanted(work, step, {}):
            work.end(holder, StepStatus.SKIPPED)
            return
        values = _checked_list(for_each, evaluate(work, for_each, {}))
        list_json = _bounded(for_each, to_json(values))
    except (ExpressionFailedError, DocumentInvalidError) as error:
        work.end(holder, StepStatus.FAILED, expression_failure(holder.ref, error))
        return
    work.change(holder, input_json=list_json)
    work.ensure(StepRef(step.key, index) for index in range(len(values)))


def advance_items(work: Workspace, step: CompiledStep) -> None:
    """Open as many items as may run side by side, and end the step when all are done."""
    holder = work.holder(step)
    values: Sequence[JsonValue] = work.documents.parsed(holder.input_json)
    limit = step.definition.max_parallel or len(values)
    active = sum(item.status in _ACTIVE for item in work.items(step))
    for item in work.items(step):
        if active >= limit:
            break
        if item.status is StepStatus.PENDING:
            index = item.ref.item_index
            variables = {"item": values[index], "index": index}
            open_instance(work, step, item, variables, ask=step.asks_each_item)
            active += work.current(item.ref).status in _ACTIVE
    _gather(work, step, holder)


def progress_of_items(items: Sequence[StepFacts]) -> int:
    """Return the mean progress of the items, 100 for none."""
    if not items:
        return 100
    return sum(instance_progress(item) for item in items) // len(items)


def instance_progress(step: StepFacts) -> int:
    """Return what an instance counts for: its own progress while RUNNING, 100 once it is over."""
    if STEP_MACHINE.is_terminal(step.status):
        return 100
    return step.progress_percent if step.status is StepStatus.RUNNING else 0


def _checked_list(for_each: Expression, value: JsonValue) -> list[JsonValue]:
    if not isinstance(value, list):
        raise ExpressionFailedError(for_each.source, "for_each yields no list")
    if len(value) > ITEMS_MAX:
        raise ExpressionFailedError(
            for_each.source, f"for_each yields {len(value)} items, more than {ITEMS_MAX}"
        )
    return value


def _bounded(for_each: Expression, list_json: str) -> str:
    size_bytes = len(list_json.encode())
    if size_bytes > DOCUMENT_BYTES_MAX:
        raise ExpressionFailedError(
            for_each.source,
            f"the list has {size_bytes} bytes, more than {DOCUMENT_BYTES_MAX}: list references",
        )
    return list_json


def _gather(work: Workspace, step: CompiledStep, holder: StepFacts) -> None:
    items = work.items(step)
    if not step.definition.continues_on_failure:
        broken = next((item for item in items if item.status in _BROKEN), None)
        if broken is not None:
            work.end(holder, StepStatus.FAILED, _item_failure(broken))
            return
    if not all(STEP_MACHINE.is_terminal(item.status) for item in items):
        return
    output_json = f"[{','.join(_output(item) for item in items)}]"
    size_bytes = len(output_json.encode())
    if size_bytes > DOCUMENT_BYTES_MAX:
        message = f"the outputs have {size_bytes} bytes together, more than {DOCUMENT_BYTES_MAX}"
        work.end(holder, StepStatus.FAILED, Failure("OUTPUT_TOO_LARGE", message, step.key))
        return
    work.change(holder, status=StepStatus.SUCCEEDED, output_json=output_json, progress_percent=100)


def _output(item: StepFacts) -> str:
    # Only a success has an output: skipped and failed items count as null.
    return item.output_json or "null"


def _item_failure(item: StepFacts) -> Failure:
    cause = Failure.from_json(item.failure_json) if item.failure_json else None
    why = cause.message if cause else f"it was {item.status.lower()}"
    message = f"item {item.ref.item_index}: {why}"
    return Failure("ITEM_FAILED", message, item.ref.step_key, item.ref.item_index, cause=cause)
