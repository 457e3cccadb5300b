"""The child's side of a bond between processes: it ends with its parent, whatever ends that."""

import contextlib
import ctypes
import os
import signal
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_KILLED_FIRST: Final = "500"


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread of its parent that started it ends.

    To be called first thing in the child. Ends the process at once if the parent is already
    gone. Linux only; raises OSError if the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    signal_number = ctypes.c_ulong(signal.SIGKILL.value)
    if libc.prctl(_PR_SET_PDEATHSIG, signal_number, zero, zero, zero) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")
    # The parent may have ended before the line above, and then no signal will ever come.
    if os.getppid() != parent_pid:
        os._exit(1)


def be_killed_before_parent() -> None:
    """Ask the kernel to kill this process rather than its parent when memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_KILLED_FIRST, encoding="ascii")
