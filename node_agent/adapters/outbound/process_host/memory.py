"""What the child knows and bounds of its own memory, by the kernel's books."""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# Over the limit on what is resident there must be room for what is mapped and never touched:
# stacks of threads, arenas of the allocator. The agent's watch over resident memory is exact
# and slow, this cap is coarse and immediate: one huge allocation fails instead of the machine.
_CAP_ROOM_BYTES: Final = 512 * 1024 * 1024
_RESET_PEAK: Final = "5"


def reset_peak_memory() -> bool:
    """Begin a new measurement of the peak; False where the kernel cannot."""
    try:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK, encoding="ascii")
    except OSError:
        return False
    return True


def peak_memory_bytes() -> int:
    """The most memory that was resident since the reset."""
    return _status_bytes("VmHWM")


@contextlib.contextmanager
def capped_memory(limit_bytes: int | None) -> Iterator[None]:
    """Bound, inside the block, the data that may be mapped; beyond it there is a MemoryError."""
    if limit_bytes is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    cap = _status_bytes("VmData") + limit_bytes + _CAP_ROOM_BYTES
    if hard != resource.RLIM_INFINITY:
        cap = min(cap, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (cap, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _status_bytes(name: str) -> int:
    """A figure of /proc/self/status, which counts in kB of 1,024 bytes; 0 if it is not there."""
    for line in (
        Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    ):
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1_024
    return 0
