"""Loops: due times, wake-ups, errors outlived, and stops that wait for the work in hand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import SystemRandom

import pytest

from foundation.backoff import BackoffPolicy
from foundation.lifecycle import DueLoop, LoopConfig, periodic
from foundation.wakeup import Wakeup

QUICK = BackoffPolicy(base_s=0.001, cap_s=0.001)


class Work:
    """Counts its runs and lets a test wait for them."""

    def __init__(self, due_s: float | None = None) -> None:
        self.runs = 0
        self._due_s = due_s
        self._ran = asyncio.Condition()

    async def __call__(self) -> float | None:
        """Run once."""
        async with self._ran:
            self.runs += 1
            self._ran.notify_all()
        return self._due_s

    async def until(self, runs: int) -> None:
        """Return once there have been so many runs."""
        async with self._ran:
            await self._ran.wait_for(lambda: self.runs >= runs)


@asynccontextmanager
async def looping(
    run_once: Callable[[], Awaitable[float | None]], config: LoopConfig, wakeup: Wakeup
) -> AsyncIterator[DueLoop]:
    """Run a loop for the length of the block."""
    loop = DueLoop(config, run_once, wakeup, SystemRandom())
    async with asyncio.TaskGroup() as group:
        await loop.start()
        group.create_task(loop.run(), name=loop.name)
        try:
            yield loop
        finally:
            await loop.stop()


async def test_it_runs_at_once_and_then_only_when_woken() -> None:
    """Without a due time the loop sleeps until its wake-up."""
    work, wakeup = Work(), Wakeup()
    async with looping(work, LoopConfig("l", sleep_s_max=3_600.0), wakeup):
        await work.until(1)
        for _ in range(10):
            await asyncio.sleep(0)
        assert work.runs == 1
        wakeup.set()
        await work.until(2)


async def test_it_runs_again_when_due() -> None:
    """A due time, even a distant sweep's bound, ends the sleep by itself."""
    due, swept = Work(due_s=0.001), Work(due_s=3_600.0)
    async with (
        looping(due, LoopConfig("due"), Wakeup()),
        looping(swept, LoopConfig("swept", sleep_s_max=0.001), Wakeup()),
    ):
        await due.until(3)
        await swept.until(3)


async def test_transient_errors_are_outlived() -> None:
    """A run that raises is repeated after a back-off, and a success resets the count."""
    work = Work(due_s=0.0)

    async def flaky() -> float | None:
        due_s = await work()
        if work.runs % 2:
            raise ConnectionError("the database is away")
        return due_s

    async with looping(flaky, LoopConfig("l", backoff=QUICK), Wakeup()):
        await work.until(6)


async def test_wakeups_do_not_shorten_a_back_off() -> None:
    """Work that keeps being announced does not turn a failing loop into a busy one."""
    work, wakeup = Work(), Wakeup()

    async def broken() -> float | None:
        await work()
        raise ConnectionError("away")

    slow = BackoffPolicy(base_s=3_600.0, cap_s=3_600.0)
    async with looping(broken, LoopConfig("l", backoff=slow), wakeup):
        await work.until(1)
        for _ in range(20):
            wakeup.set()
            await asyncio.sleep(0)
        assert work.runs == 1


async def test_a_fatal_error_ends_the_loop() -> None:
    """An error declared fatal is raised, so that the process stops."""

    async def broken() -> float | None:
        raise OSError("disk I/O error")

    loop = DueLoop(LoopConfig("l", fatal_errors=(OSError,)), broken, Wakeup(), SystemRandom())
    with pytest.raises(OSError, match="disk"):
        await loop.run()
    await loop.stop()


async def test_stop_waits_for_the_run_in_hand() -> None:
    """A run in progress is finished, not cancelled, before stop returns."""
    entered, leave = asyncio.Event(), asyncio.Event()
    finished: list[bool] = []

    async def slow() -> float | None:
        entered.set()
        await leave.wait()
        finished.append(True)
        return None

    async with looping(slow, LoopConfig("l"), Wakeup()) as loop:
        await entered.wait()
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(loop.stop(), name="stop")
            await asyncio.sleep(0)
            assert not stopping.done()
            leave.set()
        assert finished == [True]
        await loop.stop()


async def test_stop_before_run_is_legal() -> None:
    """A loop stopped before it ran never runs."""
    work = Work()
    loop = DueLoop(LoopConfig("l"), work, Wakeup(), SystemRandom())
    await loop.stop()
    await loop.run()
    assert work.runs == 0


async def test_periodic_repeats() -> None:
    """A periodic loop runs at once and again after each period."""
    work = Work()

    async def run_once() -> None:
        await work()

    loop = periodic(LoopConfig("p"), run_once, period_s=0.001, random=SystemRandom())
    async with asyncio.TaskGroup() as group:
        group.create_task(loop.run(), name="p")
        await work.until(3)
        await loop.stop()
