"""What the machine is said to have, and how busy it is said to be."""

from __future__ import annotations

from pathlib import Path

import psutil

from node_agent.adapters.outbound.machine import LocalMachine
from node_agent.adapters.outbound.state_folder import StateFolder


def machine(folder: Path, gpu_count: int | None = None) -> LocalMachine:
    """A machine whose devices are the files of a folder."""
    devices = folder / "dev"
    devices.mkdir(exist_ok=True)
    return LocalMachine(StateFolder(folder), gpu_count, devices)


def test_gpus_are_counted_by_their_devices(tmp_path: Path) -> None:
    """Without a driver there is none; control devices are no GPUs; a setting has the last word."""
    assert machine(tmp_path).inventory().gpu_count == 0
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / "dev" / name).touch()
    assert machine(tmp_path).inventory().gpu_count == 2
    assert machine(tmp_path, gpu_count=1).inventory().gpu_count == 1


def test_use_of_the_cores_is_an_average_since_the_last_look(tmp_path: Path) -> None:
    """A core that works through is a core in use; two looks at once divide by nothing."""
    looked = machine(tmp_path)
    before = psutil.cpu_times()
    while sum(psutil.cpu_times()) - sum(before) < 0.2:
        sum(range(10_000))
    usage = looked.usage()
    assert 0 < usage.cpu_used_millis <= (psutil.cpu_count() or 1) * 1_000
    assert 0 <= looked.usage().cpu_used_millis <= (psutil.cpu_count() or 1) * 1_000
    assert usage.memory_available_bytes <= psutil.virtual_memory().total
    assert usage.disk_bytes == looked.free_disk_bytes()
