"""The sweep over leases that ran out."""

from random import Random
from typing import Final

from control_plane.core.nodes.leases import LeaseFigures
from control_plane.core.nodes.ports import LeaseStore
from control_plane.core.wakeups import LocalHints
from foundation.lifecycle.loops import DueLoop, LoopConfig
from foundation.wakeup import Wakeup

SWEEP_INTERVAL_S: Final = 5.0


def sweep_sleep_s(figures: LeaseFigures, sweep_interval_s: float = SWEEP_INTERVAL_S) -> float:
    """Return the longest sleep of a sweep: short leases are looked at more often."""
    return min(sweep_interval_s, figures.lease_ttl_s / 4)


class LeaseExpiry:
    """Ends attempts whose leases ran out, soon after they did."""

    def __init__(self, leases: LeaseStore, hints: LocalHints, figures: LeaseFigures) -> None:
        self._leases = leases
        self._hints = hints
        self._figures = figures

    def loop(self, random: Random, sweep_interval_s: float = SWEEP_INTERVAL_S) -> DueLoop:
        """Return the loop."""
        config = LoopConfig("lease-expiry", sweep_sleep_s(self._figures, sweep_interval_s))
        return DueLoop(config, self.run_once, Wakeup(), random)

    async def run_once(self) -> float | None:
        """Sweep once; return the seconds until the next lease can run out, None without one."""
        done, aftermath = await self._leases.expire()
        aftermath.give(self._hints)
        if done.more:
            return 0.0
        due_in_s = done.next_due_in_s
        # Renewals keep moving the next end away: asking more often would be a poll.
        return None if due_in_s is None else max(due_in_s, self._figures.stamp_interval_s)
