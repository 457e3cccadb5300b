"""The loop that removes result files that were never committed."""

from random import Random

from business_gateway.core.resources.sweeping import LeftPlaces
from foundation.lifecycle import DueLoop, LoopConfig
from foundation.wakeup import Wakeup


def left_places_loop(places: LeftPlaces, *, period_s: float, random: Random) -> DueLoop:
    """Return the loop: a batch at a time, at once again while there is more."""

    async def run_once() -> float:
        return 0.0 if await places.remove() else period_s

    config = LoopConfig("left-places", sleep_s_max=period_s)
    return DueLoop(config, run_once, Wakeup(), random)
