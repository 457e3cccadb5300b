"""Whether the agent takes new work, and why not: it drains, it ends, or its disk is full."""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from node_agent.core.journal.domain import DrainMark
from node_agent.core.session.messages import Readiness


class NotReady(StrEnum):
    """Why no new work is taken; the first that holds is told."""

    SHUTTING_DOWN = "SHUTTING_DOWN"
    DRAINING = "DRAINING"
    DISK_FULL = "DISK_FULL"


class DiskState(Protocol):
    """Knows whether the last write found room."""

    @property
    def disk_is_full(self) -> bool:
        """Whether it did not."""
        ...


class AgentReadiness:
    """ReadinessSource; the drain mark is kept in the journal by whoever sets it here."""

    def __init__(
        self,
        drain: DrainMark | None,
        disk: DiskState,
        free_disk_bytes: Callable[[], int],
        disk_bytes_min: int,
    ) -> None:
        """Under `disk_bytes_min` of free disk no work is taken, so that results still fit."""
        self.drain = drain
        self.is_shutting_down = False
        self._disk = disk
        self._free_disk_bytes = free_disk_bytes
        self._disk_bytes_min = disk_bytes_min

    def not_ready(self) -> NotReady | None:
        """Return why no work is taken, None if it is."""
        return self.refusal() or (NotReady.DISK_FULL if self._disk.disk_is_full else None)

    def refusal(self) -> NotReady | None:
        """Return why a command is refused that can be stored, None if it is not.

        That the last write found no room says nothing of one that is stored.
        """
        if self.is_shutting_down:
            return NotReady.SHUTTING_DOWN
        if self.drain is not None:
            return NotReady.DRAINING
        if self._free_disk_bytes() < self._disk_bytes_min:
            return NotReady.DISK_FULL
        return None

    def readiness(self) -> Readiness:
        """See ReadinessSource."""
        why = self.not_ready()
        return Readiness(is_ready=why is None, reason="" if why is None else why.value)
