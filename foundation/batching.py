"""A coalescing queue: a batch is whatever queued while the previous batch ran.

A lone item never waits, and a burst shares its transactions.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from foundation.errors import ResourceExhaustedError, TdpError, UnavailableError
from foundation.postgres.errors import is_connection_loss, may_run_again, rejects_item
from foundation.wakeup import Wakeup

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class BatcherStoppedError(UnavailableError):
    """The queue is not running (any more); whether the item took effect may be unknown."""

    reason = "BATCHER_STOPPED"


class BatcherFullError(ResourceExhaustedError):
    """Too many items wait already; nothing was queued."""

    reason = "BATCHER_FULL"


def is_rejection(error: BaseException) -> bool:
    """Whether an item is refused for good: a final domain error, or its data is at fault.

    Store such an item with its error and acknowledge it as rejected; leave an item with any
    other failure unacknowledged, so that it is tried again.
    """
    return rejects_item(error) or (isinstance(error, TdpError) and not error.retryable)


def strikes_whole_batch(error: BaseException) -> bool:
    """Whether no single item can be to blame: connection lost or unavailable, or a deadlock."""
    return isinstance(error, UnavailableError) or is_connection_loss(error) or may_run_again(error)


@dataclass(slots=True, eq=False)
class _Waiting(Generic[ItemT, ResultT]):
    item: ItemT
    future: "asyncio.Future[ResultT]"


class Batcher(Generic[ItemT, ResultT]):
    """Runs queued items in batches, one batch at a time, each in one transaction.

    `run_batch` gets the items in arrival order and returns one result for each, in the same
    order; it either does all of them or raises and has done none. When it raises, the items
    run singly, unless the whole batch was struck (`strikes_whole_batch`): then each of them
    fails with that error.
    """

    def __init__(
        self,
        name: str,
        run_batch: Callable[[Sequence[ItemT]], Awaitable[Sequence[ResultT]]],
        *,
        batch_size_max: int = 500,
        queue_size_max: int = 20_000,
    ) -> None:
        """Prepare; items are taken only while `run` runs, in a task of the caller's."""
        self._name = name
        self._run_batch = run_batch
        self._batch_size_max = batch_size_max
        self._queue_size_max = queue_size_max
        self._queue: deque[_Waiting[ItemT, ResultT]] = deque()
        self._wakeup = Wakeup()
        self._stopping = False
        self._running = False
        self._ended = asyncio.Event()

    @property
    def queue_size(self) -> int:
        """Items that wait for the batch that now runs to end."""
        return len(self._queue)

    async def submit(self, item: ItemT) -> ResultT:
        """Queue an item and return its result, or raise its own error.

        Raises BatcherFullError or BatcherStoppedError when it cannot be queued. Cancelling
        the caller takes an item that has not begun out of the queue; one that has, runs on.
        """
        if self._stopping:
            raise BatcherStoppedError(f"queue {self._name} is stopped: retry with the same key")
        if len(self._queue) >= self._queue_size_max:
            raise BatcherFullError(
                f"queue {self._name} holds {len(self._queue)} items already: retry later",
                retry_delay_s=1.0,
            )
        future: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(item, future))
        self._wakeup.set()
        return await future

    async def run(self) -> None:
        """Serve the queue until `stop`; on cancellation the waiting items fail."""
        self._running = True
        try:
            while self._queue or not self._stopping:
                if not self._queue:
                    await self._wakeup.wait()
                else:
                    await self._serve(self._take())
        finally:
            self._stopping = True
            self._running = False
            self._abandon(self._queue)
            self._ended.set()

    async def stop(self) -> None:
        """Refuse new items, finish the queued ones, and return when `run` has ended."""
        self._stopping = True
        self._wakeup.set()
        if self._running:
            await self._ended.wait()
        self._abandon(self._queue)

    def _take(self) -> list[_Waiting[ItemT, ResultT]]:
        batch: list[_Waiting[ItemT, ResultT]] = []
        while self._queue and len(batch) < self._batch_size_max:
            waiting = self._queue.popleft()
            # A caller that was cancelled meanwhile has cancelled its future.
            if not waiting.future.done():
                batch.append(waiting)
        return batch

    async def _serve(self, batch: list[_Waiting[ItemT, ResultT]]) -> None:
        try:
            await self._serve_together(batch)
        finally:
            self._abandon(batch)

    async def _serve_together(self, batch: list[_Waiting[ItemT, ResultT]]) -> None:
        if not batch:
            return
        try:
            results = await self._results([waiting.item for waiting in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to the submitters
            if len(batch) == 1 or strikes_whole_batch(error):
                _fail(batch, error)
            else:
                await self._serve_singly(batch)
        else:
            for waiting, result in zip(batch, results, strict=True):
                _succeed(waiting, result)

    async def _serve_singly(self, batch: list[_Waiting[ItemT, ResultT]]) -> None:
        for number, waiting in enumerate(batch):
            try:
                (result,) = await self._results([waiting.item])
            except Exception as error:  # noqa: BLE001 - belongs to the submitter
                if strikes_whole_batch(error):
                    _fail(batch[number:], error)
                    return
                _fail([waiting], error)
            else:
                _succeed(waiting, result)

    async def _results(self, items: list[ItemT]) -> Sequence[ResultT]:
        results = await self._run_batch(items)
        if len(results) != len(items):
            raise RuntimeError(
                f"queue {self._name}: {len(items)} items gave {len(results)} results: "
                "a batch function returns one for each"
            )
        return results

    def _abandon(
        self, waiting_items: "Sequence[_Waiting[ItemT, ResultT]] | deque[_Waiting[ItemT, ResultT]]"
    ) -> None:
        message = f"queue {self._name} stopped: retry with the same key"
        _fail(list(waiting_items), BatcherStoppedError(message))


def _succeed(waiting: _Waiting[ItemT, ResultT], result: ResultT) -> None:
    if not waiting.future.done():
        waiting.future.set_result(result)


def _fail(batch: Sequence[_Waiting[ItemT, ResultT]], error: Exception) -> None:
    for waiting in batch:
        if not waiting.future.done():
            waiting.future.set_exception(error)
