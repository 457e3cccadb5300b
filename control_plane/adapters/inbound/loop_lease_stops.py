"""The sweep over attempts past their run time-out."""

from random import Random

from control_plane.adapters.inbound.loop_lease_expiry import SWEEP_INTERVAL_S, sweep_sleep_s
from control_plane.core.nodes.leases import LeaseFigures
from control_plane.core.nodes.ports import LeaseStore
from control_plane.core.wakeups import LocalHints
from foundation.lifecycle.loops import DueLoop, LoopConfig
from foundation.wakeup import Wakeup


class RunTimeouts:
    """Orders attempts past their run time-out to stop; their nodes or leases end them."""

    def __init__(self, leases: LeaseStore, hints: LocalHints, figures: LeaseFigures) -> None:
        self._leases = leases
        self._hints = hints
        self._figures = figures

    def loop(self, random: Random, sweep_interval_s: float = SWEEP_INTERVAL_S) -> DueLoop:
        """Return the loop."""
        config = LoopConfig("run-timeouts", sweep_sleep_s(self._figures, sweep_interval_s))
        return DueLoop(config, self.run_once, Wakeup(), random)

    async def run_once(self) -> float | None:
        """Sweep once; return the seconds until the next time-out, None without one."""
        done, aftermath = await self._leases.stop_overdue()
        aftermath.give(self._hints)
        if done.more:
            return 0.0
        due_in_s = done.next_due_in_s
        return None if due_in_s is None else max(due_in_s, self._figures.stamp_interval_s)
