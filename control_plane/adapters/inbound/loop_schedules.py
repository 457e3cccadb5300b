"""The loop that turns the due times of schedules into tasks."""

from random import Random
from typing import Final

from control_plane.core.schedules.running import ScheduleRunner
from control_plane.core.wakeups import LocalHints
from foundation.lifecycle.loops import DueLoop, LoopConfig

NAME: Final = "schedules"


def schedules_loop(
    runner: ScheduleRunner, hints: LocalHints, random: Random, *, interval_s: float
) -> DueLoop:
    """Return the loop; it looks at the next due time, and every `interval_s` seconds.

    The latter is for schedules that another replica stored, and for tasks that were waited for.
    """
    return DueLoop(
        LoopConfig(NAME, sleep_s_max=interval_s), runner.run_once, hints.schedules, random
    )
