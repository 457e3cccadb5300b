"""Inputs against their schema, and step constraints merged into the snapshot."""

import json
from typing import Any

import pytest

from control_plane.core.workflows.constraints import merge_constraints
from control_plane.core.workflows.errors import ConstraintsInvalidError, InputInvalidError
from control_plane.core.workflows.schemas import DocumentSchema

SNAPSHOT = json.dumps(
    {
        "steps": [
            {
                "key": "mark",
                "affinity": {
                    "node_id": "n1",
                    "required_labels": {"zone": "a", "arch": "x"},
                    "minimum_resources": {"cpu_millis": 100, "gpu_count": 1},
                },
            },
            {"key": "bare", "affinity": None},
        ]
    }
)


def _merged(constraints: dict[str, Any]) -> dict[str, Any]:
    document = json.loads(merge_constraints(SNAPSHOT, json.dumps(constraints)))
    return {step["key"]: step["affinity"] for step in document["steps"]}


def test_a_wrong_input_names_its_place() -> None:
    """The path of every violation starts with what the document is."""
    schema = DocumentSchema(
        {
            "required": ["name"],
            "properties": {"list": {"items": {"type": "integer"}}},
        }
    )
    schema.check({"name": 1, "list": [1]}, "input")
    with pytest.raises(InputInvalidError) as caught:
        schema.check({"list": [1, "two"]}, "input")
    assert {one.field for one in caught.value.field_violations} == {"input", "input.list[1]"}
    assert '"name" is a required property' in str(caught.value)


def test_node_and_group_override_labels_and_resources_merge() -> None:
    """The constraint wins key by key, and what it does not name stays."""
    merged = _merged(
        {
            "mark": {
                "node_id": "n2",
                "group": "g",
                "required_labels": {"zone": "b"},
                "preferred_labels": {"disk": "ssd"},
                "minimum_resources": {"cpu_millis": 200},
            },
            "bare": {"group": "h"},
        }
    )
    assert merged == {
        "mark": {
            "node_id": "n2",
            "group": "g",
            "required_labels": {"zone": "b", "arch": "x"},
            "preferred_labels": {"disk": "ssd"},
            "minimum_resources": {"cpu_millis": 200, "gpu_count": 1},
        },
        "bare": {"group": "h"},
    }


@pytest.mark.parametrize("nothing", ["", "  ", "{}"])
def test_no_constraints_leave_the_snapshot_alone(nothing: str) -> None:
    """Its text, and so its digest, is that of the definition."""
    assert merge_constraints(SNAPSHOT, nothing) is SNAPSHOT


@pytest.mark.parametrize(
    ("constraints", "complaint"),
    [
        ("[]", "expected an object from step key"),
        ("{", "no valid JSON"),
        ('{"nope": {}}', "there is no step 'nope'; the steps are mark, bare"),
        ('{"mark": null}', "expected an object, not null"),
        ('{"mark": 3}', "step_constraints.mark: expected an object"),
        ('{"mark": {"zone": "a"}}', "step_constraints.mark.zone: unknown key"),
        ('{"mark": {"node_id": 3}}', "step_constraints.mark.node_id"),
        ('{"mark": {"required_labels": {"a": 1}}}', "required_labels.a"),
        ('{"mark": {"minimum_resources": {"cpu_millis": "1"}}}', "cpu_millis: expected a number"),
        ('{"mark": {"minimum_resources": {"cpu_millis": -1}}}', "out of range"),
    ],
)
def test_wrong_constraints_are_refused(constraints: str, complaint: str) -> None:
    """Unknown steps, unknown keys and wrong types are named."""
    with pytest.raises(ConstraintsInvalidError, match=complaint):
        merge_constraints(SNAPSHOT, constraints)
