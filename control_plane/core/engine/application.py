"""The engine's driver: whatever woke it, it advances executions from their stored facts."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from control_plane.core.engine.deciding import Deciding
from control_plane.core.engine.ports import AdvancedBatch, EngineStore
from control_plane.core.measures import Measures, NoMeasures
from control_plane.core.wakeups import LocalHints
from foundation.clock import Clock
from foundation.ids import IdSource
from foundation.wakeup import Wakeup

BATCH_SIZE_MAX: Final = 200
SWEEP_SIZE_MAX: Final = 1_000
REMEMBERED_MAX: Final = 50_000

# Told of an execution that needs no message any more: the sweep looks after it, or nobody has to.
_NO_MESSAGE_NEEDED: Final = 2**62

_log = structlog.stdlib.get_logger(__name__)

Settled = Callable[[Mapping[str, int]], None]
"""Told, after a commit, up to which sequence executions have been advanced."""


class EngineDriver:
    """Advances executions in batches; any number of replicas may do so at once."""

    def __init__(
        self,
        store: EngineStore,
        ids: IdSource,
        hints: LocalHints,
        clock: Clock,
        measures: Measures | None = None,
    ) -> None:
        self._store = store
        self._deciding = Deciding(ids)
        self._measures = measures or NoMeasures()
        self._hints = hints
        self._clock = clock
        self._advanced: OrderedDict[str, int] = OrderedDict()
        self._advancing: frozenset[str] = frozenset()
        self._listeners: list[Settled] = []
        # For the sweep: something is due before it would have looked.
        self.due_wakeup: Final = Wakeup()
        self._look_at_s = clock.monotonic()

    def on_settled(self, listener: Settled) -> None:
        """Tell `listener` after each batch; it must not block."""
        self._listeners.append(listener)

    def covers(self, execution_id: str, sequence: int) -> bool:
        """Whether this replica has advanced the execution since that event was written."""
        return self._advanced.get(execution_id, 0) >= sequence

    def is_advancing(self, execution_id: str) -> bool:
        """Whether an advance of the execution is under way here, so that its end is near."""
        return execution_id in self._advancing

    async def advance_hinted(self) -> float | None:
        """Advance a batch of hinted executions; 0 where more are waiting.

        Raises when the database cannot be reached; the hints are then given back.
        """
        execution_ids = self._hints.engine.take(BATCH_SIZE_MAX)
        try:
            await self.advance(execution_ids)
        except Exception:
            self._hints.engine.add(execution_ids)
            raise
        return 0.0 if len(execution_ids) == BATCH_SIZE_MAX else None

    async def advance(self, execution_ids: Sequence[str]) -> None:
        """Advance the executions and hint whoever has something to do then."""
        if not execution_ids:
            return
        self._advancing = frozenset(execution_ids)
        try:
            done = await self._store.advance(execution_ids, self._deciding)
        finally:
            self._advancing = frozenset()
        self._measures.batch("advance", len(execution_ids))
        self._settle(done, dict.fromkeys(execution_ids, _NO_MESSAGE_NEEDED) | dict(done.sequences))

    def advanced_elsewhere(self, done: AdvancedBatch) -> None:
        """Take note of a batch that another transaction of this replica advanced and committed."""
        if done.sequences or done.failed:
            self._settle(done, done.sequences)

    async def sweep(self, interval_s: float) -> float:
        """Hint the executions that are due; return the seconds until the next look.

        `interval_s` is the longest time between two looks. A look that nothing asks for yet
        costs no query.
        """
        now_s = self._clock.monotonic()
        if now_s < self._look_at_s:
            return self._look_at_s - now_s
        # Set before the query: an advance that ends meanwhile may ask for an earlier look.
        self._look_at_s = now_s + interval_s
        found = await self._store.due(SWEEP_SIZE_MAX)
        self._hints.engine.add(found.execution_ids)
        now_s = self._clock.monotonic()
        if found.next_due_in_s is not None:
            self._look_at_s = min(self._look_at_s, now_s + max(found.next_due_in_s, 0.0))
        return max(self._look_at_s - now_s, 0.0)

    def _settle(self, done: AdvancedBatch, settled: Mapping[str, int]) -> None:
        self._remember(done.sequences)
        self._hint(done)
        for listener in self._listeners:
            listener(settled)

    def _remember(self, sequences: Mapping[str, int]) -> None:
        for execution_id, sequence in sequences.items():
            known = self._advanced.pop(execution_id, 0)
            self._advanced[execution_id] = max(known, sequence)
        while len(self._advanced) > REMEMBERED_MAX:
            self._advanced.popitem(last=False)

    def _hint(self, done: AdvancedBatch) -> None:
        if done.told:
            self._hints.events_written(sorted(done.told))
        if done.asks_for_nodes:
            self._hints.requests_ready()
        done.aftermath.give(self._hints)
        if done.failed:
            _log.error("advances_failed", execution_ids=sorted(done.failed))
        if done.due_in_s is not None:
            look_at_s = self._clock.monotonic() + max(done.due_in_s, 0.0)
            if look_at_s < self._look_at_s:
                self._look_at_s = look_at_s
                self.due_wakeup.set()
