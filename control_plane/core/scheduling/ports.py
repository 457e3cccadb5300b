"""What the scheduler asks of storage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from control_plane.core.executions.outcomes import Aftermath
from control_plane.core.scheduling.dispatching import Fate
from control_plane.core.scheduling.domain import NodeFacts, Requirement
from control_plane.core.scheduling.planning import Placement, Plan, Request, RequestKey


@dataclass(frozen=True, slots=True)
class Opening:
    """That up to `count` parked requests with this requirement may find a node now."""

    requirement: Requirement
    count: int


@dataclass(frozen=True, slots=True)
class ClaimedRequests:
    """Requests that are this claim's, the database's time, and when the next will be due."""

    requests: Sequence[Request]
    now: datetime
    next_due_in_s: float | None


@dataclass(frozen=True, slots=True)
class ParkedRequest:
    """A request that found no node: why, in sentences, and whether no known node ever could."""

    key: RequestKey
    reasons: Sequence[str]
    never: bool
    limit_keys: Sequence[str] = ()
    """Keys of which it takes no slot for now, so that others may."""


@dataclass(frozen=True, slots=True)
class ParkedKind:
    """What parked requests ask for, and whether that counts as what no known node could ever do."""

    requirement: Requirement
    never: bool


@dataclass(frozen=True, slots=True)
class ReassessedKind:
    """That what parked requests ask for has become possible, or impossible, and the sentences."""

    requirement: Requirement
    never: bool
    reasons: Sequence[str]


@dataclass(frozen=True, slots=True)
class DispatchedBatch:
    """What a committed dispatch came to, by request, and whom to wake."""

    fates: Mapping[RequestKey, Fate] = field(default_factory=dict)
    node_ids: frozenset[str] = frozenset()
    """Nodes that have commands to be sent."""
    started: frozenset[str] = frozenset()
    """Executions that have begun to run, and so have an event."""
    to_advance: frozenset[str] = frozenset()
    """Executions whose steps failed here, or are about to time out, or may begin."""
    wakes_requests: bool = False
    """Whether requests have become due here, as a limit had slots left for them."""


class Planning(Protocol):
    """Plans taken requests; pure, since a transaction that is repeated asks again."""

    def asks_for_shares(self, requests: Sequence[Request], nodes: Sequence[NodeFacts]) -> bool:
        """Whether the plan depends on how much each application has running."""
        ...

    def plan(
        self, taken: ClaimedRequests, nodes: Sequence[NodeFacts], running: Mapping[str, int]
    ) -> Plan:
        """Return what to dispatch and what to leave waiting."""
        ...

    def park(self, plan: Plan, nodes: Sequence[NodeFacts]) -> Sequence[ParkedRequest]:
        """Put into words why what is left has to wait."""
        ...


@dataclass(frozen=True, slots=True)
class Served:
    """A committed round: what was taken, what was planned, and what came of it."""

    taken: ClaimedRequests
    plan: Plan
    done: DispatchedBatch
    woken: Aftermath = field(default_factory=Aftermath)
    """Who may start as something that was parked takes no slot of a limit."""


class SchedulingStore(Protocol):
    """Requests for nodes, the nodes, and attempts as they begin."""

    async def serve(
        self, count_max: int, openings: Sequence[Opening], planning: Planning
    ) -> Served | None:
        """Take requests as `claim` does, plan, dispatch and park them, in one transaction.

        None if the database refuses the batch for one of them, so that each has to be served
        by itself. Raises only what strikes all alike.
        """
        ...

    async def claim(
        self, claim_id: str, count_max: int, openings: Sequence[Opening]
    ) -> ClaimedRequests:
        """Take up to `count_max` requests that are due, and parked ones for the openings.

        They are this claim's until its time is over, then anybody's. Those of one opening
        come in the order of service, those of paused executions stay parked.
        """
        ...

    async def nodes(self) -> Sequence[NodeFacts]:
        """Return all nodes as they are now."""
        ...

    async def running_by_application(self) -> Mapping[str, int]:
        """Count each application's live attempts."""
        ...

    async def dispatch(self, claim_id: str, placements: Sequence[Placement]) -> DispatchedBatch:
        """Make proposals facts, in one transaction, as far as everything still allows it.

        Repeats count once. A placement that the database refuses is left to its claim's end,
        and the others go on without it. Raises only what strikes all alike.
        """
        ...

    async def park(self, claim_id: str, requests: Sequence[ParkedRequest]) -> Aftermath:
        """Put claimed requests back, with the reasons, until there is an opening for them."""
        ...

    async def parked_requirements(self) -> Sequence[ParkedKind]:
        """Return what the parked requests ask for, each requirement once."""
        ...

    async def sweep_limits(self) -> Aftermath:
        """Wake whoever waits for a limit that has slots left, should a wake-up be lost."""
        ...

    async def reassess(self, kinds: Sequence[ReassessedKind]) -> None:
        """Say of all parked requests of these kinds anew whether a node could ever meet them."""
        ...
