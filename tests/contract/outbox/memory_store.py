"""An outbox in memory, under the same contract as the real ones, for tests of the pump."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID, uuid4

from foundation.clock import Clock
from foundation.outbox.model import (
    OPEN_STATUSES,
    SET_ASIDE_STATUSES,
    Claimed,
    Mark,
    OutboxDepth,
    OutboxRow,
    OutboxStatus,
)
from foundation.outbox.policy import OutboxPolicy


@dataclass(frozen=True, slots=True)
class StoredRow:
    row: OutboxRow
    status: OutboxStatus
    available_at_s: float
    created_at_s: float
    held: bool = False
    last_error: str | None = None
    published_at_s: float | None = None


class MemoryOutboxStore:
    """OutboxStore and OutboxAdministration over a dictionary and a clock."""

    def __init__(self, policy: OutboxPolicy, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self.stored: dict[UUID, StoredRow] = {}
        self.claim_calls = 0
        self.next_due_calls = 0
        self.mark_calls = 0
        self.marks_applied = 0
        self._activity = asyncio.Event()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait, from call to call of the store, until it is so; the test's time limit bounds it."""
        while not reached():
            self._activity.clear()
            await self._activity.wait()

    def insert(
        self,
        outbox_id: UUID,
        *,
        ordering_key: str | None = None,
        destination: str = "stream",
        payload: str = "{}",
        created_at: datetime | None = None,
    ) -> None:
        now_s = self._clock.monotonic()
        row = OutboxRow(
            outbox_id=outbox_id,
            ordering_key=ordering_key,
            position=len(self.stored) + 1,
            destination=destination,
            payload=payload,
            attempts=0,
            claims=0,
            claim_id=UUID(int=0),
            created_at=created_at or self._clock.now(),
        )
        self.stored[outbox_id] = StoredRow(row, OutboxStatus.PENDING, now_s, now_s)

    async def claim(self, limit: int) -> Claimed:
        self.claim_calls += 1
        self._activity.set()
        now_s = self._clock.monotonic()
        due = [one for one in self._claimable() if one.available_at_s <= now_s][:limit]
        claim_id = uuid4()
        taken = [self._claimed(one, claim_id) for one in due]
        rows = [one.row for one in taken if one.status is OutboxStatus.PUBLISHING]
        aside = [one.row for one in taken if one.status is OutboxStatus.QUARANTINED]
        return Claimed(tuple(rows), tuple(row.outbox_id for row in aside))

    async def mark(self, marks: Sequence[Mark]) -> frozenset[UUID]:
        self.mark_calls += 1
        self._activity.set()
        applied = frozenset(mark.outbox_id for mark in marks if self._mark(mark))
        self.marks_applied += len(applied)
        return applied

    async def next_due_in_s(self) -> float | None:
        self.next_due_calls += 1
        self._activity.set()
        times_s = [one.available_at_s for one in self._claimable()]
        return max(0.0, min(times_s) - self._clock.monotonic()) if times_s else None

    async def release(self, destination: str) -> int:
        now_s = self._clock.monotonic()
        held = [one for one in self.stored.values() if one.held]
        waiting = [one for one in held if one.row.destination == destination]
        for one in waiting:
            available_at_s = min(one.available_at_s, now_s)
            self._put(replace(one, held=False, available_at_s=available_at_s))
        return len(waiting)

    async def redrive(self, outbox_ids: Sequence[UUID]) -> frozenset[UUID]:
        aside = [self.stored[one] for one in outbox_ids if one in self.stored]
        changed = [one for one in aside if one.status in SET_ASIDE_STATUSES]
        for one in changed:
            row = replace(one.row, attempts=0, claims=0, redriven=True)
            now_s = self._clock.monotonic()
            self._put(
                replace(one, row=row, status=OutboxStatus.PENDING, available_at_s=now_s, held=False)
            )
        return frozenset(one.row.outbox_id for one in changed)

    async def depth(self) -> OutboxDepth:
        def number(status: OutboxStatus) -> int:
            return sum(one.status is status for one in self.stored.values())

        created = [one.created_at_s for one in self.stored.values() if one.status in OPEN_STATUSES]
        return OutboxDepth(
            pending=number(OutboxStatus.PENDING),
            publishing=number(OutboxStatus.PUBLISHING),
            failed=number(OutboxStatus.FAILED),
            dead=number(OutboxStatus.DEAD),
            quarantined=number(OutboxStatus.QUARANTINED),
            oldest_open_age_s=self._clock.monotonic() - min(created) if created else None,
        )

    async def remove_published(self, older_than_s: float, limit: int) -> int:
        before_s = self._clock.monotonic() - older_than_s
        old = [
            one
            for one in self.stored.values()
            if one.published_at_s is not None and one.published_at_s < before_s
        ]
        for one in old[:limit]:
            del self.stored[one.row.outbox_id]
        return len(old[:limit])

    def _claimable(self) -> list[StoredRow]:
        unblocked = [
            one
            for one in self.stored.values()
            if one.status in OPEN_STATUSES and not self._blocked(one)
        ]
        return sorted(
            unblocked, key=lambda one: (one.available_at_s, one.created_at_s, one.row.position)
        )

    def _blocked(self, later: StoredRow) -> bool:
        blocking = set(OPEN_STATUSES)
        if self._policy.dead_blocks:
            blocking |= SET_ASIDE_STATUSES
        return later.row.ordering_key is not None and any(
            earlier.row.ordering_key == later.row.ordering_key
            and earlier.row.position < later.row.position
            and earlier.status in blocking
            and not earlier.row.redriven
            for earlier in self.stored.values()
        )

    def _claimed(self, one: StoredRow, claim_id: UUID) -> StoredRow:
        if one.row.claims >= self._policy.claims_max:
            row = replace(one.row, claim_id=claim_id)
            before = one.last_error or "none"
            error = f"claimed {row.claims} times without an answer; last error: {before}"
            taken = replace(one, row=row, status=OutboxStatus.QUARANTINED, last_error=error)
        else:
            row = replace(one.row, claims=one.row.claims + 1, claim_id=claim_id)
            expiry_s = self._clock.monotonic() + self._policy.claim_ttl_s
            taken = replace(
                one,
                row=row,
                status=OutboxStatus.PUBLISHING,
                available_at_s=expiry_s,
                held=False,
            )
        return self._put(taken)

    def _mark(self, mark: Mark) -> bool:
        one = self.stored.get(mark.outbox_id)
        if one is None or one.status is not OutboxStatus.PUBLISHING:
            return False
        if one.row.claim_id != mark.claim_id:
            return False
        now_s = self._clock.monotonic()
        row = replace(one.row, attempts=one.row.attempts + mark.attempts_added, claims=0)
        published_at_s = now_s if mark.status is OutboxStatus.PUBLISHED else None
        self._put(
            StoredRow(
                row,
                mark.status,
                now_s + mark.due_in_s,
                one.created_at_s,
                mark.held,
                mark.error or one.last_error,
                published_at_s,
            )
        )
        return True

    def _put(self, one: StoredRow) -> StoredRow:
        self.stored[one.row.outbox_id] = one
        return one
