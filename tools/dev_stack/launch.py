"""Become a server: tie this process's life to its parent's, leave root if asked, then exec.

Run as a script by processes.py, one argument of JSON and then the command. It imports only the
standard library and none of ours, since it starts once per server before anything else is known.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any, Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_KEEPCAPS: Final = 8
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_RAISE: Final = 2
CLONE_NEWUSER: Final = 0x10000000
LINUX_CAPABILITY_VERSION_3: Final = 0x20080522


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilityWord(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def _call(function: str, *arguments: Any) -> None:
    """Call the C library, and raise OSError if it answers anything but 0."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc[function](*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


def _prctl(option: int, second: int = 0, third: int = 0) -> None:
    zero = ctypes.c_ulong(0)
    _call("prctl", option, ctypes.c_ulong(second), ctypes.c_ulong(third), zero, zero)


def _keep_only(capability: int | None) -> None:
    """Give up every capability but the given one, which survives the exec."""
    words = (_CapabilityWord * 2)()
    if capability is not None:
        bit = 1 << (capability % 32)
        words[capability // 32] = _CapabilityWord(bit, bit, bit)
    header = _CapabilityHeader(LINUX_CAPABILITY_VERSION_3, 0)
    _call("capset", ctypes.byref(header), words)
    if capability is not None:
        _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability)


def _switch_user(uid: int, gid: int, capability: int | None) -> None:
    _prctl(PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _keep_only(capability)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib would double the start time of this script
        file.write(text)


def _enter_namespace(uid: int, gid: int) -> None:
    """Stay the same user for the kernel's files, but be called another inside."""
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    _call("unshare", CLONE_NEWUSER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {outer_uid} 1")
    _write("/proc/self/gid_map", f"{gid} {outer_gid} 1")


def _change_identity(identity: dict[str, Any]) -> None:
    if identity["way"] == "switch":
        _switch_user(identity["uid"], identity["gid"], identity["capability"])
    elif identity["way"] == "namespace":
        _enter_namespace(identity["uid"], identity["gid"])


def main() -> None:
    """Read the order from the arguments and become the command."""
    order = json.loads(sys.argv[1])
    command = sys.argv[2:]
    _change_identity(order["identity"])
    # After the change of user, which clears it; the exec of a plain program keeps it.
    _prctl(PR_SET_PDEATHSIG, order["death_signal"])
    # The parent may have died before the line above, and then no signal will ever come.
    if os.getppid() != order["parent_pid"]:
        sys.exit(1)
    # The interpreter ignores these two, and an ignored signal stays ignored across exec.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.execve(command[0], command, dict(os.environ))  # noqa: S606 - no shell is the point


if __name__ == "__main__":
    main()
