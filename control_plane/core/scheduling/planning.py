"""Places a batch of requests on nodes: by priority with aging, fairly between applications.

A plan is a proposal: it accounts for slots and resources as it assigns, so that a batch
does not propose the same free slot twice, and dispatch checks again.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import heapify, heappop, heapreplace
from typing import Final

from control_plane.core.executions.domain import ExecutionId, StepRef
from control_plane.core.scheduling.domain import (
    HEARTBEAT_TTL_S,
    NodeFacts,
    NodeId,
    Reason,
    Requirement,
    could_ever_qualify,
    qualify,
    score,
    takes_process_slot,
)
from control_plane.core.scheduling.limits import LimitUse
from control_plane.core.workflows.domain import Affinity, Resources

# One point of priority for every 6 s of waiting: the lowest priority (-100) overtakes a new
# request of the highest (100) after 20 minutes, so nothing starves.
AGING_S_PER_POINT: Final = 6.0
# One point less for every request of the same application that is served before: of two
# applications with equal requests, each gets every other slot.
_FAIRNESS_POINTS: Final = 1.0


@dataclass(frozen=True, slots=True, order=True)
class RequestKey:
    """Which attempt of which step instance is asked for."""

    execution_id: ExecutionId
    step: StepRef
    attempt_number: int


@dataclass(frozen=True, slots=True)
class Request:
    """A request that is due; `queued_at` is when its wait for a node began."""

    key: RequestKey
    application_id: str
    priority: int
    queued_at: datetime
    requirement: Requirement
    limits: tuple[LimitUse, ...] = ()
    """The slots of limits that it needs."""
    was_parked: bool = False
    """Whether it is parked already: if it finds no node now either, nothing is written."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A proposal: this attempt to this node."""

    request: Request
    node_id: NodeId


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A request that stays, with each node's reasons; `never` if no known node could ever do it."""

    request: Request
    reasons: Mapping[NodeId, tuple[Reason, ...]]
    never: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What to dispatch, in order of service, and what to leave waiting."""

    placements: tuple[Placement, ...]
    unplaced: tuple[Unplaced, ...]


def plan(
    requests: Sequence[Request],
    nodes: Sequence[NodeFacts],
    now: datetime,
    *,
    running_by_application: Mapping[str, int] | None = None,
    heartbeat_ttl_s: float = HEARTBEAT_TTL_S,
) -> Plan:
    """Place the requests; the same facts always give the same plan."""
    board = _Board(nodes, heartbeat_ttl_s)
    placements: list[Placement] = []
    waiting: list[Request] = []
    for request in service_order(requests, now, running_by_application or {}):
        node_id = board.take(request.requirement)
        if node_id is None:
            waiting.append(request)
        else:
            placements.append(Placement(request, node_id))
    return Plan(tuple(placements), tuple(board.explain(request) for request in waiting))


def service_order(
    requests: Sequence[Request], now: datetime, running_by_application: Mapping[str, int]
) -> list[Request]:
    """Return the requests in the order in which they are to be served."""
    served = defaultdict(int, running_by_application)
    ranked: list[tuple[float, datetime, RequestKey, Request]] = []
    for points, request in sorted(
        ((_aged_priority(one, now), one) for one in requests),
        key=lambda pair: (-pair[0], pair[1].queued_at, pair[1].key),
    ):
        rank = points - _FAIRNESS_POINTS * served[request.application_id]
        ranked.append((-rank, request.queued_at, request.key, request))
        served[request.application_id] += 1
    return [entry[3] for entry in sorted(ranked, key=lambda entry: entry[:3])]


def _aged_priority(request: Request, now: datetime) -> float:
    waited_s = max(0.0, (now - request.queued_at).total_seconds())
    return request.priority + waited_s / AGING_S_PER_POINT


class _Board:
    """The nodes with what this plan has assigned so far.

    Requests of a batch mostly ask for the same thing, so each distinct requirement keeps a
    heap of the nodes that qualified. Assigning only ever lowers a score and fills a node:
    an entry that is out of date is corrected, or dropped, when it comes to the top.
    """

    def __init__(self, nodes: Sequence[NodeFacts], heartbeat_ttl_s: float) -> None:
        self._nodes = {node.node_id: node for node in nodes}
        self._heartbeat_ttl_s = heartbeat_ttl_s
        self._heaps: dict[tuple[object, ...], list[tuple[int, NodeId]]] = {}
        self._reasons: dict[tuple[object, ...], Mapping[NodeId, tuple[Reason, ...]]] = {}

    def take(self, requirement: Requirement) -> NodeId | None:
        """Reserve the best node that has room, and return its id."""
        heap = self._heap(requirement)
        while heap:
            noted, node_id = heap[0]
            node = self._nodes[node_id]
            if qualify(node, requirement, self._heartbeat_ttl_s):
                heappop(heap)
            elif (current := -score(node, requirement)) != noted:
                heapreplace(heap, (current, node_id))
            else:
                self._nodes[node_id] = with_one_more(node, requirement)
                return node_id
        return None

    def _heap(self, requirement: Requirement) -> list[tuple[int, NodeId]]:
        identity = _identity(requirement)
        if identity not in self._heaps:
            heap = [
                (-score(node, requirement), node.node_id)
                for node in self._nodes.values()
                if not qualify(node, requirement, self._heartbeat_ttl_s)
            ]
            heapify(heap)
            self._heaps[identity] = heap
        return self._heaps[identity]

    def explain(self, request: Request) -> Unplaced:
        """Say why each node did not get the request, after all that was assigned."""
        requirement = request.requirement
        identity = _identity(requirement)
        if identity not in self._reasons:
            self._reasons[identity] = {
                node.node_id: qualify(node, requirement, self._heartbeat_ttl_s)
                for node in self._nodes.values()
            }
        never = not could_ever_qualify(self._nodes.values(), requirement)
        return Unplaced(request, self._reasons[identity], never)


def _identity(requirement: Requirement) -> tuple[object, ...]:
    affinity: Affinity = requirement.affinity
    return (
        requirement.capability,
        requirement.capability_version,
        affinity.node_id,
        affinity.group,
        tuple(sorted(affinity.required_labels.items())),
        tuple(sorted(affinity.preferred_labels.items())),
        affinity.minimum_resources,
    )


def with_one_more(node: NodeFacts, requirement: Requirement) -> NodeFacts:
    """Return the node with one slot of the right kind and the asked resources taken."""
    reserved, taken = node.reserved, requirement.affinity.minimum_resources
    return replace(
        node,
        running_count=node.running_count + 1,
        process_running_count=node.process_running_count + takes_process_slot(node, requirement),
        reserved=Resources(
            reserved.cpu_millis + taken.cpu_millis,
            reserved.memory_bytes + taken.memory_bytes,
            reserved.disk_bytes + taken.disk_bytes,
            reserved.gpu_count + taken.gpu_count,
        ),
    )
