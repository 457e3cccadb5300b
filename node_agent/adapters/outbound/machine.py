"""What the machine has and how busy it is, and its clock that also counts while it sleeps."""

import re
import time
from pathlib import Path
from typing import Final

import psutil

from node_agent.adapters.outbound.state_folder import StateFolder
from node_agent.core.session.messages import Inventory, MachineUsage

_MILLIS: Final = 1_000
# Linux only; elsewhere the plain monotonic clock has to do.
_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_DEVICES: Final = Path("/dev")
_GPU_DEVICE: Final = re.compile(r"nvidia\d+")


class LocalMachine:
    """Machine, by way of the operating system."""

    def __init__(
        self, folder: StateFolder, gpu_count: int | None = None, devices: Path = _DEVICES
    ) -> None:
        """Disk means that of the state folder; `gpu_count` is counted in `devices` if None."""
        self._folder = folder
        self._gpu_count = gpu_count
        self._devices = devices
        self._cpu_before = psutil.cpu_times()

    def inventory(self) -> Inventory:
        """See Machine: cores that this process may use, all memory, free disk, GPUs."""
        return Inventory(
            cpu_millis=len(psutil.Process().cpu_affinity() or [0]) * _MILLIS,
            memory_bytes=psutil.virtual_memory().total,
            disk_bytes=self.free_disk_bytes(),
            gpu_count=self._counted_gpus() if self._gpu_count is None else self._gpu_count,
        )

    def _counted_gpus(self) -> int:
        """Count the devices that this process could open, which a container may have hidden."""
        return sum(bool(_GPU_DEVICE.fullmatch(one.name)) for one in self._devices.iterdir())

    def usage(self) -> MachineUsage:
        """See Machine."""
        before, now = self._cpu_before, psutil.cpu_times()
        self._cpu_before = now
        all_s = sum(now) - sum(before)
        idle_s = now.idle + now.iowait - before.idle - before.iowait
        share = min(max(1.0 - idle_s / all_s, 0.0), 1.0) if all_s > 0 else 0.0
        return MachineUsage(
            cpu_used_millis=round(share * (psutil.cpu_count() or 1) * _MILLIS),
            memory_available_bytes=psutil.virtual_memory().available,
            disk_bytes=self.free_disk_bytes(),
        )

    def free_disk_bytes(self) -> int:
        """Free disk in the state folder."""
        return self._folder.free_bytes()

    def boot_clock_s(self) -> float:
        """See Machine."""
        return time.clock_gettime(_BOOT_CLOCK)
