"""Evaluates the keys of limits: a step's when it becomes READY, a workflow's from its input."""

from collections.abc import Callable, Mapping

from control_plane.core.engine.workspace import Workspace
from control_plane.core.executions.domain import NO_ITEM, StepRef
from control_plane.core.expressions.errors import ExpressionFailedError
from control_plane.core.expressions.lexer import References
from control_plane.core.expressions.values import JsonValue, from_json, to_json
from control_plane.core.scheduling.limits import KEY_CHARS_MAX, LimitUse, identity_of
from control_plane.core.workflows.compiling import CompiledLimit, CompiledStep, CompiledWorkflow
from control_plane.core.workflows.domain import LimitScope

_Variables = Callable[[References], Mapping[str, JsonValue]]


def step_uses(
    work: Workspace, step: CompiledStep, ref: StepRef, variables: Mapping[str, JsonValue]
) -> tuple[LimitUse, ...]:
    """Return the slots that an attempt of the instance needs.

    Raises ExpressionFailedError, DocumentInvalidError where a key has no value.
    """
    workflow = work.workflow.definition.name
    return tuple(
        _use(
            limit,
            "step",
            work.facts.application_id,
            f"{workflow}/{ref.step_key}",
            f"step {ref.step_key}",
            lambda reads: work.documents.variables(reads, **variables),
        )
        for limit in step.limits
    )


def item_variables(work: Workspace, step: CompiledStep, ref: StepRef) -> dict[str, JsonValue]:
    """Return what an item's expressions see besides the documents; nothing without an item."""
    if ref.item_index == NO_ITEM:
        return {}
    values = work.documents.parsed(work.holder(step).input_json)
    return {"item": values[ref.item_index], "index": ref.item_index}


def workflow_uses(
    workflow: CompiledWorkflow, application_id: str, input_json: str
) -> tuple[LimitUse, ...]:
    """Return the slots that an execution needs before anything of it starts.

    The same input always gives the same keys. Raises ExpressionFailedError,
    DocumentInvalidError where a key has no value.
    """
    if not workflow.limits:
        return ()
    document = from_json(input_json)
    name = workflow.definition.name
    return tuple(
        _use(
            limit,
            "execution",
            application_id,
            name,
            f"workflow {name}",
            lambda _: {"input": document},
        )
        for limit in workflow.limits
    )


def _use(
    limit: CompiledLimit,
    level: str,
    application_id: str,
    place: str,
    named: str,
    variables: _Variables,
) -> LimitUse:
    definition = limit.definition
    key = _key_text(limit, from_json(limit.key.render(variables(limit.key.reads))))
    shared = definition.scope is LimitScope.APPLICATION
    owner = "the application" if shared else named
    return LimitUse(
        identity=identity_of(
            level=level,
            kind="concurrency" if definition.per is None else "rate",
            application_id=application_id,
            place="" if shared else place,
            key=key,
        ),
        label=f"Key {key!r} of {owner}" if key else f"The limit of {owner}",
        count=definition.count,
        per_s=0.0 if definition.per is None else definition.per.total_seconds(),
    )


def _key_text(limit: CompiledLimit, value: JsonValue) -> str:
    text = value if isinstance(value, str) else to_json(value)
    if not isinstance(value, str | bool | int | float):
        raise ExpressionFailedError(
            str(limit.definition.key), f"the key yields {text[:80]}: text, a number, true or false"
        )
    if len(text) > KEY_CHARS_MAX or "\x00" in text:
        raise ExpressionFailedError(
            str(limit.definition.key),
            f"the key yields {len(text)} characters: at most {KEY_CHARS_MAX}, and no NUL",
        )
    return text
