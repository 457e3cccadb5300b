"""What CreateTask is warned of: steps that no known node could ever run, freshly known."""

import json
from collections.abc import Sequence

from control_plane.adapters.outbound.cel import CelCompiler
from control_plane.core.scheduling.domain import NodeFacts, NodeId
from control_plane.core.scheduling.foresight import Foresight
from control_plane.core.workflows.compiling import CompiledWorkflow, CompiledWorkflows
from foundation.clock import ManualClock

_NODE = NodeFacts(NodeId("1"), "one", capabilities={("c", "1"): ""}, labels={"zone": "a"})


def _workflow(*steps: dict[str, object], digest: str = "d") -> CompiledWorkflow:
    definition = {"name": "w", "version": "1", "input_schema": {}, "steps": list(steps)}
    return CompiledWorkflows(CelCompiler()).get(json.dumps(definition), digest)


def _step(key: str, capability: str = "c", **affinity: object) -> dict[str, object]:
    return {
        "key": key,
        "capability": capability,
        "capability_version": "1",
        "affinity": affinity,
    }


class _Nodes:
    """Counts how often it is asked."""

    def __init__(self, *facts: NodeFacts) -> None:
        self.facts = facts
        self.reads = 0

    async def nodes(self) -> Sequence[NodeFacts]:
        self.reads += 1
        return self.facts


async def test_impossible_steps_are_named_with_the_closest_node() -> None:
    """Approvals need no node; what a busy or better node could do is no reason to warn."""
    approval: dict[str, object] = {"key": "ok", "kind": "approval"}
    labelled = _step("cut", required_labels={"zone": "b"})
    workflow = _workflow(_step("fine"), approval, labelled, _step("odd", "x"))
    full = NodeFacts(NodeId("1"), "one", slot_count=1, running_count=1)
    nodes = _Nodes(
        NodeFacts(
            full.node_id,
            full.name,
            capabilities=_NODE.capabilities,
            labels=_NODE.labels,
            slot_count=1,
            running_count=1,
        )
    )
    first, second = await Foresight(nodes, ManualClock()).warnings(workflow)
    assert first.startswith("Step cut: None of the 1 known nodes could ever run c 1 as required")
    assert "Closest is one: The step needs label zone=b; the node has" in first
    assert second.startswith("Step odd: ")


async def test_good_news_may_be_old_and_bad_news_is_checked() -> None:
    """A burst costs one look every few seconds; a node that has just come is not overlooked."""
    clock, nodes = ManualClock(), _Nodes(_NODE)
    foresight = Foresight(nodes, clock)
    fine, odd = _workflow(_step("a")), _workflow(_step("a", "x"), digest="e")
    for _ in range(50):
        assert await foresight.warnings(fine) == ()
        assert await foresight.warnings(odd)
    assert nodes.reads == 1

    clock.advance(1.0)
    assert await foresight.warnings(fine) == ()
    assert nodes.reads == 1
    nodes.facts = (NodeFacts(NodeId("2"), "two", capabilities={("x", "1"): ""}),)
    assert await foresight.warnings(odd) == ()
    assert nodes.reads == 2
