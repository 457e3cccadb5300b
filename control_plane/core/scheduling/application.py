"""The scheduler: claims what waits for a node, proposes nodes, and lets the store dispatch."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import structlog

from control_plane.core.executions.outcomes import Aftermath
from control_plane.core.measures import Measures, NoMeasures
from control_plane.core.scheduling.dispatching import Fate
from control_plane.core.scheduling.domain import (
    HEARTBEAT_TTL_S,
    NodeFacts,
    could_ever_qualify,
    free_slot_count,
    idle_slot_count,
    qualify,
)
from control_plane.core.scheduling.parking import (
    Asked,
    Parking,
    asked_of,
    sentences,
    shape_of,
)
from control_plane.core.scheduling.planning import Plan, Request, plan
from control_plane.core.scheduling.ports import (
    ClaimedRequests,
    DispatchedBatch,
    Opening,
    ParkedKind,
    ParkedRequest,
    ReassessedKind,
    SchedulingStore,
    Served,
)
from control_plane.core.wakeups import LocalHints
from foundation.clock import Clock
from foundation.ids import IdSource

CLAIM_SIZE_MAX: Final = 500
PARKED_SWEEP_INTERVAL_S: Final = 30.0
REQUIREMENTS_KEPT_MAX: Final = 1_000

_log = structlog.stdlib.get_logger(__name__)


class Scheduler:
    """Serves requests as soon as somebody says that there are some, or that there is room.

    What found no node is parked; this replica remembers what such requests ask for, so that
    freed capacity costs a look at the nodes, and not one at every request that waits.
    """

    def __init__(
        self,
        store: SchedulingStore,
        ids: IdSource,
        hints: LocalHints,
        clock: Clock,
        *,
        heartbeat_ttl_s: float = HEARTBEAT_TTL_S,
        measures: Measures | None = None,
    ) -> None:
        self._store = store
        self._measures = measures or NoMeasures()
        self._ids = ids
        self._hints = hints
        self._clock = clock
        self._heartbeat_ttl_s = heartbeat_ttl_s
        self._planning = FairPlanning(heartbeat_ttl_s)
        self._parked: OrderedDict[Asked, ParkedKind] = OrderedDict()
        self._shapes: frozenset[object] | None = None
        self._sweep_at_s = clock.monotonic()

    async def run_once(self) -> float | None:
        """Serve one batch; return in how many seconds to look again, 0 for at once."""
        await self._sweep_if_due()
        nodes: Sequence[NodeFacts] = ()
        if self._parked:
            nodes = await self._store.nodes()
            await self._reassess(nodes)
        openings = self._openings(nodes)
        served = await self._store.serve(CLAIM_SIZE_MAX, openings, self._planning)
        if served is None:
            served = await self._serve_singly(openings)
        self._forget_unasked(openings, served.taken)
        self._measure(served)
        self._hint(served)
        unplaced = served.plan.unplaced
        self._remember(ParkedKind(one.request.requirement, one.never) for one in unplaced)
        more = _looks_again(served) or len(served.taken.requests) >= CLAIM_SIZE_MAX
        return 0.0 if more else served.taken.next_due_in_s

    async def _serve_singly(self, openings: Sequence[Opening]) -> Served:
        """Serve a batch that one of its requests breaks: that one is left to its claim's end."""
        claim_id = self._ids.new_id()
        taken = await self._store.claim(claim_id, CLAIM_SIZE_MAX, openings)
        if not taken.requests:
            return Served(taken, Plan((), ()), DispatchedBatch())
        nodes = await self._store.nodes()
        running: Mapping[str, int] = {}
        if self._planning.asks_for_shares(taken.requests, nodes):
            running = await self._store.running_by_application()
        proposed = self._planning.plan(taken, nodes, running)
        done = DispatchedBatch()
        if proposed.placements:
            done = await self._store.dispatch(claim_id, proposed.placements)
        woken = Aftermath()
        if proposed.unplaced:
            parked = self._planning.park(proposed, nodes)
            woken = await self._store.park(claim_id, parked)
        return Served(taken, proposed, done, woken)

    async def _sweep_if_due(self) -> None:
        """Learn what other replicas have parked, and what was parked before a restart."""
        now_s = self._clock.monotonic()
        if now_s >= self._sweep_at_s:
            self._sweep_at_s = now_s + PARKED_SWEEP_INTERVAL_S
            self._remember(await self._store.parked_requirements())
            self._shapes = None
            (await self._store.sweep_limits()).give(self._hints)

    def _openings(self, nodes: Sequence[NodeFacts]) -> list[Opening]:
        free = [node for node in nodes if node.running_count < node.slot_count]
        if not free:
            return []
        openings: list[Opening] = []
        for requirement in (kind.requirement for kind in self._parked.values()):
            count = sum(
                free_slot_count(node, requirement)
                for node in free
                if not qualify(node, requirement, self._heartbeat_ttl_s)
            )
            if count:
                openings.append(Opening(requirement, min(count, CLAIM_SIZE_MAX)))
        return openings

    async def _reassess(self, nodes: Sequence[NodeFacts]) -> None:
        """Tell requests that have become possible, or impossible, since nodes changed."""
        shapes = frozenset(map(shape_of, nodes))
        if shapes == self._shapes:
            return
        changed: list[ReassessedKind] = []
        for asked, kind in self._parked.items():
            never = not could_ever_qualify(nodes, kind.requirement)
            if never is not kind.never:
                reasons = sentences(nodes, kind.requirement, self._heartbeat_ttl_s)
                changed.append(ReassessedKind(kind.requirement, never, reasons))
                self._parked[asked] = ParkedKind(kind.requirement, never)
        if changed:
            await self._store.reassess(changed)
        self._shapes = shapes

    def _remember(self, kinds: Iterable[ParkedKind]) -> None:
        for kind in kinds:
            asked = asked_of(kind.requirement)
            self._parked[asked] = kind
            self._parked.move_to_end(asked)
        while len(self._parked) > REQUIREMENTS_KEPT_MAX:
            self._parked.popitem(last=False)

    def _forget_unasked(self, openings: Sequence[Opening], claimed: ClaimedRequests) -> None:
        """Forget what nobody waits for any more; the sweep finds what was forgotten wrongly."""
        still_asked = {asked_of(one.requirement) for one in claimed.requests}
        for opening in openings:
            asked = asked_of(opening.requirement)
            if asked not in still_asked:
                self._parked.pop(asked, None)

    def _hint(self, served: Served) -> None:
        done = served.done
        self._hints.nodes.add(sorted(done.node_ids))
        self._hints.engine.add(sorted(done.to_advance))
        if done.started:
            self._hints.events_written(sorted(done.started))
        served.woken.give(self._hints)
        lost = sum(fate is Fate.LOST for fate in done.fates.values())
        if lost:
            _log.warning("claims_lost", count=lost)

    def _measure(self, served: Served) -> None:
        fates = served.done.fates
        if fates:
            self._measures.batch("dispatch", len(fates))
        for request in served.taken.requests:
            if fates.get(request.key) is Fate.DISPATCHED:
                delay = served.taken.now - request.queued_at
                self._measures.dispatch_delay(delay.total_seconds())


class FairPlanning:
    """Implements Planning: by priority with aging, and in turns between applications."""

    def __init__(self, heartbeat_ttl_s: float) -> None:
        self._heartbeat_ttl_s = heartbeat_ttl_s

    def asks_for_shares(self, requests: Sequence[Request], nodes: Sequence[NodeFacts]) -> bool:
        """Whom to serve first matters only where not all can be served."""
        applications = {one.application_id for one in requests}
        free_count = sum(map(idle_slot_count, nodes))
        return len(applications) > 1 and free_count < len(requests)

    def plan(
        self, taken: ClaimedRequests, nodes: Sequence[NodeFacts], running: Mapping[str, int]
    ) -> Plan:
        """Place the requests on the nodes."""
        return plan(
            taken.requests,
            nodes,
            taken.now,
            running_by_application=running,
            heartbeat_ttl_s=self._heartbeat_ttl_s,
        )

    def park(self, plan: Plan, nodes: Sequence[NodeFacts]) -> Sequence[ParkedRequest]:
        """Say of each request that is left why it has to wait, unless that was said before."""
        fresh = [one for one in plan.unplaced if not one.request.was_parked]
        return Parking(nodes).parked(fresh)


def _looks_again(served: Served) -> bool:
    """Whether something has to look for a node at once."""
    fates = served.done.fates.values()
    # A node that was kept for a request which has to wait for a limit suits another one.
    limited = Fate.LIMITED in fates and bool(served.plan.unplaced)
    return limited or served.done.wakes_requests or Fate.CROWDED in fates
