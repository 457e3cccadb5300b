"""Wake-ups: remembered, merged, and cleared before the query they announce."""

import asyncio

from foundation.wakeup import Wakeup


async def test_a_wakeup_set_before_waiting_is_not_lost() -> None:
    """What was announced while the loop was busy ends the next wait at once."""
    wakeup = Wakeup()
    wakeup.set()
    assert await wakeup.wait(60.0)


async def test_many_sets_count_as_one() -> None:
    """After one wait, however many announcements came, nothing is pending."""
    wakeup = Wakeup()
    wakeup.set()
    wakeup.set()
    assert await wakeup.wait(60.0)
    assert not wakeup.pending
    assert not await wakeup.wait(0.0)


async def test_cleared_before_the_query() -> None:
    """A set between the return of wait and the next wait (the query) stays pending."""
    wakeup = Wakeup()
    wakeup.set()
    await wakeup.wait(60.0)
    wakeup.set()
    assert await wakeup.wait(0.0)


async def test_timeout_answers_false() -> None:
    """Without an announcement the wait ends by its time-out and says so."""
    assert not await Wakeup().wait(0.001)


async def test_a_waiter_is_woken() -> None:
    """A waiting loop is woken by a later set."""
    wakeup = Wakeup()
    async with asyncio.TaskGroup() as group:
        waiter = group.create_task(wakeup.wait(), name="waiter")
        await asyncio.sleep(0)
        wakeup.set()
    assert waiter.result()


async def test_a_busy_loop_lets_others_run() -> None:
    """Waiting on a flag that is always up still yields to other tasks."""
    wakeup = Wakeup()
    ran = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0), name="other").add_done_callback(lambda _: ran.set())
        for _ in range(5):
            wakeup.set()
            await wakeup.wait()
        assert ran.is_set()
