"""The coalescing queue: batches, failures, and the same results as one item at a time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.batching import (
    Batcher,
    BatcherFullError,
    BatcherStoppedError,
    is_rejection,
    strikes_whole_batch,
)
from foundation.errors import InvalidArgumentError, NotFoundError, UnavailableError
from foundation.postgres.errors import ConnectionLostError

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


@asynccontextmanager
async def running(batcher: Batcher[ItemT, ResultT]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        group.create_task(batcher.run(), name="batcher")
        yield
        await batcher.stop()


class Gated:
    """A batch function that waits for its gate and remembers its batches."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.began = asyncio.Semaphore(0)
        self.batches: list[list[int]] = []

    async def run(self, items: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(items))
        self.began.release()
        await self.gate.wait()
        return [item * 10 for item in items]


async def test_a_batch_is_what_queued_while_the_previous_one_ran() -> None:
    """A lone item leaves at once, and a burst behind it leaves together, in order."""
    gated = Gated()
    batcher = Batcher("test", gated.run)
    async with running(batcher), asyncio.TaskGroup() as group:
        first = group.create_task(batcher.submit(1))
        await gated.began.acquire()
        rest = [group.create_task(batcher.submit(item)) for item in (2, 3, 4)]
        while batcher.queue_size < 3:  # noqa: ASYNC110 - the submits only need their turn
            await asyncio.sleep(0)
        gated.gate.set()
        assert await first == 10
        assert [await one for one in rest] == [20, 30, 40]
    assert gated.batches == [[1], [2, 3, 4]]


async def test_a_batch_has_a_largest_size() -> None:
    """A burst is cut so that one transaction stays small."""
    gated = Gated()
    gated.gate.set()
    batcher = Batcher("test", gated.run, batch_size_max=2)
    submits = [asyncio.ensure_future(batcher.submit(item)) for item in range(5)]
    await asyncio.sleep(0)
    async with running(batcher):
        await asyncio.gather(*submits)
    assert gated.batches == [[0, 1], [2, 3], [4]]


class Ledger:
    """A stand-in for a table: a batch is applied whole or not at all."""

    def __init__(self) -> None:
        self.stored: list[int] = []
        self.runs: list[list[int]] = []

    async def run(self, items: Sequence[int]) -> Sequence[str]:
        self.runs.append(list(items))
        await asyncio.sleep(0)
        results, written = [], []
        for item in items:
            if item < 0:
                raise InvalidArgumentError(f"{item} is negative")
            if item in self.stored or item in written:
                results.append(f"{item} replayed")
                continue
            written.append(item)
            results.append(f"{item} created")
        self.stored += written
        return results


async def outcomes(batcher: Batcher[int, str], items: Sequence[int]) -> list[object]:
    submits = [asyncio.ensure_future(batcher.submit(item)) for item in items]
    await asyncio.sleep(0)
    async with running(batcher):
        results = await asyncio.gather(*submits, return_exceptions=True)
    return [str(one) for one in results]


async def test_one_bad_item_rejects_only_itself() -> None:
    """A batch that fails runs singly, so that its good items succeed."""
    ledger = Ledger()
    results = await outcomes(Batcher("test", ledger.run), [1, -2, 3])
    assert results == ["1 created", "-2 is negative", "3 created"]
    assert ledger.runs == [[1, -2, 3], [1], [-2], [3]]


@given(st.lists(st.integers(-2, 5), max_size=12), st.integers(1, 5))
def test_batches_do_what_single_items_do(items: list[int], batch_size_max: int) -> None:
    """Whatever the batches, results and stored facts are those of one item at a time."""

    async def both() -> None:
        batched, single = Ledger(), Ledger()
        together = await outcomes(
            Batcher("test", batched.run, batch_size_max=batch_size_max), items
        )
        singly = await outcomes(Batcher("test", single.run, batch_size_max=1), items)
        assert (together, batched.stored) == (singly, single.stored)

    asyncio.run(both())


async def test_a_lost_connection_strikes_the_whole_batch() -> None:
    """When no item can be to blame, none is tried singly: each gets the retryable error."""
    runs: list[int] = []

    async def lose(items: Sequence[int]) -> Sequence[str]:
        runs.append(len(items))
        raise ConnectionLostError("gone")

    results = await outcomes(Batcher("test", lose), [1, 2, 3])
    assert results == ["gone"] * 3
    assert runs == [3]


async def test_a_connection_lost_among_single_items_ends_the_batch() -> None:
    """The items behind the loss fail with it, without a try each."""
    runs: list[list[int]] = []

    async def lose_second(items: Sequence[int]) -> Sequence[str]:
        runs.append(list(items))
        if len(items) > 1:
            raise InvalidArgumentError("a bad one among them")
        if items[0] >= 2:
            raise ConnectionLostError("gone")
        return ["done"]

    assert await outcomes(Batcher("test", lose_second), [1, 2, 3]) == ["done", "gone", "gone"]
    assert runs == [[1, 2, 3], [1], [2]]


async def test_a_full_queue_refuses() -> None:
    """Memory is bounded: above the bound the caller is told to come back."""
    batcher = Batcher("test", Gated().run, queue_size_max=1)
    waiting = asyncio.ensure_future(batcher.submit(1))
    await asyncio.sleep(0)
    with pytest.raises(BatcherFullError, match="holds 1 items"):
        await batcher.submit(2)
    await batcher.stop()
    with pytest.raises(BatcherStoppedError):
        await waiting


async def test_stopping_finishes_what_is_queued_and_refuses_more() -> None:
    """Stop returns when the queue is empty and the last batch has ended."""
    gated = Gated()
    batcher = Batcher("test", gated.run)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(batcher.run())
        submit = group.create_task(batcher.submit(1))
        await gated.began.acquire()
        stopping = group.create_task(batcher.stop())
        await asyncio.sleep(0)
        with pytest.raises(BatcherStoppedError):
            await batcher.submit(2)
        gated.gate.set()
        await stopping
        assert serving.done()
        assert await submit == 10
    await batcher.stop()


async def test_cancelling_the_queue_fails_whoever_waits() -> None:
    """No submitter waits for ever when the process ends."""
    gated = Gated()
    batcher = Batcher("test", gated.run)
    serving = asyncio.ensure_future(batcher.run())
    submits = [asyncio.ensure_future(batcher.submit(1))]
    await gated.began.acquire()
    submits.append(asyncio.ensure_future(batcher.submit(2)))
    await asyncio.sleep(0)
    serving.cancel()
    results = await asyncio.gather(*submits, return_exceptions=True)
    assert [type(one) for one in results] == [BatcherStoppedError, BatcherStoppedError]
    with pytest.raises(asyncio.CancelledError):
        await serving


async def test_a_cancelled_submit_is_not_run() -> None:
    """An item whose caller has gone before its batch began is left out."""
    gated = Gated()
    gated.gate.set()
    batcher = Batcher("test", gated.run)
    first = asyncio.ensure_future(batcher.submit(1))
    second = asyncio.ensure_future(batcher.submit(2))
    await asyncio.sleep(0)
    first.cancel()
    async with running(batcher):
        assert await second == 20
    assert gated.batches == [[2]]


def test_only_final_domain_errors_and_bad_data_reject() -> None:
    """SQLSTATE classes 22 and 23 and final domain errors reject; all else is tried again."""
    assert is_rejection(NotFoundError("no such order"))
    assert is_rejection(asyncpg.UniqueViolationError("twice"))
    assert is_rejection(asyncpg.NumericValueOutOfRangeError("too big"))
    assert not is_rejection(UnavailableError("later"))
    assert not is_rejection(asyncpg.DeadlockDetectedError("again"))
    assert not is_rejection(RuntimeError("a defect"))


def test_lost_connections_and_deadlocks_strike_the_whole_batch() -> None:
    """They say nothing about any single item."""
    assert strikes_whole_batch(ConnectionLostError("gone"))
    assert strikes_whole_batch(asyncpg.DeadlockDetectedError("again"))
    assert not strikes_whole_batch(asyncpg.UniqueViolationError("twice"))
