"""The engine's loop: advances what was hinted, as soon as it is."""

from random import Random
from typing import Final

from control_plane.core.engine.application import EngineDriver
from control_plane.core.wakeups import LocalHints
from foundation.lifecycle.loops import DueLoop, LoopConfig

NAME: Final = "engine"


def engine_loop(driver: EngineDriver, hints: LocalHints, random: Random) -> DueLoop:
    """Return the loop; it asks the database nothing unless somebody hinted."""
    return DueLoop(LoopConfig(NAME), driver.advance_hinted, hints.engine.wakeup, random)
