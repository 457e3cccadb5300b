"""The pump over an outbox in memory: what it claims, publishes, marks, and when it asks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from foundation.clock import ManualClock
from foundation.errors import InternalError, UnavailableError
from foundation.failpoints import install_failpoints, uninstall_failpoints
from foundation.outbox.model import (
    Claimed,
    Dead,
    Delivered,
    DestinationUnreachable,
    Mark,
    OutboxRow,
    OutboxStatus,
    Outcome,
    Retry,
)
from foundation.outbox.policy import OutboxPolicy
from foundation.outbox.pump import OutboxPump
from tests.contract.outbox.memory_store import MemoryOutboxStore

POLICY = OutboxPolicy("test", back_off_s=lambda attempts: 2.0**attempts, attempts_max=3)
Answer = Callable[[OutboxRow], Outcome]


class RecordingPublisher:
    """Answers each row by a function, and remembers the batches."""

    def __init__(self, answer: Answer = lambda _: Delivered()) -> None:
        self.answer = answer
        self.batches: list[list[UUID]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.began = asyncio.Semaphore(0)
        self.running = 0
        self.running_max = 0

    async def publish(self, rows: Sequence[OutboxRow]) -> Sequence[Outcome]:
        self.batches.append([row.outbox_id for row in rows])
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        self.began.release()
        try:
            await self.gate.wait()
        finally:
            self.running -= 1
        return [self.answer(row) for row in rows]


class Bench:
    """A pump, its store, publisher and clock."""

    def __init__(
        self, policy: OutboxPolicy = POLICY, answer: Answer = lambda _: Delivered()
    ) -> None:
        self.clock = ManualClock()
        self.policy = policy
        self.store = MemoryOutboxStore(policy, self.clock)
        self.publisher = RecordingPublisher(answer)
        self.pump = OutboxPump(self.store, self.publisher, policy, self.clock)

    def insert(self, number: int = 1, key: str | None = None) -> list[UUID]:
        ids = [uuid4() for _ in range(number)]
        for one in ids:
            self.store.insert(one, ordering_key=key)
        return ids

    def statuses(self) -> list[str]:
        return [one.status.value for one in self.store.stored.values()]

    async def marked(self, number: int) -> None:
        """Wait until that many marks took effect."""
        await self.store.until(lambda: self.store.marks_applied >= number)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pump.run(), name="pump")
            try:
                yield
            finally:
                self.publisher.gate.set()
                await self.pump.stop()


async def test_a_round_publishes_and_marks_what_is_due() -> None:
    """One round claims a batch, hands it over as one, and marks it."""
    bench = Bench()
    ids = bench.insert(3)
    done = await bench.pump.run_once()
    assert bench.publisher.batches == [ids]
    assert (done.claimed, done.marked[OutboxStatus.PUBLISHED], done.stale) == (3, 3, 0)
    assert (await bench.pump.run_once()).claimed == 0


async def test_outcomes_are_applied_row_by_row() -> None:
    """A batch in which each row comes to something else is marked row by row."""
    answers = iter(list[Outcome]([Delivered(), Retry("busy"), Dead("refused")]))
    bench = Bench(answer=lambda _: next(answers))
    bench.insert(3)
    await bench.pump.run_once()
    assert bench.statuses() == ["PUBLISHED", "FAILED", "DEAD"]


async def test_an_exception_of_the_publisher_is_a_counted_failure() -> None:
    """A publisher that breaks costs its rows an attempt and never ends the pump."""

    def break_down(_: OutboxRow) -> Outcome:
        raise OSError("no route")

    bench = Bench(answer=break_down)
    (outbox_id,) = bench.insert()
    await bench.pump.run_once()
    stored = bench.store.stored[outbox_id]
    assert (stored.status, stored.row.attempts) == (OutboxStatus.FAILED, 1)
    assert stored.last_error == "OSError: no route"


async def test_a_publisher_that_hangs_is_cut_off() -> None:
    """After the time-out the rows are tried again: their outcome is unknown."""
    bench = Bench(replace(POLICY, publish_timeout_s=0.01))
    bench.publisher.gate.clear()
    bench.insert()
    await bench.pump.run_once()
    assert bench.statuses() == ["FAILED"]


async def test_a_wrong_number_of_outcomes_is_a_defect() -> None:
    """Outcomes that cannot be told apart end the pump instead of marking the wrong rows."""
    bench = Bench()

    async def forget(rows: Sequence[OutboxRow]) -> Sequence[Outcome]:
        return [Delivered()] * (len(rows) - 1)

    bench.publisher.publish = forget  # type: ignore[method-assign]  # a broken publisher
    bench.insert(2)
    with pytest.raises(ExceptionGroup) as caught:
        await bench.pump.run_once()
    assert caught.group_contains(RuntimeError, match="2 rows gave 1 outcomes")
    assert bench.statuses() == ["PUBLISHING", "PUBLISHING"]


async def test_a_wake_up_publishes_at_once() -> None:
    """A row announced while the pump sleeps leaves without a poll."""
    bench = Bench()
    async with bench.running():
        bench.insert()
        bench.pump.wakeup.set()
        await bench.marked(1)
    assert bench.statuses() == ["PUBLISHED"]


async def test_a_batch_is_what_queued_while_the_previous_one_ran() -> None:
    """With one publish in flight, later rows wait together and leave together."""
    bench = Bench()
    async with bench.running():
        bench.publisher.gate.clear()
        first = bench.insert(1)
        bench.pump.wakeup.set()
        await bench.publisher.began.acquire()
        rest = bench.insert(4)
        bench.pump.wakeup.set()
        bench.publisher.gate.set()
        await bench.marked(5)
    assert bench.publisher.batches == [first, rest]


async def test_a_slow_publish_does_not_hold_up_the_others() -> None:
    """Publishes run side by side up to the bound, and never above it."""
    policy = replace(POLICY, rows_per_publish_max=1, publishes_in_flight_max=3)
    bench = Bench(policy)
    async with bench.running():
        bench.publisher.gate.clear()
        bench.insert(5)
        bench.pump.wakeup.set()
        for _ in range(3):
            await bench.publisher.began.acquire()
        assert bench.statuses().count("PUBLISHING") == 3
        bench.publisher.gate.set()
        await bench.marked(5)
    assert bench.publisher.running_max == 3


async def test_an_unreachable_destination_gets_one_probe_per_interval() -> None:
    """While the destination is lost nothing but one probe leaves, and attempts stay as they are."""
    bench = Bench(answer=lambda _: DestinationUnreachable("down"))
    bench.insert(5)
    assert (await bench.pump.run_once()).claimed == 5
    assert bench.pump.destination_lost
    bench.insert(5)
    assert (await bench.pump.run_once()).claimed == 0
    bench.clock.advance(5.0)
    assert (await bench.pump.run_once()).claimed == 1
    assert (await bench.pump.run_once()).claimed == 0
    assert {one.row.attempts for one in bench.store.stored.values()} == {0}


async def test_no_second_probe_leaves_while_one_is_under_way() -> None:
    """A probe that hangs is not joined by others, whatever free places and wake-ups there are."""
    policy = replace(POLICY, publishes_in_flight_max=4)
    bench = Bench(policy, answer=lambda _: DestinationUnreachable("down"))
    async with bench.running():
        bench.insert(5)
        bench.pump.wakeup.set()
        await bench.publisher.began.acquire()
        while not bench.pump.destination_lost:  # noqa: ASYNC110 - it only needs its turn
            await asyncio.sleep(0)
        bench.publisher.gate.clear()
        bench.clock.advance(5.0)
        bench.pump.wakeup.set()
        await bench.publisher.began.acquire()
        for _ in range(50):
            bench.pump.wakeup.set()
            await asyncio.sleep(0)
        assert [len(batch) for batch in bench.publisher.batches] == [5, 1]


async def test_the_first_success_makes_all_rows_due_at_once() -> None:
    """After the outage no row waits for its own due time."""
    bench = Bench(answer=lambda _: DestinationUnreachable("down"))
    bench.insert(4)
    await bench.pump.run_once()
    bench.clock.advance(4.0)
    bench.insert(1)
    bench.clock.advance(1.0)
    for one in list(bench.store.stored.values())[:4]:
        bench.store.stored[one.row.outbox_id] = replace(one, available_at_s=10_000.0)
    bench.publisher.answer = lambda _: Delivered()
    assert (await bench.pump.run_once()).claimed == 1
    assert not bench.pump.destination_lost
    assert (await bench.pump.run_once()).claimed == 4


async def test_idle_it_asks_once_per_interval_and_claims_nothing() -> None:
    """An idle pump makes one cheap query an interval, not a claim."""
    bench = Bench(replace(POLICY, idle_poll_s=0.001))
    async with bench.running():
        await bench.store.until(lambda: bench.store.next_due_calls >= 5)
    assert bench.store.claim_calls == 1


async def test_a_lone_row_costs_one_claim_and_one_mark() -> None:
    """Nothing is asked again after a delivered row that no other waits for."""
    bench = Bench(replace(POLICY, idle_poll_s=60.0))
    async with bench.running():
        await bench.store.until(lambda: bench.store.next_due_calls >= 1)
        claims, asked = bench.store.claim_calls, bench.store.next_due_calls
        bench.insert()
        bench.pump.wakeup.set()
        await bench.marked(1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert (bench.store.claim_calls - claims, bench.store.mark_calls) == (1, 1)
        assert bench.store.next_due_calls == asked


async def test_rows_of_one_key_follow_each_other_without_a_poll() -> None:
    """The next row of a key leaves when the one before is marked."""
    bench = Bench(replace(POLICY, idle_poll_s=60.0))
    async with bench.running():
        ids = bench.insert(4, key="order")
        bench.pump.wakeup.set()
        await bench.marked(4)
    assert bench.publisher.batches == [[one] for one in ids]


async def test_a_retry_leaves_at_its_due_time_without_a_wake_up() -> None:
    """The pump sleeps until the next due time, not until the next poll."""
    answers = iter(list[Outcome]([Retry("once"), Delivered()]))
    policy = replace(POLICY, back_off_s=lambda _: 0.01, idle_poll_s=60.0)
    bench = Bench(policy, answer=lambda _: next(answers))

    async with bench.running():
        bench.insert()
        bench.pump.wakeup.set()
        await bench.marked(1)
        bench.clock.advance(0.02)
        await bench.marked(2)
    assert bench.statuses() == ["PUBLISHED"]


class FlakyStore(MemoryOutboxStore):
    """Fails the first calls of each kind with a given error."""

    def __init__(self, policy: OutboxPolicy, clock: ManualClock, error: Exception) -> None:
        super().__init__(policy, clock)
        self.error = error
        self.claim_failures = 1
        self.mark_failures = 1

    async def claim(self, limit: int) -> Claimed:
        if self.claim_failures:
            self.claim_failures -= 1
            raise self.error
        return await super().claim(limit)

    async def mark(self, marks: Sequence[Mark]) -> frozenset[UUID]:
        if self.mark_failures:
            self.mark_failures -= 1
            raise self.error
        return await super().mark(marks)


def flaky_bench(error: Exception) -> Bench:
    bench = Bench()
    bench.store = FlakyStore(POLICY, bench.clock, error)
    bench.pump = OutboxPump(bench.store, bench.publisher, POLICY, bench.clock)
    return bench


async def test_a_store_that_is_away_for_a_moment_is_waited_for() -> None:
    """Claims and marks are repeated while the store cannot be reached."""
    bench = flaky_bench(UnavailableError("restarting"))
    async with bench.running():
        bench.insert()
        bench.pump.wakeup.set()
        await bench.marked(1)
    assert bench.statuses() == ["PUBLISHED"]


async def test_any_other_failure_of_the_store_ends_the_pump() -> None:
    """An error that no retry can cure is loud."""
    bench = flaky_bench(InternalError("no such table"))
    bench.insert()
    with pytest.raises(ExceptionGroup) as caught:
        await bench.pump.run()
    assert caught.group_contains(InternalError, match="no such table")


async def test_stopping_finishes_what_is_being_published() -> None:
    """Stop claims nothing more, and returns only when the last batch is marked."""
    bench = Bench()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(bench.pump.run(), name="pump")
        bench.publisher.gate.clear()
        bench.insert()
        bench.pump.wakeup.set()
        await bench.publisher.began.acquire()
        stopping = group.create_task(bench.pump.stop(), name="stop")
        await asyncio.sleep(0)
        assert not stopping.done()
        bench.insert()
        bench.publisher.gate.set()
        await stopping
        assert running.done()
    assert bench.statuses() == ["PUBLISHED", "PENDING"]
    await bench.pump.stop()


async def test_stop_is_legal_before_the_start() -> None:
    """A pump that was stopped first does not start."""
    bench = Bench()
    await bench.pump.stop()
    bench.insert()
    await bench.pump.run()
    assert bench.statuses() == ["PENDING"]


async def test_each_failpoint_of_the_pump_is_passed_in_order() -> None:
    """The crash matrix can strike before and after each step."""
    table = install_failpoints(POLICY.failpoints, {})
    try:
        bench = Bench()
        bench.insert()
        await bench.pump.run_once()
        assert tuple(table.hits) == POLICY.failpoints
    finally:
        uninstall_failpoints()


async def test_a_reply_lost_after_publishing_is_published_again() -> None:
    """An unknown outcome is a retry: at least once, never lost."""
    rules = {"TDP_FAILPOINTS": "test.publish.after=drop_reply@1"}
    install_failpoints(POLICY.failpoints, rules)
    try:
        bench = Bench()
        ids = bench.insert()
        await bench.pump.run_once()
        assert bench.statuses() == ["FAILED"]
        bench.clock.advance(2.0)
        await bench.pump.run_once()
        assert bench.statuses() == ["PUBLISHED"]
        assert bench.publisher.batches == [ids, ids]
    finally:
        uninstall_failpoints()
