"""What a decoded name may look like: relative, going nowhere but down, free of tricks."""

import re
from bisect import bisect_right
from collections.abc import Iterable
from enum import StrEnum

from node_agent.capabilities.archive_clean.limits import NAME_BYTES_MAX
from node_agent.capabilities.archive_clean.refusals import (
    ArchiveRefusedError,
    RefusalReason,
    quoted,
)

# Finder names the file of a folder's own icon "Icon" + carriage return; no other name may.
MAC_ICON_NAMES = frozenset({"Icon\r", "._Icon\r"})

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DRIVE = re.compile(r"[A-Za-z]:")
_BIDIRECTIONAL = re.compile("[\u202a-\u202e\u2066-\u2069]")
_DEVICE = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\..*)?", re.IGNORECASE
)


class NameWarning(StrEnum):
    """What is odd about a name that is kept all the same."""

    WINDOWS_DEVICE_NAME = "WINDOWS_DEVICE_NAME"
    BIDIRECTIONAL_OVERRIDE = "BIDIRECTIONAL_OVERRIDE"


def safe_path(name: str) -> str:
    """The name with `/` as its only separator and without empty and `.` segments.

    A directory keeps its slash at the end; the root itself (`./`) becomes the empty path.

    Raises:
        ArchiveRefusedError: ARCHIVE_UNSAFE_PATH.
    """
    path = name.replace("\\", "/")
    problem = _problem(path)
    if problem is not None:
        raise ArchiveRefusedError(
            RefusalReason.UNSAFE_PATH,
            f"entry {quoted(name)} {problem}; rename it and pack the files anew",
        )
    segments = [segment for segment in path.split("/") if segment not in {"", "."}]
    slash = "/" if segments and path.endswith(("/", "/.")) else ""
    return "/".join(segments) + slash


def _problem(path: str) -> str | None:
    segments = path.split("/")
    if not path:
        return "has no name"
    if len(path.encode()) > NAME_BYTES_MAX:
        return f"has a name of {len(path.encode())} bytes, over the {NAME_BYTES_MAX} allowed"
    if path.startswith("/"):
        return "is an absolute path"
    if _DRIVE.match(path):
        return "starts with a drive letter"
    if ".." in segments:
        return "climbs out of its folder (..)"
    if path.endswith("\r") and segments[-1] in MAC_ICON_NAMES:
        path = path[:-1]
    control = _CONTROL.search(path)
    return f"contains the control character {control.group()!r}" if control else None


def name_warnings(path: str) -> tuple[NameWarning, ...]:
    """What to tell the user about a safe path."""
    found = []
    if any(_DEVICE.fullmatch(segment) for segment in path.split("/")):
        found.append(NameWarning.WINDOWS_DEVICE_NAME)
    if _BIDIRECTIONAL.search(path):
        found.append(NameWarning.BIDIRECTIONAL_OVERRIDE)
    return tuple(found)


class PathTree:
    """Answers what lies below a folder, in memory for the paths alone and not their prefixes."""

    def __init__(self, paths: Iterable[str]) -> None:
        """Sort the paths, so that those below one folder are neighbours."""
        self._paths = sorted(paths)

    def has_below(self, folder: str) -> bool:
        """Whether a path other than the folder itself starts with it; it ends with a slash."""
        following = bisect_right(self._paths, folder)
        return following < len(self._paths) and self._paths[following].startswith(folder)
