"""The loop that removes what was uploaded and never completed or committed."""

from collections.abc import Sequence
from random import Random
from typing import Protocol

from foundation.lifecycle import DueLoop, LoopConfig
from foundation.wakeup import Wakeup


class Leftovers(Protocol):
    """One kind of leftovers."""

    async def remove(self) -> bool:
        """Remove one batch; return whether there may be more."""
        ...


def leftovers_loop(kinds: Sequence[Leftovers], *, period_s: float, random: Random) -> DueLoop:
    """Return the loop: a batch of each kind at a time, at once again while there is more."""

    async def run_once() -> float:
        more = [await one.remove() for one in kinds]
        return 0.0 if any(more) else period_s

    config = LoopConfig("leftovers", sleep_s_max=period_s)
    return DueLoop(config, run_once, Wakeup(), random)
