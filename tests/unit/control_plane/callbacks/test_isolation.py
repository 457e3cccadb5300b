"""How much of the relay an endpoint may hold."""

import asyncio

from control_plane.core.callbacks.isolation import SILENT_AFTER_S, EndpointLoads
from foundation.clock import ManualClock


def _loads() -> tuple[EndpointLoads, ManualClock]:
    clock = ManualClock()
    return EndpointLoads(clock, silent_max=4, failing_max=2), clock


async def _begun(loads: EndpointLoads, key: str, count: int) -> int:
    return sum(await asyncio.gather(*(loads.begin(key) for _ in range(count))))


async def test_a_silent_endpoint_gets_its_share_and_leaves_the_rest() -> None:
    """Until it answers, no more than the share begins; another endpoint is not touched by it."""
    loads, _ = _loads()
    assert await _begun(loads, "dead", 10) == 4
    assert await _begun(loads, "alive", 3) == 3


async def test_an_endpoint_that_answers_has_no_bound() -> None:
    """Right after an answer any number may begin, and those that were turned away come again."""
    loads, clock = _loads()
    await _begun(loads, "a", 5)
    assert loads.ended("a", delivered=True)
    assert not loads.ended("a", delivered=True), "they are called once"
    assert await _begun(loads, "a", 100) == 100
    clock.advance(SILENT_AFTER_S * 2)
    assert await _begun(loads, "a", 1) == 0


async def test_a_burst_waits_for_the_first_answer_and_then_goes() -> None:
    """Whoever finds the share taken goes on at the answer, and is not put back."""
    loads, _ = _loads()
    assert await _begun(loads, "a", 4) == 4
    async with asyncio.TaskGroup() as group:
        burst = group.create_task(_begun(loads, "a", 50))
        await asyncio.sleep(0)
        assert not loads.ended("a", delivered=True)
    assert burst.result() == 50


async def test_a_failing_endpoint_is_only_probed() -> None:
    """After a failure two may be under way, until one is delivered."""
    loads, _ = _loads()
    assert await _begun(loads, "a", 4) == 4
    for _ in range(4):
        assert not loads.ended("a", delivered=False)
    assert loads.is_failing("a")
    assert await _begun(loads, "a", 10) == 2
    assert loads.ended("a", delivered=True)
    assert not loads.is_failing("a")
    assert await _begun(loads, "a", 10) == 10
