"""The scheduler: claims what waits for a node, proposes nodes, and lets the store dispatch."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

import structlog

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
from control_plane.core.scheduling.planning import Plan, plan
from control_plane.core.scheduling.ports import (
    ClaimedRequests,
    DispatchedBatch,
    Opening,
    ParkedKind,
    ReassessedKind,
    SchedulingStore,
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
        self._parked: OrderedDict[Asked, ParkedKind] = OrderedDict()
        self._shapes: frozenset[object] | None = None
        self._sweep_at_s = clock.monotonic()

    async def run_once(self) -> float | None:
        """Serve one batch; return in how many seconds to look again, 0 for at once."""
        await self._sweep_if_due()
        nodes = await self._store.nodes() if self._parked else None
        if nodes is not None:
            await self._reassess(nodes)
        openings = self._openings(nodes or ())
        claim_id = self._ids.new_id()
        claimed = await self._store.claim(claim_id, CLAIM_SIZE_MAX, openings)
        self._forget_unasked(openings, claimed)
        if not claimed.requests:
            return claimed.next_due_in_s
        crowded = await self._serve(claim_id, claimed, nodes or await self._store.nodes())
        more = crowded or len(claimed.requests) >= CLAIM_SIZE_MAX
        return 0.0 if more else claimed.next_due_in_s

    async def _serve(
        self, claim_id: str, claimed: ClaimedRequests, nodes: Sequence[NodeFacts]
    ) -> bool:
        """Dispatch and park; return whether something has to look for another node at once."""
        proposed = await self._plan(claimed, nodes)
        done = DispatchedBatch()
        if proposed.placements:
            done = await self._store.dispatch(claim_id, proposed.placements)
            self._measure(claimed, done)
        self._hint(done)
        if proposed.unplaced:
            parked = Parking(nodes).parked(proposed.unplaced)
            (await self._store.park(claim_id, parked)).give(self._hints)
            self._remember(
                ParkedKind(one.request.requirement, one.never) for one in proposed.unplaced
            )
        # A node that was kept for a request which has to wait for a limit suits another one.
        limited = Fate.LIMITED in done.fates.values() and bool(proposed.unplaced)
        return limited or done.wakes_requests or Fate.CROWDED in done.fates.values()

    async def _plan(self, claimed: ClaimedRequests, nodes: Sequence[NodeFacts]) -> Plan:
        running = None
        applications = {one.application_id for one in claimed.requests}
        free_count = sum(map(idle_slot_count, nodes))
        # Whom to serve first matters only where not all can be served.
        if len(applications) > 1 and free_count < len(claimed.requests):
            running = await self._store.running_by_application()
        return plan(
            claimed.requests,
            nodes,
            claimed.now,
            running_by_application=running,
            heartbeat_ttl_s=self._heartbeat_ttl_s,
        )

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

    def _measure(self, claimed: ClaimedRequests, done: DispatchedBatch) -> None:
        self._measures.batch("dispatch", len(done.fates))
        for request in claimed.requests:
            if done.fates.get(request.key) is Fate.DISPATCHED:
                delay = claimed.now - request.queued_at
                self._measures.dispatch_delay(delay.total_seconds())

    def _hint(self, done: DispatchedBatch) -> None:
        self._hints.nodes.add(sorted(done.node_ids))
        self._hints.engine.add(sorted(done.to_advance))
        if done.started:
            self._hints.events_written(sorted(done.started))
        odd = {key: fate for key, fate in done.fates.items() if fate is Fate.LOST}
        if odd:
            _log.warning("claims_lost", count=len(odd))
