"""What is said of a step: one sentence for each standing, and a verdict on every node."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from control_plane.core.executions.domain import StepKey, StepRef
from control_plane.core.executions.execution_state import ExecutionStatus
from control_plane.core.executions.step_state import StepStatus
from control_plane.core.scheduling.domain import Management, NodeFacts, NodeId, Requirement
from control_plane.core.scheduling.explaining import StepStanding, explain

_C = Requirement("c", "1")
_AT = datetime(2026, 1, 1, tzinfo=UTC)
_NODE = NodeFacts(NodeId("1"), "one", capabilities={("c", "1"): ""}, slot_count=2)
_WAITING = StepStanding(
    StepRef(StepKey("Cut"), 3),
    ExecutionStatus.RUNNING,
    paused=False,
    step_status=StepStatus.READY,
    attempt_number=1,
    requirement=_C,
    is_parked=True,
    requested_at=_AT,
)


def test_nodes_come_best_first_with_all_their_reasons() -> None:
    """Qualified ones by score, then those that may only be busy, then those that never could."""
    nodes = [
        NodeFacts(NodeId("4"), "other"),
        replace(_NODE, node_id=NodeId("3"), name="full", running_count=2),
        replace(_NODE, node_id=NodeId("2"), name="busy", running_count=1),
        _NODE,
    ]
    found = explain(_WAITING, nodes)
    assert [one.name for one in found.nodes] == ["one", "busy", "full", "other"]
    assert [bool(one.reasons) for one in found.nodes] == [False, False, True, True]
    assert found.nodes[0].points > found.nodes[1].points > found.nodes[2].points == 0
    assert not found.never
    assert "one can take it now" in found.summary


def test_the_sentence_names_cause_since_when_and_what_helps() -> None:
    """For a step that waits for a node, fresh from the nodes as they are."""
    cordoned = replace(_NODE, management=Management.CORDONED)
    assert explain(_WAITING, [cordoned]).summary == (
        "Step Cut[3] waits for a node since 2026-01-01 00:00:00 UTC: Of 1 known nodes none can "
        "take c 1 now; it starts when a suitable one joins, becomes ready or frees capacity."
    )
    impossible = explain(_WAITING, [NodeFacts(NodeId("4"), "other")])
    assert impossible.never
    assert "could ever run c 1 as required" in impossible.summary


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"step_status": StepStatus.SUCCEEDED}, "Step Cut[3] is SUCCEEDED; it waits for nothing."),
        (
            {"execution_status": ExecutionStatus.CANCELED},
            "The execution is CANCELED; step Cut[3] will not run.",
        ),
        (
            {"step_status": StepStatus.RUNNING, "node_name": "one", "dispatched_at": _AT},
            "Attempt 1 of step Cut[3] was given to node one at 2026-01-01 00:00:00 UTC",
        ),
        (
            {"step_status": None, "unfinished": (StepKey("a"), StepKey("b"))},
            "Step Cut[3] waits for a, b to complete.",
        ),
        ({"paused": True}, "Step Cut[3] waits because the execution is paused: resume it."),
        ({"step_status": None}, "Step Cut[3] waits for the engine"),
        (
            {"requirement": None, "is_parked": False, "sentence": "waits for an answer."},
            "Step Cut[3] waits for an answer.",
        ),
    ],
)
def test_each_standing_has_its_sentence(changes: dict[str, Any], words: str) -> None:
    """Ended, running, blocked, paused, on its way, or waiting for a person."""
    assert explain(replace(_WAITING, **changes), [_NODE]).summary.startswith(words)
