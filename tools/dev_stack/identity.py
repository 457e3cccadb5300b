"""Decide which user a server runs as, for a server that refuses to run as root."""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tools.dev_stack.errors import UnprivilegedUserError

CAP_CHOWN: Final = 0
CAP_DAC_OVERRIDE: Final = 1
CAP_DAC_READ_SEARCH: Final = 2
CAP_SETGID: Final = 6
CAP_SETUID: Final = 7

UNPRIVILEGED_ACCOUNT: Final = "nobody"
"""Exists on every distribution, so that no account has to be made on the machine."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a child is: `keep` the user, `switch` to another, or be renamed in a `namespace`.

    `capability` is the only right of root that a switched child keeps: passing folders that its
    user could not, such as a home folder of mode 0700. None where its user can pass them all.
    """

    way: Literal["keep", "switch", "namespace"] = "keep"
    uid: int = 0
    gid: int = 0
    capability: int | None = None

    @property
    def file_owner(self) -> tuple[int, int] | None:
        """User and group that must own the server's files; None if they are the parent's."""
        return (self.uid, self.gid) if self.way == "switch" else None


def choose_identity(data_folder: Path, program: Path) -> Identity:
    """Answer how to run `program`, which refuses root, on `data_folder`.

    An ordinary user keeps its identity. Root switches to the user that owns the folder already,
    or else to an unprivileged account; where it may not, or the account is not mapped (a
    container with one user only), it is renamed in a user namespace.

    Raises:
        UnprivilegedUserError: the machine knows no unprivileged account.
    """
    if os.geteuid() != 0:
        return Identity()
    account = _account(data_folder)
    held = _held_capabilities()
    if not ({CAP_CHOWN, CAP_SETUID, CAP_SETGID} <= held and _is_mapped(account.pw_uid)):
        return Identity("namespace", account.pw_uid, account.pw_gid)
    capability = _needed_capability(account.pw_uid, data_folder, program, held)
    return Identity("switch", account.pw_uid, account.pw_gid, capability)


def _account(data_folder: Path) -> pwd.struct_passwd:
    try:
        owner = data_folder.stat().st_uid if data_folder.exists() else 0
        return pwd.getpwuid(owner) if owner != 0 else pwd.getpwnam(UNPRIVILEGED_ACCOUNT)
    except KeyError as error:
        raise UnprivilegedUserError(UNPRIVILEGED_ACCOUNT, f"no such account ({error})") from None


def _needed_capability(
    uid: int, data_folder: Path, program: Path, held: frozenset[int]
) -> int | None:
    program_open = _others_may(program, stat.S_IROTH | stat.S_IXOTH)
    if program_open and _can_reach(uid, data_folder) and _can_reach(uid, program):
        return None
    # Reading and passing is the smaller right; running a file closed to others needs the larger,
    # and containers often have only that one.
    if program_open and CAP_DAC_READ_SEARCH in held:
        return CAP_DAC_READ_SEARCH
    if CAP_DAC_OVERRIDE in held:
        return CAP_DAC_OVERRIDE
    problem = f"it may not pass the folders above {data_folder} or {program}"
    raise UnprivilegedUserError(UNPRIVILEGED_ACCOUNT, problem)


def _can_reach(uid: int, path: Path) -> bool:
    """Whether `uid` may pass each folder above `path`, judged by mode bits."""
    return all(_can_pass(uid, folder) for folder in path.resolve().parents)


def _can_pass(uid: int, folder: Path) -> bool:
    if folder.stat().st_uid == uid:
        return bool(folder.stat().st_mode & stat.S_IXUSR)
    return _others_may(folder, stat.S_IXOTH)


def _others_may(path: Path, bits: int) -> bool:
    return path.stat().st_mode & bits == bits


def _held_capabilities() -> frozenset[int]:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            mask = int(line.split()[1], 16)
            return frozenset(bit for bit in range(64) if mask >> bit & 1)
    return frozenset()


def _is_mapped(uid: int) -> bool:
    """Whether this user namespace knows `uid`."""
    rows = (line.split() for line in Path("/proc/self/uid_map").read_text().splitlines())
    return any(int(first) <= uid < int(first) + int(count) for first, _, count in rows)
