"""Batches: capacity is respected, priority ages, applications share, and plans are stable."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from control_plane.core.executions.domain import ExecutionId, StepKey, StepRef
from control_plane.core.scheduling.domain import NodeFacts, NodeId, ReasonCode, Requirement, qualify
from control_plane.core.scheduling.planning import (
    AGING_S_PER_POINT,
    Request,
    RequestKey,
    plan,
    service_order,
)
from control_plane.core.workflows.domain import Affinity, Resources

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _node(number: int, slots: int = 2, cpu_millis: int = 1_000) -> NodeFacts:
    return NodeFacts(
        node_id=NodeId(f"n{number}"),
        name=f"node {number}",
        capabilities={("c", "1"): ""},
        slot_count=slots,
        resources=Resources(cpu_millis=cpu_millis),
    )


def _request(
    number: int, application: str = "a", priority: int = 0, waited_s: float = 0, cpu_millis: int = 0
) -> Request:
    return Request(
        key=RequestKey(ExecutionId(f"e{number:03}"), StepRef(StepKey("s")), 1),
        application_id=application,
        priority=priority,
        queued_at=NOW - timedelta(seconds=waited_s),
        requirement=Requirement(
            "c", "1", Affinity(minimum_resources=Resources(cpu_millis=cpu_millis))
        ),
    )


def _order(requests: list[Request], **running: int) -> list[str]:
    return [one.key.execution_id for one in service_order(requests, NOW, running)]


REQUESTS = st.lists(
    st.builds(
        _request,
        st.integers(0, 999),
        st.sampled_from("abc"),
        st.integers(-100, 100),
        st.integers(0, 3_000),
        st.sampled_from([0, 100, 400, 5_000]),
    ),
    unique_by=lambda request: request.key,
    max_size=40,
)
NODES = st.lists(
    st.builds(_node, st.integers(0, 9), st.integers(0, 4), st.sampled_from([0, 500, 1_000])),
    unique_by=lambda node: node.node_id,
)


@given(REQUESTS, NODES, st.randoms())
def test_a_plan_never_overbooks_and_leaves_nothing_that_fits(
    requests: list[Request], nodes: list[NodeFacts], random: Random
) -> None:
    """Slots and resources hold, every request is answered once, and none waits beside room."""
    result = plan(requests, nodes, NOW)
    used = Counter(one.node_id for one in result.placements)
    cpu: Counter[NodeId] = Counter()
    for one in result.placements:
        cpu[one.node_id] += one.request.requirement.affinity.minimum_resources.cpu_millis
    after = [
        replace(
            node,
            running_count=used[node.node_id],
            reserved=Resources(cpu_millis=cpu[node.node_id]),
        )
        for node in nodes
    ]
    for node in after:
        assert node.running_count <= max(0, node.slot_count)
        assert node.reserved.cpu_millis <= node.resources.cpu_millis
    answered = [one.request.key for one in result.placements]
    answered += [one.request.key for one in result.unplaced]
    assert sorted(answered) == sorted(one.key for one in requests)
    for waiting in result.unplaced:
        for node in after:
            reasons = qualify(node, waiting.request.requirement)
            assert reasons
            assert waiting.reasons[node.node_id] == reasons
    random.shuffle(requests)
    assert plan(requests, nodes, NOW) == result


def test_higher_priority_goes_first_then_the_older() -> None:
    """Equal priorities are served by age."""
    assert _order([_request(1), _request(2, priority=1), _request(3, waited_s=1)]) == [
        "e002",
        "e003",
        "e001",
    ]


def test_the_lowest_priority_overtakes_the_highest_in_the_end() -> None:
    """Aging is bounded: no stream of urgent requests starves an old one."""
    waited_s = 200 * AGING_S_PER_POINT + 1
    assert _order([_request(1, priority=100), _request(2, priority=-100, waited_s=waited_s)]) == [
        "e002",
        "e001",
    ]


@given(
    st.lists(
        st.builds(
            _request,
            st.integers(0, 999),
            st.just("a"),
            st.integers(-100, 100),
            st.integers(0, 9_000),
        ),
        unique_by=lambda one: one.key,
    )
)
def test_whoever_has_waited_out_the_difference_of_priority_goes_first(
    requests: list[Request],
) -> None:
    """Nothing starves: 6 s of waiting make up for a point, so at most 20 min for all of them."""
    order = service_order(requests, NOW, {})
    for earlier, later in pairwise(order):
        lead_s = (later.priority - earlier.priority) * AGING_S_PER_POINT
        waited_longer_s = (later.queued_at - earlier.queued_at).total_seconds()
        assert waited_longer_s >= lead_s


def test_a_burst_of_one_application_does_not_shut_out_another() -> None:
    """Equal requests of two applications alternate, however many one of them has."""
    burst = [_request(n, "a", waited_s=0.001) for n in range(50)]
    single = [_request(900 + n, "b") for n in range(2)]
    order = _order(burst + single)
    assert order.index("e900") <= 2
    assert order.index("e901") <= 4


def test_what_already_runs_counts_for_fairness() -> None:
    """An application that holds the nodes waits behind one that holds none."""
    assert _order([_request(1, "a", waited_s=5), _request(2, "b")], a=10) == ["e002", "e001"]


def test_a_batch_is_spread_over_equal_nodes() -> None:
    """Running attempts lower the score as they are assigned, so nodes fill evenly."""
    result = plan([_request(n) for n in range(4)], [_node(1), _node(2)], NOW)
    assert [one.node_id for one in result.placements] == ["n1", "n2", "n1", "n2"]


def test_process_work_never_exceeds_process_slots() -> None:
    """Slots for inline work, of which there are many, are not given to work in children."""
    small = replace(_node(1), slot_count=66, process_slot_count=2)
    other = replace(_node(2), slot_count=3, process_slot_count=3)
    result = plan([_request(n) for n in range(9)], [small, other], NOW)
    assert Counter(one.node_id for one in result.placements) == {"n1": 2, "n2": 3}
    assert len(result.unplaced) == 4
    inline = replace(small, inline=frozenset({("c", "1")}))
    result = plan([_request(n) for n in range(70)], [inline], NOW)
    assert len(result.placements) == 64


def test_what_no_node_could_ever_do_is_flagged() -> None:
    """A request beyond every node's size is told from one that only has to wait."""
    result = plan([_request(1, cpu_millis=9_000), _request(2)], [_node(1, slots=0)], NOW)
    assert [one.never for one in result.unplaced] == [True, True]
    busy = replace(_node(1), running_count=2)
    (waiting,) = plan([_request(1)], [busy], NOW).unplaced
    assert not waiting.never
    assert waiting.reasons[NodeId("n1")][0].code is ReasonCode.SLOTS_TAKEN
