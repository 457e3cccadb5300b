"""The loop that asks the platform about gaps and quiet orders."""

from random import Random

from business_gateway.core.callbacks.compensation import Compensation
from foundation.backoff import BackoffPolicy
from foundation.lifecycle import DueLoop, LoopConfig


def compensation_loop(
    compensation: Compensation, random: Random, *, sleep_s_max: float, backoff_cap_s: float
) -> DueLoop:
    """Return the loop: woken by a gap, else when the next order has been quiet for too long."""
    config = LoopConfig(
        "compensation", sleep_s_max=sleep_s_max, backoff=BackoffPolicy(cap_s=backoff_cap_s)
    )
    return DueLoop(config, compensation.run_once, compensation.wakeup, random)
