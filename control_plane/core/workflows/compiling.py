"""Compiles a definition into what the engine runs: an ordered graph with compiled expressions."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from control_plane.core.executions.domain import StepKey
from control_plane.core.expressions.errors import ExpressionInvalidError
from control_plane.core.expressions.lexer import References
from control_plane.core.expressions.ports import ExpressionCompiler, ValueKind
from control_plane.core.expressions.template import (
    Expression,
    Template,
    compile_expression,
    compile_template,
)
from control_plane.core.expressions.values import JsonValue, texts_of
from control_plane.core.workflows.document import read_document
from control_plane.core.workflows.domain import (
    BOUNDED_STEP_TIMEOUT_DEFAULT,
    LimitDefinition,
    StepDefinition,
    WorkflowDefinition,
)
from control_plane.core.workflows.errors import DefinitionInvalidError
from control_plane.core.workflows.graph import Graph, build_graph, find_cycle
from control_plane.core.workflows.parsing import parse_definition
from control_plane.core.workflows.schemas import DocumentSchema
from control_plane.core.workflows.violations import Violations

CACHE_ENTRIES_DEFAULT: Final = 256
_ITEM_NAMES: Final = frozenset({"item", "index"})


@dataclass(frozen=True, slots=True)
class CompiledLimit:
    """A limit with its key compiled."""

    definition: LimitDefinition
    key: Template


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """A step with its expressions compiled; `place` is its position in the definition."""

    definition: StepDefinition
    place: int
    input: Template
    when: Expression | None = None
    for_each: Expression | None = None
    limits: tuple[CompiledLimit, ...] = ()

    @property
    def key(self) -> StepKey:
        """The step's key."""
        return self.definition.key

    @property
    def asks_each_item(self) -> bool:
        """Whether `when` is decided for each item rather than once for the step."""
        when = self.when
        return (
            when is not None and self.for_each is not None and bool(when.reads.names & _ITEM_NAMES)
        )


@dataclass(frozen=True, slots=True)
class CompiledWorkflow:
    """All that the engine needs of a snapshot; immutable, shared between executions.

    `order` lists the steps so that each follows what it waits for; the failure step, which
    waits for none of them, is left out.
    """

    definition: WorkflowDefinition
    digest: str
    steps: Mapping[StepKey, CompiledStep]
    order: tuple[CompiledStep, ...]
    failure_step: CompiledStep | None
    output: Template
    input_schema: DocumentSchema
    limits: tuple[CompiledLimit, ...] = ()


def compile_workflow(
    definition: WorkflowDefinition,
    digest: str,
    compiler: ExpressionCompiler,
    violations: Violations | None = None,
) -> CompiledWorkflow:
    """Check the graph, the schema and every expression, and compile them.

    Raises DefinitionInvalidError with all violations, those already noted included.
    """
    noted = violations if violations is not None else Violations()
    graph = _checked_graph(definition, noted)
    compilation = _Compilation(definition, digest, compiler, noted, graph)
    if noted:
        # What reads what would only repeat the mistakes found so far; each expression by
        # itself may have others.
        compilation.note_expressions()
        _stop_at_violations(noted)
    return compilation.result()


def _stop_at_violations(violations: Violations) -> None:
    if violations:
        found = violations.all()
        message = "; ".join(f"{one.field}: {one.description}" for one in found)
        raise DefinitionInvalidError(message, field_violations=found)


def _checked_graph(definition: WorkflowDefinition, violations: Violations) -> Graph:
    keys = {step.key for step in definition.steps}
    seen: set[str] = set()
    dependencies: dict[str, list[StepKey]] = {}
    for place, step in enumerate(definition.steps):
        if step.key in seen:
            violations.add(f"steps[{place}].key", f"{step.key!r} is used twice", "DUPLICATE")
        seen.add(step.key)
        dependencies[step.key] = _known_dependencies(step, place, keys, violations)
    _check_failure_step(definition, violations)
    if cycle := find_cycle(dependencies):
        way = " → ".join((*cycle, cycle[0]))
        violations.add("steps", f"depends_on goes in a circle: {way}", "CYCLE")
        return build_graph({})
    return build_graph(dependencies)


def _known_dependencies(
    step: StepDefinition, place: int, keys: set[StepKey], violations: Violations
) -> list[StepKey]:
    known: list[StepKey] = []
    for position, dependency in enumerate(step.depends_on):
        path = f"steps[{place}].depends_on[{position}]"
        if dependency == step.key:
            violations.add(path, f"step {step.key!r} depends on itself", "SELF_DEPENDENCY")
        elif dependency not in keys:
            violations.add(path, f"there is no step {dependency!r}", "UNKNOWN_STEP")
        else:
            known.append(dependency)
    return known


def _check_failure_step(definition: WorkflowDefinition, violations: Violations) -> None:
    key = definition.failure_step
    if key is None:
        return
    step = next((one for one in definition.steps if one.key == key), None)
    if step is None:
        violations.add("failure_step", f"there is no step {key!r}", "UNKNOWN_STEP")
    elif step.depends_on or step.for_each:
        violations.add(
            "failure_step", f"{key!r} runs when others failed: it has no depends_on, no for_each"
        )
    for place, one in enumerate(definition.steps):
        if key in one.depends_on:
            violations.add(f"steps[{place}].depends_on", f"nothing can wait for {key!r}")


class _Compilation:
    """One pass over a definition whose graph is known to be right."""

    def __init__(
        self,
        definition: WorkflowDefinition,
        digest: str,
        compiler: ExpressionCompiler,
        violations: Violations,
        graph: Graph,
    ) -> None:
        self._definition = definition
        self._digest = digest
        self._compiler = compiler
        self._violations = violations
        self._graph = graph
        self._keys = frozenset(step.key for step in definition.steps)

    def note_expressions(self) -> None:
        """Note what is wrong with the schema and each expression by itself."""
        self._schema()
        for place, step in enumerate(self._definition.steps):
            self._expressions(place, step)
        self._template(self._definition.output, "output", per_item=False)

    def result(self) -> CompiledWorkflow:
        schema = self._schema()
        steps = {
            step.key: self._step(place, step) for place, step in enumerate(self._definition.steps)
        }
        output = self._template(self._definition.output, "output", per_item=False)
        self._check_mapping(output, self._definition.output, "output", None, per_item=False)
        limits = self._workflow_limits()
        _stop_at_violations(self._violations)
        failure_key = self._definition.failure_step
        return CompiledWorkflow(
            definition=self._definition,
            digest=self._digest,
            steps=steps,
            order=tuple(steps[StepKey(key)] for key in self._graph.order if key != failure_key),
            failure_step=None if failure_key is None else _bounded(steps[failure_key]),
            output=output,
            input_schema=schema,
            limits=limits,
        )

    def _workflow_limits(self) -> tuple[CompiledLimit, ...]:
        limits = self._limits(self._definition.limits, "", per_item=False)
        for limit in limits:
            # It is decided before anything else of the execution is known.
            if others := sorted(limit.key.reads.names - {"input"}):
                self._violations.add(
                    _limit_path("", limit.definition),
                    f"a workflow's key reads input only, not {', '.join(others)}",
                    "REFERENCE_INVALID",
                )
        return limits

    def _limits(
        self, limits: tuple[LimitDefinition, ...], path: str, *, per_item: bool
    ) -> tuple[CompiledLimit, ...]:
        return tuple(
            CompiledLimit(one, self._template(one.key, _limit_path(path, one), per_item=per_item))
            for one in limits
        )

    def _schema(self) -> DocumentSchema:
        try:
            return DocumentSchema(self._definition.input_schema)
        except DefinitionInvalidError as error:
            self._violations.add("input_schema", str(error), "SCHEMA_INVALID")
            return DocumentSchema({})

    def _step(self, place: int, step: StepDefinition) -> CompiledStep:
        path, per_item = f"steps[{place}]", bool(step.for_each)
        compiled = self._expressions(place, step)
        self._check_mapping(compiled.input, step.input, f"{path}.input", step, per_item=per_item)
        for name, expression in (("when", compiled.when), ("for_each", compiled.for_each)):
            if expression is not None:
                self._check_steps_read(expression.reads, f"{path}.{name}", step)
        return compiled

    def _expressions(self, place: int, step: StepDefinition) -> CompiledStep:
        path = f"steps[{place}]"
        per_item = bool(step.for_each)
        when = self._expression(step.when, f"{path}.when", ValueKind.BOOL, per_item=per_item)
        for_each = self._expression(
            step.for_each, f"{path}.for_each", ValueKind.LIST, per_item=False
        )
        mapping = self._template(step.input, f"{path}.input", per_item=per_item)
        limits = self._limits(step.limits, f"{path}.", per_item=per_item)
        for limit in limits:
            self._check_steps_read(limit.key.reads, _limit_path(f"{path}.", limit.definition), step)
        return CompiledStep(step, place, mapping, when, for_each, limits)

    def _expression(
        self, source: str, path: str, expected: ValueKind, *, per_item: bool
    ) -> Expression | None:
        if not source:
            return None
        try:
            expression = compile_expression(source, self._compiler, per_item=per_item)
        except ExpressionInvalidError as error:
            self._violations.add(path, str(error), error.reason)
            return None
        if expression.compiled.kind not in (expected, ValueKind.DYNAMIC):
            self._violations.add(
                path, f"expected a {expected}, the expression yields {expression.compiled.kind}"
            )
        return expression

    def _template(self, tree: JsonValue, path: str, *, per_item: bool) -> Template:
        try:
            return compile_template(tree, self._compiler, per_item=per_item)
        except ExpressionInvalidError:
            # Text by text, so that each mistake is told with its own place.
            for at, text in texts_of(tree, path):
                self._note_text(text, at, per_item=per_item)
            return compile_template(None, self._compiler, per_item=per_item)

    def _note_text(self, text: str, path: str, *, per_item: bool) -> None:
        try:
            compile_template(text, self._compiler, per_item=per_item)
        except ExpressionInvalidError as error:
            self._violations.add(path, str(error), error.reason)

    def _check_mapping(
        self,
        template: Template,
        tree: JsonValue,
        path: str,
        step: StepDefinition | None,
        *,
        per_item: bool,
    ) -> None:
        """Check what a mapping reads; only where something is wrong, text by text."""
        if not any(self._why_unreadable(key, step) for key in template.reads.steps):
            return
        for at, text in texts_of(tree, path):
            one = compile_template(text, self._compiler, per_item=per_item)
            self._check_steps_read(one.reads, at, step)

    def _check_steps_read(self, reads: References, path: str, step: StepDefinition | None) -> None:
        for key in sorted(reads.steps):
            if complaint := self._why_unreadable(key, step):
                self._violations.add(path, complaint, "REFERENCE_INVALID")

    def _why_unreadable(self, key: str, step: StepDefinition | None) -> str:
        failure_key = self._definition.failure_step
        if key not in self._keys:
            return f"there is no step {key!r}"
        if step is not None and step.key == failure_key:
            return "a step cannot read itself" if key == failure_key else ""
        if key == failure_key:
            return f"{key!r} runs only on failure, so nothing can read it"
        if step is not None and not self._graph.is_ancestor(key, step.key):
            return f"step {step.key!r} does not wait for {key!r}: add it to depends_on"
        return ""


def _limit_path(path: str, limit: LimitDefinition) -> str:
    return f"{path}{'concurrency_key' if limit.per is None else 'rate_limit'}"


def _bounded(step: CompiledStep) -> CompiledStep:
    """Bound a failure step in time, since it runs when the execution's own bound may be over."""
    timeouts = step.definition.timeouts
    if timeouts.total is not None:
        return step
    bounded = replace(timeouts, total=BOUNDED_STEP_TIMEOUT_DEFAULT)
    return replace(step, definition=replace(step.definition, timeouts=bounded))


class CompiledWorkflows:
    """Compiled snapshots by digest; the least recently used is dropped when full."""

    __slots__ = ("_compiled", "_compiler", "_entries_max")

    def __init__(
        self, compiler: ExpressionCompiler, entries_max: int = CACHE_ENTRIES_DEFAULT
    ) -> None:
        """Start empty."""
        self._compiler = compiler
        self._entries_max = entries_max
        self._compiled: OrderedDict[str, CompiledWorkflow] = OrderedDict()

    def get(self, snapshot_json: str, digest: str) -> CompiledWorkflow:
        """Return the snapshot with this digest, compiled once.

        Raises DefinitionInvalidError for a snapshot that this version cannot read.
        """
        workflow = self._compiled.get(digest)
        if workflow is None:
            workflow = self._compiled[digest] = self._compile(snapshot_json, digest)
            while len(self._compiled) > self._entries_max:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(digest)
        return workflow

    def _compile(self, snapshot_json: str, digest: str) -> CompiledWorkflow:
        violations = Violations()
        definition = parse_definition(read_document(snapshot_json).value, violations)
        return compile_workflow(definition, digest, self._compiler, violations)
