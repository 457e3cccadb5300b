"""Writes folded progress at most once a second."""

from random import Random
from typing import Final

from control_plane.core.nodes.application import ProgressBoard
from control_plane.core.nodes.ports import LeaseStore
from control_plane.core.wakeups import LocalHints
from foundation.clock import Clock
from foundation.lifecycle.loops import DueLoop, LoopConfig

INTERVAL_S: Final = 1.0


class ProgressWrites:
    """Writes the board; what cannot be written now is lost, and the next report tells more."""

    def __init__(
        self, board: ProgressBoard, leases: LeaseStore, hints: LocalHints, clock: Clock
    ) -> None:
        self._board = board
        self._leases = leases
        self._hints = hints
        self._clock = clock
        self._next_at_s = clock.monotonic()

    def loop(self, random: Random) -> DueLoop:
        """Return the loop; it asks nothing of the database while nobody reports."""
        config = LoopConfig("progress-writes", sleep_s_max=3600.0)
        return DueLoop(config, self.run_once, self._board.wakeup, random)

    async def run_once(self) -> float | None:
        """Write what was folded, if the last write is a second ago."""
        early_s = self._next_at_s - self._clock.monotonic()
        if early_s > 0:
            return early_s
        marks = self._board.take()
        if marks:
            self._next_at_s = self._clock.monotonic() + INTERVAL_S
            self._hints.engine.add(sorted(await self._leases.write_progress(marks)))
        return None
