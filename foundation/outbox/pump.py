"""The relay of every outbox: claim, publish outside the transaction, mark under the claim.

    claim (short statement) -> publish (bounded, concurrent) -> mark (batched) -> claim ...

A process that dies anywhere in between leaves claims that expire and are taken over, so a
row is published at least once, and its receiver de-duplicates by outbox_id.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final, TypeAlias, TypeVar
from uuid import UUID

import structlog

from foundation.backoff import exponential_s
from foundation.batching import Batcher
from foundation.clock import Clock
from foundation.errors import TdpError
from foundation.failpoints import failpoint
from foundation.outbox.model import (
    Claimed,
    DestinationUnreachable,
    Mark,
    OutboxRow,
    OutboxStatus,
    Outcome,
    Retry,
)
from foundation.outbox.policy import OutboxPolicy, mark_for
from foundation.outbox.ports import OutboxStore, Publisher
from foundation.outbox.reachability import Reachability
from foundation.wakeup import Wakeup

_STORE_BACKOFF_CAP_S: Final = 5.0
_Marks: TypeAlias = tuple[Mark, ...]
_MarkWith: TypeAlias = Callable[[_Marks], Awaitable[frozenset[UUID]]]
_AnswerT = TypeVar("_AnswerT")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PumpRound:
    """What one round did; `marked` counts the marks that took effect, by status."""

    claimed: int
    quarantined: int
    marked: "Counter[OutboxStatus]"
    stale: int


class OutboxPump:
    """Serves one outbox. Any number may serve the same one; one is enough.

    Announce committed rows with `wakeup.set()`: without it they leave within `idle_poll_s`.
    """

    def __init__(
        self,
        store: OutboxStore,
        publisher: Publisher,
        policy: OutboxPolicy,
        clock: Clock,
        wakeup: Wakeup | None = None,
    ) -> None:
        """Prepare; nothing is claimed before `run` or `run_once`."""
        self._store = store
        self._publisher = publisher
        self._policy = policy
        self._clock = clock
        self.wakeup = wakeup or Wakeup()
        self._reachability = Reachability(policy.probe_interval_s)
        self._marker: Batcher[_Marks, frozenset[UUID]] = Batcher(
            f"{policy.name}.marks", self._mark_batch
        )
        self._in_flight = 0
        # Monotonic; a moment that has passed means "not known", as at the start.
        self._next_due_at_s: float | None = clock.monotonic()
        self._waits_for_slot = False
        self._stopping = False
        self._running = False
        self._ended = asyncio.Event()
        # Since the start, for metrics: statuses marked, and claimed, quarantined, stale.
        self.counts: Counter[str] = Counter()

    @property
    def destination_lost(self) -> bool:
        """Whether the internal destination did not answer last time."""
        return self._reachability.lost

    async def run_once(self) -> PumpRound:
        """Claim once, publish and mark all of it, and say what happened.

        Raises what the store raises. Not to be called while `run` runs.
        """
        before = self.counts.copy()
        claimed = await self._claim(self._claim_limit())
        async with asyncio.TaskGroup() as group:
            for number, rows in enumerate(self._chunks(claimed.rows)):
                name = f"{self._policy.name}.publish.{number}"
                group.create_task(self._deliver(rows, self._mark_all), name=name)
        done = self.counts - before
        return PumpRound(
            claimed=len(claimed.rows),
            quarantined=len(claimed.quarantined_ids),
            marked=Counter({status: done[status] for status in OutboxStatus if done[status]}),
            stale=done["stale"],
        )

    async def run(self) -> None:
        """Serve until `stop`: then what is being published is still finished and marked.

        Returns at once after a `stop` that came first. Raises what the store raises, but for
        retryable errors, which are waited out.
        """
        if self._stopping:
            return
        self._running = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._marker.run(), name=f"{self._policy.name}.marks")
                async with asyncio.TaskGroup() as publishes:
                    await self._serve(publishes)
                await self._marker.stop()
        finally:
            self._running = False
            self._ended.set()

    async def stop(self) -> None:
        """Claim nothing more, and return when `run` has returned. Idempotent."""
        self._stopping = True
        self.wakeup.set()
        if self._running:
            await self._ended.wait()

    # -- the loop

    async def _serve(self, publishes: asyncio.TaskGroup) -> None:
        while not self._stopping:
            limit = self._claim_limit()
            if limit == 0:
                await self._wait_for_leave_to_claim()
                continue
            claimed = await self._claim_patiently(limit)
            for rows in self._chunks(claimed.rows):
                name = f"{self._policy.name}.publish"
                publishes.create_task(self._deliver(rows, self._marker.submit), name=name)
            taken = len(claimed.rows) + len(claimed.quarantined_ids)
            if taken < limit:
                await self._pause(nothing_was_due=taken == 0)

    def _claim_limit(self) -> int:
        policy = self._policy
        slots = policy.publishes_in_flight_max - self._in_flight
        limit = min(policy.batch_size_max, slots * policy.rows_per_publish_max)
        allowed = self._reachability.rows_max(self._clock.monotonic())
        return limit if allowed is None else min(limit, allowed)

    async def _wait_for_leave_to_claim(self) -> None:
        # A finished publish wakes it up; so does stop. Other wake-ups change nothing here.
        wait_s = self._reachability.wait_s(self._clock.monotonic())
        self._waits_for_slot = True
        await self.wakeup.wait(wait_s if wait_s > 0 else None)
        self._waits_for_slot = False

    async def _claim_patiently(self, limit: int) -> Claimed:
        return await self._patiently(partial(self._claim, limit), Claimed())

    async def _pause(self, *, nothing_was_due: bool) -> None:
        """Sleep until a wake-up or a due time; idle, ask for one every `idle_poll_s`."""
        if nothing_was_due or self._due_in_s() == 0:
            await self._ask_next_due()
        while not self._stopping and self._due_in_s() != 0:
            due_in_s = self._due_in_s()
            idle_s = self._policy.idle_poll_s
            if await self.wakeup.wait(idle_s if due_in_s is None else min(due_in_s, idle_s)):
                return
            if self._due_in_s() != 0:
                await self._ask_next_due()

    def _due_in_s(self) -> float | None:
        if self._next_due_at_s is None:
            return None
        return max(0.0, self._next_due_at_s - self._clock.monotonic())

    async def _ask_next_due(self) -> None:
        unknown: float | None = None
        due_in_s = await self._patiently(self._store.next_due_in_s, unknown)
        now_s = self._clock.monotonic()
        self._next_due_at_s = None if due_in_s is None else now_s + due_in_s

    async def _patiently(
        self, ask: Callable[[], Awaitable[_AnswerT]], otherwise: _AnswerT
    ) -> _AnswerT:
        """Answer of the store; while it cannot be reached, ask again at growing intervals."""
        failures = 0
        while not self._stopping:
            try:
                return await ask()
            except TdpError as error:
                failures += 1
                await self._wait_out(error, failures)
        return otherwise

    async def _wait_out(self, error: TdpError, failures: int) -> None:
        if not error.retryable:
            raise error
        _log.warning("outbox_store_unavailable", outbox=self._policy.name, error=str(error))
        await asyncio.sleep(exponential_s(failures, base_s=0.1, cap_s=_STORE_BACKOFF_CAP_S))

    # -- one batch

    async def _claim(self, limit: int) -> Claimed:
        if limit == 0:
            return Claimed()
        await failpoint(f"{self._policy.name}.claim.before")
        claimed = await self._store.claim(limit)
        await failpoint(f"{self._policy.name}.claim.after")
        self.counts["claimed"] += len(claimed.rows)
        for outbox_id in claimed.quarantined_ids:
            self.counts[OutboxStatus.QUARANTINED] += 1
            _log.error("outbox_row_quarantined", outbox=self._policy.name, outbox_id=outbox_id)
        if claimed.rows:
            self._reachability.probing(self._clock.monotonic())
        return claimed

    def _chunks(self, rows: Sequence[OutboxRow]) -> list[Sequence[OutboxRow]]:
        size = self._policy.rows_per_publish_max
        chunks = [rows[start : start + size] for start in range(0, len(rows), size)]
        self._in_flight += len(chunks)
        return chunks

    async def _deliver(self, rows: Sequence[OutboxRow], mark_with: _MarkWith) -> None:
        try:
            outcomes = await self._publish(rows)
            marks = tuple(
                mark_for(row, outcome, self._policy)
                for row, outcome in zip(rows, outcomes, strict=True)
            )
            applied = await mark_with(marks)
            self._count(marks, applied)
            await self._note_reachability(rows, outcomes)
        finally:
            self._in_flight -= 1
        # A lone delivered row leads nowhere: asking the store again would be in vain.
        if self._waits_for_slot or _more_may_be_due(rows, marks):
            self.wakeup.set()

    async def _publish(self, rows: Sequence[OutboxRow]) -> Sequence[Outcome]:
        try:
            await failpoint(f"{self._policy.name}.publish.before")
            async with asyncio.timeout(self._policy.publish_timeout_s):
                outcomes = await self._publisher.publish(rows)
            await failpoint(f"{self._policy.name}.publish.after")
        except Exception as error:  # noqa: BLE001 - whatever it is, the rows are tried again
            _log.warning("outbox_publish_failed", outbox=self._policy.name, error=repr(error))
            return [Retry(f"{type(error).__name__}: {error}")] * len(rows)
        if len(outcomes) != len(rows):
            raise RuntimeError(
                f"outbox {self._policy.name}: {len(rows)} rows gave {len(outcomes)} outcomes: "
                "a publisher returns one for each"
            )
        return outcomes

    async def _mark_batch(self, batches: Sequence[_Marks]) -> Sequence[frozenset[UUID]]:
        applied = await self._mark_all(tuple(chain.from_iterable(batches)))
        return [applied] * len(batches)

    async def _mark_all(self, marks: _Marks) -> frozenset[UUID]:
        """Mark, again while the store is away and the claims may still hold: it is idempotent."""
        give_up_at_s = self._clock.monotonic() + self._policy.claim_ttl_s
        failures = 0
        while True:
            try:
                await failpoint(f"{self._policy.name}.mark.before")
                applied = await self._store.mark(marks)
                await failpoint(f"{self._policy.name}.mark.after")
                return applied
            except TdpError as error:
                failures += 1
                late = self._stopping or self._clock.monotonic() >= give_up_at_s
                if error.retryable and late:
                    return frozenset()
                await self._wait_out(error, failures)

    def _count(self, marks: _Marks, applied: frozenset[UUID]) -> None:
        for mark in marks:
            if mark.outbox_id not in applied:
                self.counts["stale"] += 1
                continue
            self.counts[mark.status] += 1
            if mark.status is OutboxStatus.DEAD:
                _log.error(
                    "outbox_row_dead",
                    outbox=self._policy.name,
                    outbox_id=mark.outbox_id,
                    error=mark.error,
                )

    async def _note_reachability(
        self, rows: Sequence[OutboxRow], outcomes: Sequence[Outcome]
    ) -> None:
        if any(isinstance(one, DestinationUnreachable) for one in outcomes):
            self._reachability.note_lost(self._clock.monotonic())
            return
        answered = {
            row.destination
            for row, outcome in zip(rows, outcomes, strict=True)
            if not isinstance(outcome, Retry)
        }
        if answered and self._reachability.note_answer():
            self.wakeup.set()
            for destination in sorted(answered):
                await self._patiently(partial(self._store.release, destination), 0)


def _more_may_be_due(rows: Sequence[OutboxRow], marks: Sequence[Mark]) -> bool:
    """Whether a row waits behind one of these, or one of them is due again at a known time."""
    return any(row.ordering_key is not None for row in rows) or any(
        mark.status is OutboxStatus.FAILED for mark in marks
    )
