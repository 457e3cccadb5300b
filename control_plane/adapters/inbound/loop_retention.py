"""The loop that removes what is over for long enough."""

from random import Random

from control_plane.core.retention.application import PASS_INTERVAL_S, Retention
from foundation.lifecycle.loops import DueLoop, LoopConfig
from foundation.wakeup import Wakeup


def retention_loop(retention: Retention, random: Random) -> DueLoop:
    """Return the loop: a batch of each kind at a time, with a pause between batches."""
    config = LoopConfig("retention", sleep_s_max=PASS_INTERVAL_S)
    return DueLoop(config, retention.run_once, Wakeup(), random)
