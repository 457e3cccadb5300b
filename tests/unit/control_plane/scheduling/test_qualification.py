"""Every filter with its sentence, the score, and the choice among equals."""

import re
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.core.scheduling.domain import (
    Management,
    NodeFacts,
    NodeId,
    ReasonCode,
    Requirement,
    Runtime,
    choose,
    could_ever_qualify,
    free_slot_count,
    idle_slot_count,
    qualify,
    score,
    waiting_sentence,
)
from control_plane.core.workflows.domain import Affinity, Resources

NODE = NodeFacts(
    node_id=NodeId("n1"),
    name="one",
    group="media",
    capabilities={("mark", "1"): ""},
    labels={"zone": "a"},
    slot_count=2,
    resources=Resources(1_000, 2**30, 2**40, 1),
)


def _need(**affinity: Any) -> Requirement:
    return Requirement("mark", "1", Affinity(**affinity))


def _resources(**amounts: int) -> Requirement:
    return _need(minimum_resources=Resources(**amounts))


@pytest.mark.parametrize(
    ("node", "requirement", "code", "sentence"),
    [
        (NODE, _need(node_id="n2"), ReasonCode.OTHER_NODE_PINNED, "pinned to node n2"),
        (NODE, _need(group="cpu"), ReasonCode.OTHER_GROUP, "group cpu; this node's group is media"),
        (replace(NODE, group=""), _need(group="x"), ReasonCode.OTHER_GROUP, "has no group"),
        (NODE, Requirement("mark", "2"), ReasonCode.CAPABILITY_MISSING, "mark 2; it offers 1"),
        (NODE, Requirement("x", "1"), ReasonCode.CAPABILITY_MISSING, "offers no version of it"),
        (
            replace(NODE, capabilities={("mark", "1"): "its input schema differs"}),
            _need(),
            ReasonCode.CAPABILITY_REFUSED,
            "not used: its input schema differs",
        ),
        (NODE, _need(required_labels={"zone": "b"}), ReasonCode.LABEL_MISSING, "has zone=a"),
        (NODE, _need(required_labels={"gpu": "b"}), ReasonCode.LABEL_MISSING, "no such label"),
        (NODE, _resources(cpu_millis=1_001), ReasonCode.RESOURCES_TOO_SMALL, "needs 1001 of CPU"),
        (NODE, _resources(gpu_count=2), ReasonCode.RESOURCES_TOO_SMALL, "the node has 1"),
        (replace(NODE, slot_count=0), _need(), ReasonCode.NO_SLOTS, "no slots"),
        (
            replace(NODE, management=Management.DRAINING),
            _need(),
            ReasonCode.NOT_ACTIVE,
            "is draining",
        ),
        (
            replace(NODE, runtime=Runtime.NOT_READY, not_ready_reason="disk full"),
            _need(),
            ReasonCode.NOT_READY,
            "is not ready: disk full",
        ),
        (replace(NODE, ineligible_because="old"), _need(), ReasonCode.NOT_ELIGIBLE, "use.*: old"),
        (replace(NODE, heartbeat_age_s=None), _need(), ReasonCode.HEARTBEAT_OLD, "never heard"),
        (replace(NODE, heartbeat_age_s=15.5), _need(), ReasonCode.HEARTBEAT_OLD, "16 s ago; 15 s"),
        (replace(NODE, running_count=2), _need(), ReasonCode.SLOTS_TAKEN, "All 2 slots"),
        (
            replace(
                NODE, slot_count=9, running_count=2, process_slot_count=2, process_running_count=2
            ),
            _need(),
            ReasonCode.SLOTS_TAKEN,
            "All 2 process slots",
        ),
        (
            replace(
                NODE,
                slot_count=5,
                running_count=3,
                process_slot_count=2,
                inline=frozenset({("mark", "1")}),
            ),
            _need(),
            ReasonCode.SLOTS_TAKEN,
            "All 3 inline slots",
        ),
        (
            replace(NODE, reserved=Resources(cpu_millis=600)),
            _resources(cpu_millis=500),
            ReasonCode.RESOURCES_TAKEN,
            "needs 500 of CPU .* 400 of 1000 are free",
        ),
        (
            replace(NODE, reserved=Resources(cpu_millis=1)),
            _resources(cpu_millis=1_000),
            ReasonCode.RESOURCES_TAKEN,
            "needs 1000 of CPU .* 999 of 1000 are free",
        ),
    ],
)
def test_each_filter_has_its_reason(
    node: NodeFacts, requirement: Requirement, code: ReasonCode, sentence: str
) -> None:
    """A node that fails one filter is told exactly that, in a sentence."""
    (reason,) = qualify(node, requirement)
    assert reason.code is code
    assert re.search(sentence, reason.sentence)
    assert could_ever_qualify([node], requirement) is reason.is_passing


def test_a_suitable_node_has_no_reasons() -> None:
    """Limits themselves are still allowed."""
    need = _need(
        node_id="n1",
        group="media",
        required_labels={"zone": "a"},
        minimum_resources=Resources(1_000, 2**30, 2**40, 1),
    )
    assert qualify(replace(NODE, heartbeat_age_s=15.0, running_count=1), need) == ()


def test_slots_of_one_kind_are_no_concern_of_the_other() -> None:
    """Process work waits for process slots alone, inline work for the rest alone."""
    node = replace(
        NODE,
        capabilities={("mark", "1"): "", ("noop", "1"): ""},
        slot_count=66,
        running_count=2,
        process_slot_count=2,
        process_running_count=2,
        inline=frozenset({("noop", "1")}),
    )
    assert free_slot_count(node, _need()) == 0
    assert free_slot_count(node, Requirement("noop", "1")) == 64
    assert idle_slot_count(node) == 0
    node = replace(node, running_count=65, process_running_count=1)
    assert free_slot_count(node, _need()) == 1
    assert free_slot_count(node, Requirement("noop", "1")) == 0


def test_all_reasons_are_given_at_once() -> None:
    """Nobody has to mend one to learn of the next."""
    node = replace(NODE, management=Management.CORDONED, running_count=2)
    codes = [one.code for one in qualify(node, _need(group="x"))]
    assert codes == [ReasonCode.OTHER_GROUP, ReasonCode.NOT_ACTIVE, ReasonCode.SLOTS_TAKEN]


def test_the_score_is_labels_then_weight_then_load() -> None:
    """The formula as specified, with weight 100 for anything not positive."""
    need = _need(preferred_labels={"zone": "a", "disk": "ssd"})
    assert score(replace(NODE, weight=7, running_count=3), need) == 1_000_000 + 7_000 - 30_000
    assert score(replace(NODE, weight=-1), _need()) == 100_000


IDS = st.integers(0, 30).map(lambda n: NodeId(f"n{n:02}"))
NODES = st.lists(
    st.builds(
        lambda node_id, weight, running, zone, up: replace(
            NODE, node_id=node_id, weight=weight, running_count=running, labels={"zone": zone},
            slot_count=4, runtime=Runtime.READY if up else Runtime.SILENT,
        ),
        IDS, st.integers(-5, 5), st.integers(0, 5), st.sampled_from("ab"), st.booleans(),
    ),
    unique_by=lambda node: node.node_id,
)  # fmt: skip


@given(NODES, st.randoms())
def test_the_choice_is_the_best_whatever_the_order(nodes: list[NodeFacts], random: Random) -> None:
    """Qualified, then the highest score, then the smallest id, independent of the order given."""
    need = _need(preferred_labels={"zone": "a"})
    chosen = choose(nodes, need)
    shuffled = list(nodes)
    random.shuffle(shuffled)
    assert choose(shuffled, need) == chosen
    qualified = [node for node in nodes if not qualify(node, need)]
    assert (chosen is None) == (not qualified)
    if chosen is not None:
        assert chosen in qualified
        for other in qualified:
            mine, its = score(chosen, need), score(other, need)
            assert mine > its or (mine == its and chosen.node_id <= other.node_id)


@pytest.mark.parametrize(
    ("nodes", "need", "words"),
    [
        ([], _need(), "No node is known; enrol one that offers mark 1."),
        ([NODE], _need(group="x"), "could ever run mark 1"),
        ([replace(NODE, running_count=2)], _need(), "none can take mark 1 now; it starts when"),
    ],
)
def test_waiting_has_one_sentence(nodes: list[NodeFacts], need: Requirement, words: str) -> None:
    """Cause and remedy, for no nodes, unsuitable nodes and busy nodes."""
    assert words in waiting_sentence(nodes, need)


def test_the_allowed_silence_is_a_parameter() -> None:
    """The heartbeat's allowance is shorter in the test profile."""
    (reason,) = qualify(replace(NODE, heartbeat_age_s=2.0), _need(), heartbeat_ttl_s=1.5)
    assert reason.code is ReasonCode.HEARTBEAT_OLD
