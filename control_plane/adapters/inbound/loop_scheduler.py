"""The scheduler's loop: serves requests when told of new ones or of freed capacity."""

from random import Random
from typing import Final

from control_plane.core.scheduling.application import PARKED_SWEEP_INTERVAL_S, Scheduler
from control_plane.core.wakeups import LocalHints
from foundation.lifecycle.loops import DueLoop, LoopConfig

NAME: Final = "scheduler"


def scheduler_loop(scheduler: Scheduler, hints: LocalHints, random: Random) -> DueLoop:
    """Return the loop."""
    config = LoopConfig(NAME, sleep_s_max=PARKED_SWEEP_INTERVAL_S)
    return DueLoop(config, scheduler.run_once, hints.scheduler, random)
