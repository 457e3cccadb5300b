"""Random histories: every store does what the one-row-at-a-time reference in memory does."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from foundation.outbox.model import SET_ASIDE_STATUSES, Mark, OutboxRow, OutboxStatus
from foundation.outbox.policy import OutboxPolicy
from tests.contract.outbox.conftest import HarnessMaker
from tests.contract.outbox.harness import MemoryHarness, NewRow, OutboxHarness

# Times are so coarse that the seconds which a real database takes decide nothing.
UNIT_S = 1_000.0
POLICY = OutboxPolicy("test", back_off_s=lambda _: UNIT_S, claim_ttl_s=3 * UNIT_S, claims_max=2)
STEPS = 60


class History:
    """Does the same random steps to two outboxes, and compares after each."""

    def __init__(self, seed: int, real: OutboxHarness, reference: MemoryHarness) -> None:
        self._random = Random(seed)
        self._both = (real, reference)
        self._ids: list[UUID] = []
        self._claims: list[tuple[OutboxRow, OutboxRow]] = []

    async def run(self) -> None:
        steps = (self.insert, self.claim, self.claim, self.mark, self.mark, self.age, self.operate)
        for _ in range(STEPS):
            await self._random.choice(steps)()
            await self.compare()

    async def insert(self) -> None:
        keys = [None, "a", "b", "c"]
        rows = [
            NewRow(
                UUID(int=self._random.getrandbits(128)),
                key := self._random.choice(keys),
                f"at-{key}",
            )
            for _ in range(self._random.randint(1, 4))
        ]
        self._ids += [row.outbox_id for row in rows]
        for harness in self._both:
            await harness.insert(*rows)

    async def claim(self) -> None:
        real, reference = [await harness.store().claim(1_000) for harness in self._both]
        found = {row.outbox_id: row for row in real.rows}
        wanted = {row.outbox_id: row for row in reference.rows}
        assert set(real.quarantined_ids) == set(reference.quarantined_ids)
        assert {one: facts(row) for one, row in found.items()} == {
            one: facts(row) for one, row in wanted.items()
        }
        self._claims += [(row, wanted[one]) for one, row in found.items()]

    async def mark(self) -> None:
        """Mark some claims, of which some are stale or marked already."""
        chosen = self._random.sample(self._claims, min(len(self._claims), 3))
        # No row twice in one call, whatever claims of it there are.
        pairs = {real.outbox_id: (real, wanted) for real, wanted in chosen}.values()
        fates = [self._fate() for _ in pairs]
        applied = [
            await harness.store().mark(
                [
                    replace(fate, outbox_id=pair[side].outbox_id, claim_id=pair[side].claim_id)
                    for pair, fate in zip(pairs, fates, strict=True)
                ]
            )
            for side, harness in enumerate(self._both)
        ]
        assert applied[0] == applied[1]

    def _fate(self) -> Mark:
        nobody = UUID(int=0)
        due_in_s = UNIT_S * self._random.randint(0, 2)
        held = self._random.random() < 0.3
        return self._random.choice(
            [
                Mark(nobody, nobody, OutboxStatus.PUBLISHED),
                Mark(nobody, nobody, OutboxStatus.FAILED, 1, due_in_s, error="failed"),
                Mark(nobody, nobody, OutboxStatus.FAILED, 0, due_in_s, held, error="held"),
                Mark(nobody, nobody, OutboxStatus.DEAD, 1, error="dead"),
            ]
        )

    async def age(self) -> None:
        seconds = UNIT_S * self._random.randint(1, 2)
        for harness in self._both:
            await harness.advance(seconds)

    async def operate(self) -> None:
        if self._random.random() < 0.5:
            destination = f"at-{self._random.choice([None, 'a', 'b', 'c'])}"
            for harness in self._both:
                await harness.store().release(destination)
        else:
            ids = self._random.sample(self._ids, min(len(self._ids), 3))
            real, reference = [await harness.store().redrive(ids) for harness in self._both]
            assert real == reference

    async def compare(self) -> None:
        real, reference = self._both
        for one in self._ids:
            assert compared(await real.columns(one)) == compared(await reference.columns(one))
        due_in_s = [await harness.store().next_due_in_s() for harness in self._both]
        rounded = [None if due is None else round(due / UNIT_S) for due in due_in_s]
        assert rounded[0] == rounded[1]


def facts(row: OutboxRow) -> tuple[object, ...]:
    return row.ordering_key, row.destination, row.attempts, row.claims, row.redriven


def compared(columns: Mapping[str, object]) -> tuple[object, ...]:
    """What must agree; a real store may hold waiting rows, which is seen only in due times."""
    names = ("status", "attempts", "claims", "last_error")
    aside = columns["status"] in {status.value for status in SET_ASIDE_STATUSES}
    return *(columns[name] for name in names), aside


@pytest.mark.parametrize("dead_blocks", [False, True])
@pytest.mark.parametrize("seed", range(4))
async def test_a_random_history_is_that_of_the_reference(
    make_harness: HarnessMaker, seed: int, *, dead_blocks: bool
) -> None:
    """Claims, marks, take-overs, quarantine, release and redrive agree after every step."""
    policy = replace(POLICY, dead_blocks=dead_blocks)
    history = History(seed, await make_harness(policy), MemoryHarness(policy))
    await history.run()
