"""The scheduler over a store that only answers: what it claims, remembers and forgets."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from control_plane.core.executions.domain import ExecutionId, StepKey, StepRef
from control_plane.core.executions.outcomes import Aftermath
from control_plane.core.scheduling.application import PARKED_SWEEP_INTERVAL_S, Scheduler
from control_plane.core.scheduling.dispatching import Fate
from control_plane.core.scheduling.domain import NodeFacts, NodeId, Requirement
from control_plane.core.scheduling.planning import Placement, Plan, Request, RequestKey
from control_plane.core.scheduling.ports import (
    ClaimedRequests,
    DispatchedBatch,
    Opening,
    ParkedKind,
    ParkedRequest,
    Planning,
    ReassessedKind,
    Served,
)
from control_plane.core.wakeups import LocalHints
from foundation.clock import ManualClock
from foundation.ids import SequentialIds

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_C, _D = Requirement("c", "1"), Requirement("d", "1")


def _node(free: int, name: str = "n", capability: str = "c") -> NodeFacts:
    return NodeFacts(
        NodeId(name), name, capabilities={(capability, "1"): ""}, slot_count=free, running_count=0
    )


def _request(number: int, requirement: Requirement = _C, application: str = "a") -> Request:
    key = RequestKey(ExecutionId(f"e{number}"), StepRef(StepKey("s")), 1)
    return Request(key, application, 0, _NOW, requirement)


class _Store:
    """Hands out what a test prepared, and remembers what it was told."""

    def __init__(self) -> None:
        self.claimable: list[Request] = []
        self.node_facts: list[NodeFacts] = []
        self.known_parked: list[ParkedKind] = []
        self.reassessed: list[ReassessedKind] = []
        self.openings: list[list[Opening]] = []
        self.placed: list[Placement] = []
        self.parked: list[ParkedRequest] = []
        self.crowded = self.refuses = False
        self.node_reads = self.sweeps = self.share_reads = 0

    async def serve(
        self, count_max: int, openings: Sequence[Opening], planning: Planning
    ) -> Served | None:
        if self.refuses:
            return None
        taken = await self.claim("", count_max, openings)
        if not taken.requests:
            return Served(taken, Plan((), ()), DispatchedBatch())
        nodes = await self.nodes()
        running: Mapping[str, int] = {}
        if planning.asks_for_shares(taken.requests, nodes):
            running = await self.running_by_application()
        plan = planning.plan(taken, nodes, running)
        await self.park("", planning.park(plan, nodes))
        return Served(taken, plan, await self.dispatch("", plan.placements))

    async def claim(
        self, claim_id: str, count_max: int, openings: Sequence[Opening]
    ) -> ClaimedRequests:
        self.openings.append(list(openings))
        taken, self.claimable = self.claimable, []
        return ClaimedRequests(taken, _NOW, 7.0)

    async def nodes(self) -> Sequence[NodeFacts]:
        self.node_reads += 1
        return self.node_facts

    async def running_by_application(self) -> Mapping[str, int]:
        self.share_reads += 1
        return {}

    async def dispatch(self, claim_id: str, placements: Sequence[Placement]) -> DispatchedBatch:
        self.placed += placements
        fate = Fate.CROWDED if self.crowded else Fate.DISPATCHED
        return DispatchedBatch(
            {one.request.key: fate for one in placements},
            node_ids=frozenset(one.node_id for one in placements),
            started=frozenset({"started"}),
            to_advance=frozenset({"failed"}),
        )

    async def park(self, claim_id: str, requests: Sequence[ParkedRequest]) -> Aftermath:
        self.parked += requests
        return Aftermath()

    async def sweep_limits(self) -> Aftermath:
        return Aftermath()

    async def parked_requirements(self) -> Sequence[ParkedKind]:
        self.sweeps += 1
        return self.known_parked

    async def reassess(self, kinds: Sequence[ReassessedKind]) -> None:
        self.reassessed += kinds


class _Bench:
    """A scheduler with everything around it in a test's hands."""

    def __init__(self) -> None:
        self.store = _Store()
        self.hints = LocalHints()
        self.clock = ManualClock()
        self.scheduler = Scheduler(self.store, SequentialIds(), self.hints, self.clock)


@pytest.fixture
def bench() -> _Bench:
    return _Bench()


async def test_nothing_to_do_costs_one_claim(bench: _Bench) -> None:
    """Without requests the nodes are not read; it says when the next one is due."""
    assert await bench.scheduler.run_once() == 7.0
    assert bench.store.node_reads == 0
    assert bench.store.openings == [[]]


@pytest.mark.parametrize("refuses", [False, True])
async def test_what_fits_is_dispatched_and_the_rest_is_parked(
    bench: _Bench, *, refuses: bool
) -> None:
    """And everybody concerned is hinted; also where a batch has to be served one by one."""
    bench.store.refuses = refuses
    bench.store.node_facts = [_node(2)]
    bench.store.claimable = [_request(number) for number in range(3)]

    await bench.scheduler.run_once()

    assert len(bench.store.placed) == 2
    (parked,) = bench.store.parked
    assert parked.reasons[1] == "n: All 2 slots of the node are taken."
    assert bench.hints.nodes.take(9) == ["n"]
    assert bench.hints.watchers.take(9) == ["started"]
    assert bench.hints.engine.take(9) == ["failed"]


async def test_parked_work_is_claimed_only_where_there_is_room(bench: _Bench) -> None:
    """As many of each kind as there are free slots for it, and none while there is none."""
    bench.store.claimable = [_request(1), _request(2, _D)]
    await bench.scheduler.run_once()
    await bench.scheduler.run_once()
    assert bench.store.openings[-1] == []

    bench.store.node_facts = [_node(2), _node(3, "m")]
    bench.store.claimable = [_request(1)]
    await bench.scheduler.run_once()

    assert bench.store.openings[-1] == [Opening(_C, 5)]


async def test_a_kind_that_nobody_waits_for_is_forgotten(bench: _Bench) -> None:
    """After a claim in vain, freed capacity costs no look at the nodes any more."""
    bench.store.claimable = [_request(1)]
    await bench.scheduler.run_once()
    bench.store.node_facts = [_node(2)]
    await bench.scheduler.run_once()
    reads = bench.store.node_reads

    await bench.scheduler.run_once()

    assert bench.store.node_reads == reads
    assert bench.store.openings[-1] == []


async def test_the_sweep_learns_what_others_parked(bench: _Bench) -> None:
    """At the start and every 30 s, no more often."""
    bench.store.known_parked = [ParkedKind(_D, never=True)]
    bench.store.node_facts = [_node(1, capability="d")]
    await bench.scheduler.run_once()
    assert bench.store.openings == [[Opening(_D, 1)]]
    await bench.scheduler.run_once()
    assert bench.store.sweeps == 1
    bench.clock.advance(PARKED_SWEEP_INTERVAL_S)
    await bench.scheduler.run_once()
    assert bench.store.sweeps == 2


async def test_a_crowded_node_makes_it_look_again_at_once(bench: _Bench) -> None:
    """The plan was out of date: the next one has fresh nodes."""
    bench.store.node_facts = [_node(1)]
    bench.store.claimable = [_request(1)]
    bench.store.crowded = True

    assert await bench.scheduler.run_once() == 0.0


async def test_shares_are_counted_only_where_they_matter(bench: _Bench) -> None:
    """One application alone, or room for all: who runs how much decides nothing."""
    bench.store.node_facts = [_node(1)]
    bench.store.claimable = [_request(1), _request(2)]
    await bench.scheduler.run_once()
    bench.store.node_facts = [_node(5)]
    bench.store.claimable = [_request(1), _request(2, application="b")]
    await bench.scheduler.run_once()
    assert bench.store.share_reads == 0

    bench.store.node_facts = [_node(1)]
    bench.store.claimable = [_request(1), _request(2, application="b")]
    await bench.scheduler.run_once()
    assert bench.store.share_reads == 1


async def test_a_kind_is_judged_anew_when_nodes_change_and_not_when_they_work(
    bench: _Bench,
) -> None:
    """Impossible becomes possible with a node that offers it, once; load changes nothing."""
    bench.store.claimable = [_request(1)]
    await bench.scheduler.run_once()
    assert bench.store.parked[0].never

    bench.store.node_facts = [_node(0, "full")]
    await bench.scheduler.run_once()
    for running in (2, 3):
        bench.store.node_facts = [replace(_node(2, "full"), running_count=running)]
        await bench.scheduler.run_once()
    bench.store.node_facts = []
    await bench.scheduler.run_once()

    told = [(one.requirement, one.never) for one in bench.store.reassessed]
    assert told == [(_C, False), (_C, True)]
    assert "No node is known" in bench.store.reassessed[-1].reasons[0]
