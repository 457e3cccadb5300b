"""Turns a definition's data into its dataclasses, noting everything that is wrong."""

import re
from typing import Final

from control_plane.core.executions.domain import StepKey
from control_plane.core.expressions.values import JsonValue
from control_plane.core.workflows.domain import (
    BOUNDED_STEP_TIMEOUT_DEFAULT,
    RUN_TIMEOUT_DEFAULT,
    WORKFLOW_TIMEOUT_DEFAULT,
    Affinity,
    OnFailure,
    Resources,
    RetryPolicy,
    StepDefinition,
    StepKind,
    StepTimeouts,
    WorkflowDefinition,
)
from control_plane.core.workflows.limiting import parse_limits
from control_plane.core.workflows.reading import Fields, kind_of
from control_plane.core.workflows.violations import Violations

STEPS_MAX: Final = 1_000
ATTEMPTS_MAX: Final = 100
ITEMS_MAX: Final = 10_000

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,49}")
_STEP_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
_REASON = re.compile(r"[A-Z][A-Z0-9_]{0,99}")
_NODE_OR_GROUP = re.compile(r"\S{1,100}")
_INT64_MAX: Final = 2**63 - 1


def parse_definition(value: JsonValue, violations: Violations) -> WorkflowDefinition:
    """Return the definition; it is only to be used when no violation was noted."""
    fields = Fields(value, "", violations)
    if not isinstance(value, dict):
        violations.add("definition", f"expected an object, not {kind_of(value)}")
    definition = WorkflowDefinition(
        name=fields.text("name", _NAME, "a name of letters, digits, dots and dashes"),
        version=fields.text("version", _VERSION, 'a version such as "1" or "1.4.0"'),
        input_schema=_schema(fields),
        timeout=fields.duration("timeout", WORKFLOW_TIMEOUT_DEFAULT),
        steps=_steps(fields, violations),
        output=fields.take("output"),
        failure_step=_failure_step(fields),
        limits=parse_limits(fields),
    )
    fields.finish()
    return definition


def _schema(fields: Fields) -> dict[str, JsonValue]:
    value = fields.take("input_schema")
    if value is None:
        return {}
    if not isinstance(value, dict):
        fields.wrong("input_schema", f"expected a JSON Schema object, not {kind_of(value)}")
        return {}
    return value


def _failure_step(fields: Fields) -> StepKey | None:
    key = fields.text("failure_step", _STEP_KEY, "the key of a step", needed=False)
    return StepKey(key) if key else None


def _steps(fields: Fields, violations: Violations) -> tuple[StepDefinition, ...]:
    value = fields.take("steps")
    if not isinstance(value, list) or not value:
        fields.wrong("steps", "expected a list with at least one step", "REQUIRED")
        return ()
    if len(value) > STEPS_MAX:
        fields.wrong("steps", f"{len(value)} steps are more than the {STEPS_MAX} allowed")
        return ()
    return tuple(
        _step(Fields(one, f"steps[{place}]", violations)) for place, one in enumerate(value)
    )


def _step(fields: Fields) -> StepDefinition:
    key = fields.text("key", _STEP_KEY, "a key of letters, digits, _ and -, not starting with one")
    kind = fields.choice("kind", StepKind.CAPABILITY)
    at_most_once = fields.flag("at_most_once")
    by_node = kind is StepKind.CAPABILITY
    step = StepDefinition(
        key=StepKey(key),
        kind=kind,
        capability=fields.text("capability", _NAME, "a capability's name", needed=by_node),
        capability_version=fields.text(
            "capability_version", _VERSION, 'a version such as "1"', needed=by_node
        ),
        depends_on=tuple(StepKey(one) for one in fields.texts("depends_on")),
        when=fields.expression("when"),
        for_each=fields.expression("for_each"),
        max_parallel=_max_parallel(fields),
        input=_input(fields),
        retry=_retry(fields.part("retry"), at_most_once=at_most_once),
        timeouts=_timeouts(fields.part("timeouts"), kind),
        affinity=parse_affinity(fields.part("affinity")),
        on_failure=fields.choice("on_failure", OnFailure.FAIL),
        at_most_once=at_most_once,
        limits=parse_limits(fields),
    )
    _check_combination(step, fields)
    fields.finish()
    return step


def _check_combination(step: StepDefinition, fields: Fields) -> None:
    if step.max_parallel is not None and not step.for_each:
        fields.wrong("max_parallel", "needs for_each: there is nothing to run in parallel")
    if step.kind is StepKind.APPROVAL and step.limits:
        fields.wrong("concurrency_key", "an approval takes no slot: leave limits out")
    if step.kind is StepKind.APPROVAL and (step.capability or step.capability_version):
        fields.wrong("capability", "an approval has no capability: a person does its work")


def _max_parallel(fields: Fields) -> int | None:
    value = fields.number("max_parallel", None, 1, ITEMS_MAX)
    if isinstance(value, float):
        fields.wrong("max_parallel", f"expected an integer, not {value}")
        return None
    return value


def _input(fields: Fields) -> JsonValue:
    value = fields.take("input")
    return {} if value is None else value


def _retry(fields: Fields, *, at_most_once: bool) -> RetryPolicy:
    default = RetryPolicy()
    reasons = fields.texts("non_retryable_reasons")
    if not all(_REASON.fullmatch(one) for one in reasons):
        fields.wrong("non_retryable_reasons", "expected reasons in UPPER_SNAKE_CASE")
    policy = RetryPolicy(
        max_attempts=fields.integer(
            "max_attempts", 1 if at_most_once else default.max_attempts, 1, ATTEMPTS_MAX
        ),
        initial_delay=fields.duration("initial_delay", default.initial_delay),
        multiplier=float(fields.number("multiplier", default.multiplier, 1, 100)),
        max_delay=fields.duration("max_delay", default.max_delay),
        jitter=float(fields.number("jitter", default.jitter, 0, 1)),
        non_retryable_reasons=frozenset(reasons),
    )
    if at_most_once and policy.max_attempts > 1:
        fields.wrong("max_attempts", "must be 1, since the step says at_most_once")
    fields.finish()
    return policy


def _timeouts(fields: Fields, kind: StepKind) -> StepTimeouts:
    total = BOUNDED_STEP_TIMEOUT_DEFAULT if kind is StepKind.APPROVAL else None
    timeouts = StepTimeouts(
        queue=fields.duration("queue", None),
        run=fields.duration("run", RUN_TIMEOUT_DEFAULT),
        heartbeat=fields.duration("heartbeat", None),
        total=fields.duration("total", total),
    )
    fields.finish()
    return timeouts


def parse_affinity(fields: Fields) -> Affinity:
    """Return the affinity that the object states; unknown keys are violations."""
    affinity = Affinity(
        node_id=fields.text("node_id", _NODE_OR_GROUP, "a node's id", needed=False),
        group=fields.text("group", _NODE_OR_GROUP, "a group's name", needed=False),
        required_labels=fields.labels("required_labels"),
        preferred_labels=fields.labels("preferred_labels"),
        minimum_resources=_resources(fields.part("minimum_resources")),
    )
    fields.finish()
    return affinity


def _resources(fields: Fields) -> Resources:
    names = ("cpu_millis", "memory_bytes", "disk_bytes", "gpu_count")
    resources = Resources(**{name: fields.integer(name, 0, 0, _INT64_MAX) for name in names})
    fields.finish()
    return resources
