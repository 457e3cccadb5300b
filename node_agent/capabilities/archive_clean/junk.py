"""Which entries are junk that a system, editor or version control left behind.

Names are compared whole, segment by segment: what only resembles junk is the user's.
"""

import re
from enum import StrEnum

from node_agent.capabilities.archive_clean.paths import MAC_ICON_NAMES


class RemovalReason(StrEnum):
    """Why an entry is not in the clean archive."""

    MACOS_METADATA = "MACOS_METADATA"
    WINDOWS_METADATA = "WINDOWS_METADATA"
    EDITOR_LEFTOVER = "EDITOR_LEFTOVER"
    VCS_LEFTOVER = "VCS_LEFTOVER"
    EMPTY_DIRECTORY = "EMPTY_DIRECTORY"
    ROOT_DIRECTORY = "ROOT_DIRECTORY"
    ZERO_BYTE_FILE = "ZERO_BYTE_FILE"
    DROPPED_BY_OPTION = "DROPPED_BY_OPTION"


_MAC_FOLDERS = frozenset(
    {
        "__MACOSX",
        ".AppleDouble",
        ".DocumentRevisions-V100",
        ".Spotlight-V100",
        ".TemporaryItems",
        ".Trashes",
        ".fseventsd",
    }
)
_MAC_FILES = frozenset({".DS_Store", ".apdisk", ".VolumeIcon.icns"}) | MAC_ICON_NAMES
_APPLE_DOUBLE_PREFIX = "._"

# Windows does not tell upper from lower case, nor do these.
_WINDOWS_FOLDERS = frozenset({"$recycle.bin", "system volume information"})
_WINDOWS_FILES = frozenset({"thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini"})

_VCS_NAMES = frozenset({".git", ".svn", ".hg", ".bzr", "_darcs"})
# "CVS" may be somebody's folder of curricula: only what the program itself writes there goes.
_CVS_FILES = frozenset({"Entries", "Entries.Log", "Repository", "Root", "Tag", "Template"})

_EDITOR_FILE = re.compile(
    r"""
    .+~                     # backup copies: Emacs, Vim, gedit
    | \..+\.sw[a-p]         # Vim swap files
    | \#.+\#                # Emacs auto-save
    | \.\#.+                # Emacs locks
    | ~\$.+                 # Microsoft Office owner files
    | \.~lock\..+\#         # LibreOffice locks
    | \..+\.kate-swp        # Kate swap files
    """,
    re.VERBOSE | re.DOTALL,
)


def junk_reason(path: str) -> RemovalReason | None:
    """Why the entry of this path is junk, or None; a directory's path ends with a slash."""
    *folders, file = path.split("/")
    if _is_macos(folders, file):
        return RemovalReason.MACOS_METADATA
    if _is_windows(folders, file):
        return RemovalReason.WINDOWS_METADATA
    if _is_vcs(folders, file):
        return RemovalReason.VCS_LEFTOVER
    if _EDITOR_FILE.fullmatch(file):
        return RemovalReason.EDITOR_LEFTOVER
    return None


def _is_macos(folders: list[str], file: str) -> bool:
    if not _MAC_FOLDERS.isdisjoint(folders) or file in _MAC_FILES:
        return True
    return file.startswith(_APPLE_DOUBLE_PREFIX) and file != _APPLE_DOUBLE_PREFIX


def _is_windows(folders: list[str], file: str) -> bool:
    in_folder = any(folder.lower() in _WINDOWS_FOLDERS for folder in folders)
    return in_folder or file.lower() in _WINDOWS_FILES


def _is_vcs(folders: list[str], file: str) -> bool:
    if not _VCS_NAMES.isdisjoint(folders) or file in _VCS_NAMES:
        return True
    return folders[-1:] == ["CVS"] and file in _CVS_FILES
