"""The scheduler: claims what waits for a node, proposes nodes, and lets the store dispatch."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from control_plane.core.scheduling.dispatching import Fate
from control_plane.core.scheduling.domain import (
    HEARTBEAT_TTL_S,
    NodeFacts,
    Requirement,
    qualify,
    waiting_sentence,
)
from control_plane.core.scheduling.planning import Plan, Unplaced, plan
from control_plane.core.scheduling.ports import (
    ClaimedRequests,
    DispatchedBatch,
    Opening,
    ParkedRequest,
    SchedulingStore,
)
from control_plane.core.scheduling.requirements import affinity_to_json
from control_plane.core.wakeups import LocalHints
from foundation.clock import Clock
from foundation.ids import IdSource

CLAIM_SIZE_MAX: Final = 500
PARKED_SWEEP_INTERVAL_S: Final = 30.0
REASONS_SHOWN_MAX: Final = 6
REQUIREMENTS_KEPT_MAX: Final = 1_000

_log = structlog.stdlib.get_logger(__name__)

_Asked = tuple[str, str, str]


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
    ) -> None:
        self._store = store
        self._ids = ids
        self._hints = hints
        self._clock = clock
        self._heartbeat_ttl_s = heartbeat_ttl_s
        self._parked: OrderedDict[_Asked, Requirement] = OrderedDict()
        self._sweep_at_s = clock.monotonic()

    async def run_once(self) -> float | None:
        """Serve one batch; return in how many seconds to look again, 0 for at once."""
        await self._sweep_if_due()
        nodes = await self._store.nodes() if self._parked else None
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
        self._hint(done)
        if proposed.unplaced:
            parked = _Parking(nodes).parked(proposed.unplaced)
            await self._store.park(claim_id, parked)
            self._remember(one.request.requirement for one in proposed.unplaced)
        return Fate.CROWDED in done.fates.values()

    async def _plan(self, claimed: ClaimedRequests, nodes: Sequence[NodeFacts]) -> Plan:
        running = None
        applications = {one.application_id for one in claimed.requests}
        free_count = sum(max(node.slot_count - node.running_count, 0) for node in nodes)
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

    def _openings(self, nodes: Sequence[NodeFacts]) -> list[Opening]:
        free = [node for node in nodes if node.running_count < node.slot_count]
        if not free:
            return []
        openings: list[Opening] = []
        for requirement in self._parked.values():
            count = sum(
                node.slot_count - node.running_count
                for node in free
                if not qualify(node, requirement, self._heartbeat_ttl_s)
            )
            if count:
                openings.append(Opening(requirement, min(count, CLAIM_SIZE_MAX)))
        return openings

    def _remember(self, requirements: Iterable[Requirement]) -> None:
        for requirement in requirements:
            asked = _asked(requirement)
            self._parked[asked] = requirement
            self._parked.move_to_end(asked)
        while len(self._parked) > REQUIREMENTS_KEPT_MAX:
            self._parked.popitem(last=False)

    def _forget_unasked(self, openings: Sequence[Opening], claimed: ClaimedRequests) -> None:
        """Forget what nobody waits for any more; the sweep finds what was forgotten wrongly."""
        still_asked = {_asked(one.requirement) for one in claimed.requests}
        for opening in openings:
            asked = _asked(opening.requirement)
            if asked not in still_asked:
                self._parked.pop(asked, None)

    def _hint(self, done: DispatchedBatch) -> None:
        self._hints.nodes.add(sorted(done.node_ids))
        self._hints.engine.add(sorted(done.to_advance))
        if done.started:
            self._hints.events_written(sorted(done.started))
        odd = {key: fate for key, fate in done.fates.items() if fate is Fate.LOST}
        if odd:
            _log.warning("claims_lost", count=len(odd))


class _Parking:
    """Puts the reasons of requests into words, once for all that ask for the same."""

    def __init__(self, nodes: Sequence[NodeFacts]) -> None:
        self._nodes = nodes
        self._names = {node.node_id: node.name for node in nodes}
        self._sentences: dict[_Asked, list[str]] = {}

    def parked(self, unplaced: Iterable[Unplaced]) -> list[ParkedRequest]:
        return [ParkedRequest(one.request.key, self._reasons(one), one.never) for one in unplaced]

    def _reasons(self, one: Unplaced) -> list[str]:
        requirement = one.request.requirement
        asked = _asked(requirement)
        if asked not in self._sentences:
            details = [
                f"{self._names[node_id]}: {reasons[0].sentence}"
                for node_id, reasons in one.reasons.items()
                if reasons
            ]
            first = waiting_sentence(self._nodes, requirement)
            self._sentences[asked] = [first, *details[: REASONS_SHOWN_MAX - 1]]
        return self._sentences[asked]


def _asked(requirement: Requirement) -> _Asked:
    return (
        requirement.capability,
        requirement.capability_version,
        affinity_to_json(requirement.affinity),
    )
