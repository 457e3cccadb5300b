"""Several relays on one real outbox: nothing twice at a time, nothing skipped, keys in order."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from random import Random
from uuid import UUID, uuid4

import pytest

from foundation.clock import SystemClock
from foundation.outbox.model import Delivered, Mark, OutboxRow, OutboxStatus, Outcome, Retry
from foundation.outbox.policy import OutboxPolicy
from foundation.outbox.postgres_store import PostgresOutboxStore
from foundation.outbox.pump import OutboxPump
from foundation.postgres.pool import Connection, Database
from tests.contract.outbox.harness import TABLE, NewRow, PostgresHarness
from tests.fixtures.databases import FreshDatabase

POLICY = OutboxPolicy(
    "test",
    back_off_s=lambda _: 0.01,
    batch_size_max=16,
    rows_per_publish_max=4,
    publishes_in_flight_max=3,
    idle_poll_s=0.2,
)
INSERT = f"insert into {TABLE} (outbox_id, ordering_key, destination, payload) values ($1, $2, 'stream', $3)"  # noqa: S608, E501 - a constant of these tests


class SharedPublisher:
    """Stands for the next owner: fails at random, and notes who published what and when."""

    def __init__(self, expected: int, fail_share: float = 0.0) -> None:
        self.expected = expected
        self.in_flight: set[UUID] = set()
        self.delivered: list[OutboxRow] = []
        self.together: list[UUID] = []
        self.all_delivered = asyncio.Event()
        self._random = Random(7)
        self._fail_share = fail_share

    async def publish(self, rows: Sequence[OutboxRow]) -> Sequence[Outcome]:
        ids = {row.outbox_id for row in rows}
        self.together += ids & self.in_flight
        self.in_flight |= ids
        await asyncio.sleep(0)
        self.in_flight -= ids
        return [self._outcome(row) for row in rows]

    def _outcome(self, row: OutboxRow) -> Outcome:
        if self._random.random() < self._fail_share:
            return Retry("try again")
        self.delivered.append(row)
        if len(self.delivered) >= self.expected:
            self.all_delivered.set()
        return Delivered()


@pytest.fixture
async def harness(postgres_database: FreshDatabase) -> AsyncIterator[PostgresHarness]:
    opened = PostgresHarness(POLICY, postgres_database.dsn)
    await opened.open()
    yield opened
    await opened.close()


async def run_pumps(
    harness: PostgresHarness, publisher: SharedPublisher, number: int, policy: OutboxPolicy = POLICY
) -> list[OutboxPump]:
    """Run pumps side by side until everything expected is delivered."""
    store = PostgresOutboxStore(harness.database, policy, table=TABLE)
    pumps = [OutboxPump(store, publisher, policy, SystemClock()) for _ in range(number)]
    async with asyncio.TaskGroup() as group:
        for pump in pumps:
            group.create_task(pump.run())
        await publisher.all_delivered.wait()
        await asyncio.gather(*(pump.stop() for pump in pumps))
    return pumps


async def test_two_pumps_never_publish_the_same_claim(harness: PostgresHarness) -> None:
    """Every row is published exactly once while both are well, and never by both at a time."""
    rows = [NewRow(uuid4()) for _ in range(300)]
    await harness.insert(*rows)
    publisher = SharedPublisher(len(rows))
    pumps = await run_pumps(harness, publisher, 2)
    assert sorted(row.outbox_id for row in publisher.delivered) == sorted(
        row.outbox_id for row in rows
    )
    assert publisher.together == []
    assert all(pump.counts["stale"] == 0 for pump in pumps)
    assert (await harness.store().depth()).publishing == 0


async def test_keys_stay_in_order_with_failures_and_three_pumps(harness: PostgresHarness) -> None:
    """Rows of one key are delivered in the order of their insertion, whoever delivers them."""
    keys = [f"order-{number}" for number in range(12)]
    rows = [NewRow(uuid4(), keys[number % 12], payload=str(number)) for number in range(120)]
    await harness.insert(*rows)
    publisher = SharedPublisher(len(rows), fail_share=0.3)
    await run_pumps(harness, publisher, 3)
    by_key: dict[str | None, list[int]] = defaultdict(list)
    for row in publisher.delivered:
        by_key[row.ordering_key].append(int(row.payload))
    assert publisher.together == []
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert sum(len(numbers) for numbers in by_key.values()) == 120


async def test_a_row_of_a_slow_transaction_is_not_skipped(
    harness: PostgresHarness, database: Database
) -> None:
    """F14: a row with a low position, committed after higher ones were published, still leaves."""
    late, early = uuid4(), uuid4()
    async with AsyncExitStack() as stack:
        slow = await stack.enter_async_context(database.transaction())
        await slow.execute(INSERT, late, None, "late")
        await harness.insert(NewRow(early))
        claimed = await harness.store().claim(10)
        assert [row.outbox_id for row in claimed.rows] == [early]
        await harness.store().mark([done(row) for row in claimed.rows])
        assert await harness.store().next_due_in_s() is None
    (row,) = (await harness.store().claim(10)).rows
    assert row.outbox_id == late


async def test_a_claim_does_not_wait_for_locked_rows(
    harness: PostgresHarness, database: Database
) -> None:
    """A row that another transaction holds is passed over, not waited for."""
    locked, free = uuid4(), uuid4()
    await harness.insert(NewRow(locked), NewRow(free))
    lock = f"select 1 from {TABLE} where outbox_id = $1 for update"  # noqa: S608 - a constant
    async with database.transaction() as connection:
        await connection.execute(lock, locked)
        claimed = await harness.store().claim(10)
        assert [row.outbox_id for row in claimed.rows] == [free]
    claimed = await harness.store().claim(10)
    assert [row.outbox_id for row in claimed.rows] == [locked]


async def test_claims_that_race_share_the_rows(harness: PostgresHarness) -> None:
    """Of claims made at the same moment no two get the same row, and none is left over."""
    await harness.insert(*(NewRow(uuid4(), f"key-{one % 40}") for one in range(80)))
    claims = await asyncio.gather(*(harness.store().claim(10) for _ in range(8)))
    ids = [row.outbox_id for claimed in claims for row in claimed.rows]
    keys = [row.ordering_key for claimed in claims for row in claimed.rows]
    assert len(ids) == len(set(ids))
    assert len(keys) == len(set(keys))


async def test_what_a_dead_pump_claimed_is_taken_over(harness: PostgresHarness) -> None:
    """F01: a pump that dies while publishing loses nothing; its late mark changes nothing."""
    (outbox_id,) = (uuid4(),)
    await harness.insert(NewRow(outbox_id, "order"))
    (stale,) = (await harness.store().claim(1)).rows
    await harness.advance(POLICY.claim_ttl_s + 1.0)
    publisher = SharedPublisher(1)
    await run_pumps(harness, publisher, 1)
    assert [row.outbox_id for row in publisher.delivered] == [outbox_id]
    late = Mark(outbox_id, stale.claim_id, OutboxStatus.DEAD, 1, error="late")
    assert await harness.store().mark([late]) == frozenset()


async def test_extra_columns_reach_the_publisher(
    harness: PostgresHarness, database: Database
) -> None:
    """A table's own columns pass through, by name and untouched."""
    await database.fetch(f"alter table {TABLE} add column subject text default 'orders.created'")
    await harness.insert(NewRow(uuid4()))
    (row,) = (await harness.store().claim(1)).rows
    assert row.extra == {"subject": "orders.created"}


async def test_the_owner_is_told_in_the_marking_transaction(
    harness: PostgresHarness, database: Database
) -> None:
    """The owner's own change and the mark are one: both are there, or neither."""
    told: list[UUID] = []

    async def count_dead(connection: Connection, marks: Sequence[Mark]) -> None:
        told.extend(mark.outbox_id for mark in marks)
        await connection.execute("insert into counter (id, n) values (1, $1)", len(marks))

    store = PostgresOutboxStore(database, POLICY, table=TABLE, after_mark=count_dead)
    await harness.insert(NewRow(uuid4()), NewRow(uuid4()))
    first, second = (await store.claim(2)).rows
    stale = replace(done(second), claim_id=uuid4())
    assert await store.mark([done(first), stale]) == {first.outbox_id}
    assert told == [first.outbox_id]
    with pytest.raises(Exception, match="duplicate key"):
        await store.mark([done(second)])
    assert (await harness.columns(second.outbox_id))["status"] == "PUBLISHING"


def done(row: OutboxRow) -> Mark:
    return Mark(row.outbox_id, row.claim_id, OutboxStatus.PUBLISHED)
