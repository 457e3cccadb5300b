"""Merges a task's wishes about nodes into its copy of the workflow."""

from typing import Any, Final

from control_plane.core.errors import DocumentInvalidError
from control_plane.core.expressions.values import from_json, to_json
from control_plane.core.workflows.errors import ConstraintsInvalidError
from control_plane.core.workflows.parsing import parse_affinity
from control_plane.core.workflows.reading import Fields, kind_of
from control_plane.core.workflows.violations import Violations

_OVERRIDING: Final = ("node_id", "group")
_MERGING: Final = ("required_labels", "preferred_labels", "minimum_resources")


def merge_constraints(canonical_json: str, constraints_json: str) -> str:
    """Return the snapshot: the definition with the constraints of each step merged in.

    Constraints are an object from step key to affinity. node_id and group override; labels
    and resources merge key by key, the constraint winning. Empty text means none. Raises
    ConstraintsInvalidError for unknown steps or keys and for wrong types.
    """
    constraints = _read(constraints_json)
    if not constraints:
        return canonical_json
    document: Any = from_json(canonical_json)
    steps = {step["key"]: step for step in document["steps"]}
    _check(constraints, steps)
    for key, wanted in constraints.items():
        steps[key]["affinity"] = _merged(steps[key].get("affinity") or {}, wanted)
    return to_json(document)


def _read(constraints_json: str) -> dict[str, Any]:
    if not constraints_json.strip():
        return {}
    try:
        constraints = from_json(constraints_json)
    except DocumentInvalidError as error:
        raise ConstraintsInvalidError.of_field("step_constraints", str(error)) from error
    if not isinstance(constraints, dict):
        raise ConstraintsInvalidError.of_field(
            "step_constraints",
            f"expected an object from step key to affinity, not {kind_of(constraints)}",
        )
    return constraints


def _check(constraints: dict[str, Any], steps: dict[str, Any]) -> None:
    violations = Violations()
    for key, wanted in constraints.items():
        path = f"step_constraints.{key}"
        if key not in steps:
            known = ", ".join(list(steps)[:20])
            violations.add(path, f"there is no step {key!r}; the steps are {known}", "UNKNOWN_STEP")
        elif wanted is None:
            violations.add(path, "expected an object, not null")
        else:
            parse_affinity(Fields(wanted, path, violations))
    if violations:
        raise ConstraintsInvalidError.of_fields(violations.all())


def _merged(affinity: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    overriding = {name: wanted[name] for name in _OVERRIDING if wanted.get(name) is not None}
    merging = {
        name: {**(affinity.get(name) or {}), **wanted[name]}
        for name in _MERGING
        if wanted.get(name) is not None
    }
    return {**affinity, **overriding, **merging}
