"""What becomes of a proposed placement, from what is locked."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from control_plane.core.executions.domain import ExecutionId, StepKey, StepRef
from control_plane.core.executions.execution_state import ClosingReason, ExecutionStatus
from control_plane.core.executions.step_state import StepStatus
from control_plane.core.scheduling.dispatching import Fate, LockedRequest, judge
from control_plane.core.scheduling.domain import Management, NodeFacts, NodeId, Requirement
from control_plane.core.scheduling.limits import LimitBoard, LimitState, LimitUse
from control_plane.core.scheduling.planning import Placement, Request, RequestKey
from control_plane.core.scheduling.requirements import affinity_to_json, requirement_from
from control_plane.core.workflows.domain import ANYWHERE, Affinity, Resources

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_NODE = NodeFacts(
    NodeId("n"), "n", capabilities={("c", "1"): ""}, slot_count=2, resources=Resources(1_000)
)


def _locked(number: int = 1, *, affinity: Affinity = ANYWHERE, **fields: Any) -> LockedRequest:
    key = RequestKey(ExecutionId(f"e{number}"), StepRef(StepKey("s")), 1)
    request = Request(key, "a", 0, _NOW, Requirement("c", "1", affinity))
    plain = LockedRequest(
        placement=Placement(request, NodeId("n")),
        execution_status=ExecutionStatus.QUEUED,
        closing_as=None,
        paused=False,
        is_failure_step=False,
        step_status=StepStatus.READY,
        step_attempt_number=1,
        step_deadline_at=None,
    )
    return replace(plain, **fields)


def _fate(one: LockedRequest, node: NodeFacts = _NODE) -> Fate:
    (fate,) = judge([one], {NodeId("n"): node}, _NOW, LimitBoard()).fates.values()
    return fate


def test_a_request_that_everything_allows_is_dispatched() -> None:
    """The plain case."""
    assert _fate(_locked()) is Fate.DISPATCHED


@pytest.mark.parametrize(
    ("fields", "fate"),
    [
        ({"execution_status": ExecutionStatus.CANCELING}, Fate.VOIDED),
        ({"execution_status": ExecutionStatus.SUCCEEDED}, Fate.VOIDED),
        ({"closing_as": ClosingReason.FAILED}, Fate.VOIDED),
        ({"closing_as": ClosingReason.FAILED, "is_failure_step": True}, Fate.DISPATCHED),
        ({"step_status": StepStatus.RUNNING}, Fate.VOIDED),
        ({"step_attempt_number": 2}, Fate.VOIDED),
        ({"attempt_node_id": NodeId("other")}, Fate.KNOWN),
        ({"attempt_node_id": NodeId("n"), "step_status": StepStatus.SUCCEEDED}, Fate.KNOWN),
        ({"paused": True}, Fate.PAUSED),
        ({"paused": True, "step_status": StepStatus.CANCELED}, Fate.VOIDED),
        ({"step_deadline_at": _NOW}, Fate.LATE),
        ({"step_deadline_at": _NOW + timedelta(seconds=1)}, Fate.DISPATCHED),
        ({"input_problem": "input.x is wrong"}, Fate.INPUT_INVALID),
        ({"input_problem": "input.x is wrong", "paused": True}, Fate.PAUSED),
    ],
)
def test_each_obstacle_has_its_fate(fields: dict[str, Any], fate: Fate) -> None:
    """What stands in the way decides; an attempt that is there comes before all else."""
    assert _fate(_locked(**fields)) is fate


def test_a_node_that_does_not_qualify_now_is_crowded() -> None:
    """Cordoned, or not there any more: another node is looked for."""
    assert _fate(_locked(), replace(_NODE, management=Management.CORDONED)) is Fate.CROWDED
    assert list(judge([_locked()], {}, _NOW, LimitBoard()).fates.values()) == [Fate.CROWDED]


def test_a_batch_takes_no_more_than_there_is() -> None:
    """Slots and resources that an earlier item of the batch takes are gone for later ones."""
    nodes = {NodeId("n"): _NODE}
    slots = judge([_locked(number) for number in range(3)], nodes, _NOW, LimitBoard()).fates
    assert list(slots.values()) == [Fate.DISPATCHED, Fate.DISPATCHED, Fate.CROWDED]

    big = Affinity(minimum_resources=Resources(cpu_millis=600))
    wanted = [_locked(number, affinity=big) for number in range(2)]
    cores = judge(wanted, nodes, _NOW, LimitBoard()).fates
    assert list(cores.values()) == [Fate.DISPATCHED, Fate.CROWDED]


def test_what_is_not_dispatched_takes_nothing() -> None:
    """A voided request leaves the last slot to the next one."""
    one_slot = {NodeId("n"): replace(_NODE, slot_count=1)}
    fates = judge([_locked(1, paused=True), _locked(2)], one_slot, _NOW, LimitBoard()).fates
    assert list(fates.values()) == [Fate.PAUSED, Fate.DISPATCHED]


@pytest.mark.parametrize(
    "affinity",
    [
        ANYWHERE,
        Affinity(node_id="n", group="g"),
        Affinity(required_labels={"zone": "ü"}, preferred_labels={"disk": "ssd"}),
        Affinity(minimum_resources=Resources(1, 2, 3, 4)),
    ],
)
def test_a_requirement_survives_being_stored(affinity: Affinity) -> None:
    """What was asked for is read back the same."""
    text = affinity_to_json(affinity)
    assert requirement_from("c", "1", text) == Requirement("c", "1", affinity)


def _limited(one: LockedRequest, use: LimitUse) -> LockedRequest:
    request = replace(one.placement.request, limits=(use,))
    return replace(one, placement=replace(one.placement, request=request))


def test_a_limit_is_asked_after_the_node_and_holds_back_what_it_has_no_slot_for() -> None:
    """Two of three start on a key of two; what is kept back takes no slot of the node."""
    use = LimitUse("k", "Key 'k'", 2)
    limits = LimitBoard({"k": LimitState()})
    requests = [_limited(_locked(number), use) for number in range(3)]
    nodes = {NodeId("n"): replace(_NODE, slot_count=3)}
    judged = judge([*requests, _locked(3)], nodes, _NOW, limits)
    assert list(judged.fates.values()) == [
        Fate.DISPATCHED,
        Fate.DISPATCHED,
        Fate.LIMITED,
        Fate.DISPATCHED,
    ]
    (wait,) = judged.waits.values()
    assert "2 of 2 slots are taken" in wait.sentence
    assert limits.with_room() == []
