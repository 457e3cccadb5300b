"""What becomes of a proposed placement, once everything that it rests on is locked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from control_plane.core.executions.execution_state import ClosingReason, ExecutionStatus
from control_plane.core.executions.step_state import StepStatus
from control_plane.core.scheduling.domain import HEARTBEAT_TTL_S, NodeFacts, NodeId, qualify
from control_plane.core.scheduling.limits import LimitBoard, LimitWait
from control_plane.core.scheduling.planning import Placement, RequestKey, with_one_more

_LIVE: Final = frozenset({ExecutionStatus.CREATED, ExecutionStatus.QUEUED, ExecutionStatus.RUNNING})


class Fate(StrEnum):
    """What a dispatch does with a request."""

    DISPATCHED = "DISPATCHED"
    KNOWN = "KNOWN"
    """The attempt is there already: the request is completed, its node woken again."""
    VOIDED = "VOIDED"
    """Nothing waits for the attempt any more."""
    PAUSED = "PAUSED"
    CROWDED = "CROWDED"
    """The node can't take it any more: another one is chosen, at once."""
    LIMITED = "LIMITED"
    """A limit has no slot for it: it waits for one."""
    LATE = "LATE"
    """Its queue time is over: the engine is about to time the step out."""
    INPUT_INVALID = "INPUT_INVALID"
    """The input breaks the capability's schema: the step fails."""
    LOST = "LOST"
    """The claim was taken over by somebody else."""


@dataclass(frozen=True, slots=True)
class LockedRequest:
    """A request under its claim's lock, with its execution and step as stored.

    `attempt_node_id` is the node of the attempt that is there already, if any;
    `input_problem` is why the input breaks the capability's schema, empty where it does not.
    """

    placement: Placement
    execution_status: ExecutionStatus
    closing_as: ClosingReason | None
    paused: bool
    is_failure_step: bool
    step_status: StepStatus
    step_attempt_number: int
    step_deadline_at: datetime | None
    attempt_node_id: NodeId | None = None
    input_problem: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What becomes of each request, and what the LIMITED ones wait for."""

    fates: Mapping[RequestKey, Fate]
    waits: Mapping[RequestKey, LimitWait]


def judge(
    requests: Sequence[LockedRequest],
    nodes: Mapping[NodeId, NodeFacts],
    now: datetime,
    limits: LimitBoard,
    heartbeat_ttl_s: float = HEARTBEAT_TTL_S,
) -> Judgement:
    """Decide the requests in this order, none of which occurs twice.

    `nodes` and the keys of `limits` are locked, too; what is dispatched here takes of them
    what it needs, so that a batch never takes more than there is.
    """
    left = dict(nodes)
    fates: dict[RequestKey, Fate] = {}
    waits: dict[RequestKey, LimitWait] = {}
    for one in requests:
        placement = one.placement
        requirement = placement.request.requirement
        fate = _fate_of_step(one, now)
        if fate is Fate.DISPATCHED:
            node = left.get(placement.node_id)
            if node is None or qualify(node, requirement, heartbeat_ttl_s):
                fate = Fate.CROWDED
            elif (wait := limits.take(placement.request.limits, now)) is not None:
                fate = Fate.LIMITED
                waits[placement.request.key] = wait
            else:
                left[placement.node_id] = with_one_more(node, requirement)
        fates[placement.request.key] = fate
    return Judgement(fates, waits)


def _fate_of_step(one: LockedRequest, now: datetime) -> Fate:
    """Decide as far as the node does not matter."""
    if one.attempt_node_id is not None:
        return Fate.KNOWN
    is_live = one.execution_status in _LIVE
    may_start = one.closing_as is None or one.is_failure_step
    is_asked_for = (
        one.step_status is StepStatus.READY
        and one.step_attempt_number == one.placement.request.key.attempt_number
    )
    if not (is_live and may_start and is_asked_for):
        return Fate.VOIDED
    if one.paused:
        return Fate.PAUSED
    if one.step_deadline_at is not None and now >= one.step_deadline_at:
        return Fate.LATE
    return Fate.INPUT_INVALID if one.input_problem else Fate.DISPATCHED
