"""What every outbox store promises, whatever holds the rows."""

from dataclasses import replace
from uuid import UUID, uuid4

from foundation.outbox.model import Mark, OutboxRow, OutboxStatus
from foundation.outbox.policy import OutboxPolicy
from tests.contract.outbox.conftest import HarnessMaker
from tests.contract.outbox.harness import NewRow, OutboxHarness

POLICY = OutboxPolicy(
    "test",
    back_off_s=lambda attempts: 2.0**attempts,
    claim_ttl_s=60.0,
    claims_max=3,
)


def published(row: OutboxRow) -> Mark:
    return Mark(row.outbox_id, row.claim_id, OutboxStatus.PUBLISHED)


def failed(row: OutboxRow, due_in_s: float = 8.0, *, held: bool = False) -> Mark:
    added = 0 if held else 1
    return Mark(
        row.outbox_id, row.claim_id, OutboxStatus.FAILED, added, due_in_s, held, error="refused"
    )


def dead(row: OutboxRow) -> Mark:
    return Mark(row.outbox_id, row.claim_id, OutboxStatus.DEAD, 1, error="never")


async def insert_one(harness: OutboxHarness, key: str | None = None) -> UUID:
    outbox_id = uuid4()
    await harness.insert(NewRow(outbox_id, key))
    return outbox_id


async def claimed_ids(harness: OutboxHarness, limit: int = 100) -> list[UUID]:
    claimed = await harness.store().claim(limit)
    return [row.outbox_id for row in claimed.rows]


async def test_claims_in_order_of_arrival_up_to_the_limit(make_harness: HarnessMaker) -> None:
    """The oldest due rows come first, each with its content and one claim."""
    harness = await make_harness(POLICY)
    ids = [uuid4() for _ in range(5)]
    for number, outbox_id in enumerate(ids):
        await harness.insert(NewRow(outbox_id, f"k{number}", "stream", f'{{"n": {number}}}'))
    claimed = await harness.store().claim(3)
    assert [row.outbox_id for row in claimed.rows] == ids[:3]
    assert [row.payload for row in claimed.rows] == ['{"n": 0}', '{"n": 1}', '{"n": 2}']
    assert {(row.claims, row.attempts) for row in claimed.rows} == {(1, 0)}
    assert await claimed_ids(harness) == ids[3:]


async def test_a_claimed_row_is_not_claimed_again_before_its_expiry(
    make_harness: HarnessMaker,
) -> None:
    """Another relay takes a row over only when its claim has expired."""
    harness = await make_harness(POLICY)
    outbox_id = await insert_one(harness)
    await claimed_ids(harness)
    await harness.advance(59.0)
    assert await claimed_ids(harness) == []
    await harness.advance(1.5)
    assert await claimed_ids(harness) == [outbox_id]


async def test_a_published_row_is_final(make_harness: HarnessMaker) -> None:
    """A delivered row is never claimed again and is not open any more."""
    harness = await make_harness(POLICY)
    outbox_id = await insert_one(harness)
    (row,) = (await harness.store().claim(1)).rows
    assert await harness.store().mark([published(row)]) == {outbox_id}
    await harness.advance(1_000.0)
    assert await claimed_ids(harness) == []
    assert await harness.store().next_due_in_s() is None
    assert (await harness.columns(outbox_id))["status"] == "PUBLISHED"


async def test_a_stale_claim_marks_nothing(make_harness: HarnessMaker) -> None:
    """The mark of a relay whose row was taken over changes nothing, and it is told so."""
    harness = await make_harness(POLICY)
    outbox_id = await insert_one(harness)
    (stale,) = (await harness.store().claim(1)).rows
    await harness.advance(61.0)
    (current,) = (await harness.store().claim(1)).rows
    assert stale.claim_id != current.claim_id
    assert await harness.store().mark([published(stale)]) == frozenset()
    assert await harness.store().mark([dead(stale)]) == frozenset()
    assert (await harness.columns(outbox_id))["status"] == "PUBLISHING"
    assert await harness.store().mark([published(current)]) == {outbox_id}


async def test_a_second_mark_of_one_claim_does_nothing(make_harness: HarnessMaker) -> None:
    """A mark that is repeated, as after a lost reply, counts no second attempt."""
    harness = await make_harness(POLICY)
    outbox_id = await insert_one(harness)
    (row,) = (await harness.store().claim(1)).rows
    assert await harness.store().mark([failed(row)]) == {outbox_id}
    assert await harness.store().mark([failed(row)]) == frozenset()
    assert (await harness.columns(outbox_id))["attempts"] == 1


async def test_marks_of_one_batch_differ(make_harness: HarnessMaker) -> None:
    """One call marks rows with different outcomes, and skips unknown rows."""
    harness = await make_harness(POLICY)
    ids = [await insert_one(harness) for _ in range(3)]
    first, second, third = (await harness.store().claim(3)).rows
    unknown = replace(published(first), outbox_id=uuid4())
    marks = [published(first), failed(second), dead(third), unknown]
    assert await harness.store().mark(marks) == set(ids)
    states = [(await harness.columns(one))["status"] for one in ids]
    assert states == ["PUBLISHED", "FAILED", "DEAD"]
    assert await harness.store().mark([]) == frozenset()


async def test_a_failed_row_waits_and_counts(make_harness: HarnessMaker) -> None:
    """Marking FAILED adds an attempt, clears the claims and sets the next due time."""
    harness = await make_harness(POLICY)
    outbox_id = await insert_one(harness)
    (row,) = (await harness.store().claim(1)).rows
    await harness.store().mark([failed(row, due_in_s=8.0)])
    columns = await harness.columns(outbox_id)
    assert (columns["attempts"], columns["claims"], columns["last_error"]) == (1, 0, "refused")
    due_in_s = await harness.store().next_due_in_s()
    assert due_in_s is not None
    assert 6.0 < due_in_s <= 8.0
    await harness.advance(7.0)
    assert await claimed_ids(harness) == []
    await harness.advance(1.5)
    (again,) = (await harness.store().claim(1)).rows
    assert (again.outbox_id, again.attempts) == (outbox_id, 1)


async def test_claims_without_an_answer_quarantine_the_row(make_harness: HarnessMaker) -> None:
    """A row that was claimed `claims_max` times without a mark is set aside, and said to be."""
    harness = await make_harness(POLICY)
    outbox_id = await insert_one(harness)
    for _ in range(POLICY.claims_max):
        assert await claimed_ids(harness) == [outbox_id]
        await harness.advance(61.0)
    claimed = await harness.store().claim(1)
    assert (claimed.rows, claimed.quarantined_ids) == ((), (outbox_id,))
    columns = await harness.columns(outbox_id)
    assert columns["status"] == "QUARANTINED"
    assert "claimed 3 times" in str(columns["last_error"])
    await harness.advance(1_000.0)
    assert await harness.store().claim(1) == type(claimed)()


async def test_a_mark_clears_the_count_of_claims(make_harness: HarnessMaker) -> None:
    """Claims that are answered never quarantine, however many there are."""
    harness = await make_harness(POLICY)
    await insert_one(harness)
    for _ in range(POLICY.claims_max + 2):
        (row,) = (await harness.store().claim(1)).rows
        await harness.store().mark([failed(row, due_in_s=0.0)])
        await harness.advance(0.01)


async def test_a_key_leaves_in_order(make_harness: HarnessMaker) -> None:
    """Of one key only the first undelivered row is claimable; other keys are not held up."""
    harness = await make_harness(POLICY)
    first, second = await insert_one(harness, "a"), await insert_one(harness, "a")
    other, free = await insert_one(harness, "b"), await insert_one(harness)
    claimed = await harness.store().claim(10)
    assert [row.outbox_id for row in claimed.rows] == [first, other, free]
    assert await claimed_ids(harness) == []
    await harness.store().mark([failed(claimed.rows[0], due_in_s=30.0)])
    assert await claimed_ids(harness) == []
    await harness.advance(31.0)
    (again,) = (await harness.store().claim(1)).rows
    assert again.outbox_id == first
    await harness.store().mark([published(again)])
    assert await claimed_ids(harness) == [second]


async def test_a_blocked_row_is_not_called_due(make_harness: HarnessMaker) -> None:
    """The time to sleep is that of rows that can be claimed, else a relay would spin."""
    harness = await make_harness(POLICY)
    await insert_one(harness, "a")
    await insert_one(harness, "a")
    assert await harness.store().next_due_in_s() == 0.0
    (row,) = (await harness.store().claim(10)).rows
    due_in_s = await harness.store().next_due_in_s()
    assert due_in_s is not None
    assert 50.0 < due_in_s <= 60.0
    await harness.store().mark([failed(row, due_in_s=300.0)])
    due_in_s = await harness.store().next_due_in_s()
    assert due_in_s is not None
    assert 290.0 < due_in_s <= 300.0


async def test_a_dead_row_blocks_only_if_the_policy_says_so(make_harness: HarnessMaker) -> None:
    """By default the rows behind a dead one go on: the receiver sees the gap."""
    harness = await make_harness(POLICY)
    await insert_one(harness, "a")
    second = await insert_one(harness, "a")
    (row,) = (await harness.store().claim(10)).rows
    await harness.store().mark([dead(row)])
    assert await claimed_ids(harness) == [second]


async def test_with_dead_blocks_a_dead_row_holds_its_key(make_harness: HarnessMaker) -> None:
    """The rows behind a dead one wait until it is driven again, which blocks nothing more."""
    harness = await make_harness(replace(POLICY, dead_blocks=True))
    first, second = await insert_one(harness, "a"), await insert_one(harness, "a")
    (row,) = (await harness.store().claim(10)).rows
    await harness.store().mark([dead(row)])
    assert await claimed_ids(harness) == []
    assert await harness.store().next_due_in_s() is None
    assert await harness.store().redrive([first]) == {first}
    assert set(await claimed_ids(harness)) == {first, second}


async def test_redriving_starts_over_and_blocks_nothing(make_harness: HarnessMaker) -> None:
    """A row driven again is due at once with no attempts, and is marked so for good."""
    harness = await make_harness(POLICY)
    first, second = await insert_one(harness, "a"), await insert_one(harness, "a")
    (row,) = (await harness.store().claim(10)).rows
    await harness.store().mark([dead(row)])
    assert await harness.store().redrive([first, second, uuid4()]) == {first}
    claimed = await harness.store().claim(10)
    assert {row.outbox_id for row in claimed.rows} == {first, second}
    again = next(row for row in claimed.rows if row.outbox_id == first)
    assert (again.attempts, again.claims, again.redriven) == (0, 1, True)


async def test_releasing_makes_the_held_rows_of_one_destination_due(
    make_harness: HarnessMaker,
) -> None:
    """Only rows that wait for that destination become due, not those in their own back-off."""
    harness = await make_harness(POLICY)
    ids = [uuid4() for _ in range(3)]
    places = ["here", "here", "elsewhere"]
    await harness.insert(*(NewRow(one, None, at) for one, at in zip(ids, places, strict=True)))
    rows = {row.outbox_id: row for row in (await harness.store().claim(3)).rows}
    held, own, elsewhere = (rows[one] for one in ids)
    await harness.store().mark(
        [failed(held, 600.0, held=True), failed(own, 600.0), failed(elsewhere, 600.0, held=True)]
    )
    assert (await harness.columns(ids[0]))["held"] is True
    assert await harness.store().release("here") == 1
    assert await claimed_ids(harness) == [ids[0]]
    assert (await harness.columns(ids[0]))["held"] is False
    assert (await harness.columns(ids[0]))["attempts"] == 0


async def test_a_held_row_that_is_claimed_is_held_no_more(make_harness: HarnessMaker) -> None:
    """Once its own time has come a held row is a row like any other."""
    harness = await make_harness(POLICY)
    outbox_id = await insert_one(harness)
    (row,) = (await harness.store().claim(1)).rows
    await harness.store().mark([failed(row, 10.0, held=True)])
    await harness.advance(11.0)
    assert await claimed_ids(harness) == [outbox_id]
    assert (await harness.columns(outbox_id))["held"] is False
    assert await harness.store().release("stream") == 0


async def test_depth_counts_by_state_and_age(make_harness: HarnessMaker) -> None:
    """Operators see how many rows are where, and how long the oldest open one has waited."""
    harness = await make_harness(POLICY)
    assert (await harness.store().depth()).oldest_open_age_s is None
    for _ in range(5):
        await insert_one(harness)
    first, second, third, _ = (await harness.store().claim(4)).rows
    await harness.store().mark([published(first), failed(second), dead(third)])
    await harness.advance(100.0)
    depth = await harness.store().depth()
    counts = (depth.pending, depth.publishing, depth.failed, depth.dead, depth.quarantined)
    assert counts == (1, 1, 1, 1, 0)
    assert depth.oldest_open_age_s is not None
    assert 100.0 <= depth.oldest_open_age_s < 120.0


async def test_delivered_rows_are_removed_by_age_in_bounded_batches(
    make_harness: HarnessMaker,
) -> None:
    """Retention takes old delivered rows only, and not more than it is allowed at a time."""
    harness = await make_harness(POLICY)
    for _ in range(4):
        await insert_one(harness)
    rows = (await harness.store().claim(4)).rows
    await harness.store().mark([published(row) for row in rows[:3]])
    assert await harness.store().remove_published(3_600.0, 10) == 0
    await harness.advance(4_000.0)
    assert await harness.store().remove_published(3_600.0, 2) == 2
    assert await harness.store().remove_published(3_600.0, 2) == 1
    assert (await harness.store().depth()).publishing == 1
