"""Everything that is checked before a definition is published."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from control_plane.core.expressions.ports import ExpressionCompiler
from control_plane.core.expressions.values import to_json
from control_plane.core.workflows.compiling import CompiledWorkflow, compile_workflow
from control_plane.core.workflows.document import read_document
from control_plane.core.workflows.domain import (
    BOUNDED_STEP_TIMEOUT_DEFAULT,
    RUN_TIMEOUT_DEFAULT,
    StepKind,
    WorkflowDefinition,
)
from control_plane.core.workflows.parsing import parse_definition
from control_plane.core.workflows.violations import Violations

CapabilityKnown = Callable[[str, str], bool]
"""Whether some node has declared this capability in this version."""


@dataclass(frozen=True, slots=True)
class CheckedDefinition:
    """A definition that may be published.

    `canonical_json` is the same for YAML and JSON of the same content, however it is laid
    out; `digest` is its SHA-256 in hexadecimal. `warnings` refuse nothing.
    """

    workflow: CompiledWorkflow
    canonical_json: str
    digest: str
    warnings: tuple[str, ...]

    @property
    def definition(self) -> WorkflowDefinition:
        """What the definition says."""
        return self.workflow.definition


def check_definition(
    text: str, compiler: ExpressionCompiler, is_known: CapabilityKnown
) -> CheckedDefinition:
    """Read, check and compile a definition.

    Raises DefinitionInvalidError naming every wrong key, with its line and column.
    """
    source = read_document(text)
    violations = Violations(source.places)
    definition = parse_definition(source.value, violations)
    canonical_json = to_json(source.value)
    digest = digest_of(canonical_json)
    workflow = compile_workflow(definition, digest, compiler, violations)
    return CheckedDefinition(workflow, canonical_json, digest, _warnings(definition, is_known))


def digest_of(canonical_json: str) -> str:
    """Return the SHA-256 of canonical text, in hexadecimal."""
    return hashlib.sha256(canonical_json.encode()).hexdigest()


def _warnings(definition: WorkflowDefinition, is_known: CapabilityKnown) -> tuple[str, ...]:
    warnings = list(_time_warnings(definition))
    for step in definition.steps:
        match step.kind:
            case StepKind.APPROVAL:
                continue
            case StepKind.CAPABILITY:
                if not is_known(step.capability, step.capability_version):
                    warnings.append(
                        f"step {step.key}: no node has declared {step.capability} "
                        f"{step.capability_version} yet; tasks will wait for one"
                    )
            case _:
                assert_never(step.kind)
    return tuple(warnings)


def _time_warnings(definition: WorkflowDefinition) -> Iterator[str]:
    """Name time-outs that can never be reached, since a wider one ends first."""
    for step in definition.steps:
        if step.key == definition.failure_step:  # It runs after the workflow's own time.
            continue
        bounds = {
            "queue": step.timeouts.queue,
            "run": _chosen(step.timeouts.run, RUN_TIMEOUT_DEFAULT),
            "total": _chosen(step.timeouts.total, BOUNDED_STEP_TIMEOUT_DEFAULT),
        }
        for name, bound in bounds.items():
            if bound is not None and bound > definition.timeout:
                yield (
                    f"step {step.key}: timeouts.{name} ({bound}) is longer than the workflow's "
                    f"timeout ({definition.timeout}), which ends first"
                )
        run, total = bounds["run"], bounds["total"]
        if run is not None and total is not None and run > total:
            yield (
                f"step {step.key}: timeouts.run ({run}) is longer than timeouts.total ({total}), "
                "which ends first"
            )


def _chosen(timeout: timedelta | None, default: timedelta) -> timedelta | None:
    """Leave out what nobody chose: a default says nothing about what was meant."""
    return None if timeout == default else timeout
