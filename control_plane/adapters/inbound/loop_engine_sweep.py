"""The engine's sweep: finds executions whose due time has come, and what no hint announced."""

from random import Random
from typing import Final

from control_plane.core.engine.application import EngineDriver
from foundation.lifecycle.loops import DueLoop, LoopConfig

NAME: Final = "engine-sweep"


def engine_sweep_loop(driver: EngineDriver, random: Random, *, interval_s: float) -> DueLoop:
    """Return the loop; it looks every `interval_s` seconds, or sooner for a known due time."""

    async def run_once() -> float:
        return await driver.sweep(interval_s)

    return DueLoop(LoopConfig(NAME, sleep_s_max=interval_s), run_once, driver.due_wakeup, random)
