"""Removes what is over for long enough: bounded batches, pass after pass."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from control_plane.core.retention.domain import Place, RetentionAges, Swept
from control_plane.core.retention.ports import RetentionStore
from foundation.clock import Clock

PASS_INTERVAL_S: Final = 600.0
BATCH_PAUSE_S: Final = 0.2
"""Between two batches, so that removing leaves the database to those who work."""

_Batch = Callable[[Place | None], Awaitable[Swept]]
_log = structlog.stdlib.get_logger(__name__)


class _Pass:
    """One kind of leftovers, and how far the pass over it has come."""

    def __init__(self, name: str, batch: _Batch) -> None:
        self.name = name
        self.due_at_s = 0.0
        self._batch = batch
        self._place: Place | None = None
        self._removed_count = 0

    async def go_on(self, clock: Clock) -> int:
        """Do one batch and say when the next one is due; return how many rows are gone."""
        swept = await self._batch(self._place)
        self._place = swept.next_place
        self._removed_count += swept.removed_count
        over = swept.next_place is None
        if over and self._removed_count:
            _log.info("retention_pass_ended", kind=self.name, removed_count=self._removed_count)
            self._removed_count = 0
        self.due_at_s = clock.monotonic() + (PASS_INTERVAL_S if over else BATCH_PAUSE_S)
        return swept.removed_count


class Retention:
    """Keeps tables from growing with history. Any number of replicas may run it at once."""

    def __init__(
        self, store: RetentionStore, ages: RetentionAges, clock: Clock, *, batch_size: int
    ) -> None:
        self._store = store
        self._ages = ages
        self._clock = clock
        self._batch_size = batch_size
        self._passes = self._kinds()

    async def run_once(self) -> float:
        """Do a batch of each kind that is due; return the seconds until the next one is."""
        for one in self._passes:
            if one.due_at_s <= self._clock.monotonic():
                await one.go_on(self._clock)
        return max(0.0, min(one.due_at_s for one in self._passes) - self._clock.monotonic())

    def _kinds(self) -> Sequence[_Pass]:
        store, ages, size = self._store, self._ages, self._batch_size
        kinds = [
            _Pass(
                "uncommitted-artifacts",
                lambda place: store.remove_uncommitted(ages.uncommitted, place, size),
            ),
            _Pass("published-wake-ups", self._published),
        ]
        finished = ages.finished
        if finished is not None:
            # After the tasks, so that one pass finds the records of those that just went.
            kinds += [
                _Pass("tasks", lambda place: store.remove_finished(finished, place, size)),
                _Pass(
                    "idempotency-records",
                    lambda place: store.remove_records(ages.records, place, size),
                ),
            ]
        return kinds

    async def _published(self, _place: Place | None) -> Swept:
        """Delivered rows all go, so the oldest one is always the place to begin at."""
        # Small rows, and many to a task.
        limit = 10 * self._batch_size
        removed = await self._store.remove_published(self._ages.published, limit)
        more = Place(self._clock.now(), "") if removed == limit else None
        return Swept(removed, more)
