"""What the machine has, and its clock that also counts while it sleeps."""

import time
from typing import Final

import psutil

from node_agent.adapters.outbound.state_folder import StateFolder
from node_agent.core.session.messages import Inventory

_MILLIS: Final = 1_000
# Linux only; elsewhere the plain monotonic clock has to do.
_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class LocalMachine:
    """Machine, by way of the operating system."""

    def __init__(self, folder: StateFolder) -> None:
        """Disk means that of the state folder."""
        self._folder = folder

    def inventory(self) -> Inventory:
        """See Machine: cores that this process may use, all memory, free disk."""
        return Inventory(
            cpu_millis=len(psutil.Process().cpu_affinity() or [0]) * _MILLIS,
            memory_bytes=psutil.virtual_memory().total,
            disk_bytes=self.free_disk_bytes(),
        )

    def free_disk_bytes(self) -> int:
        """See Machine."""
        return self._folder.free_bytes()

    def boot_clock_s(self) -> float:
        """See Machine."""
        return time.clock_gettime(_BOOT_CLOCK)
