"""Decides which entries stay: options first, then junk rules, then emptied directories."""

from collections.abc import Sequence
from dataclasses import dataclass

from node_agent.capabilities.archive_clean.entries import Entry
from node_agent.capabilities.archive_clean.globs import Glob, compile_globs
from node_agent.capabilities.archive_clean.junk import RemovalReason, junk_reason
from node_agent.capabilities.archive_clean.paths import PathTree
from node_agent.capabilities.archive_clean.refusals import CleanOptionsError

# Code pages that packers have written names in without saying so, as Python names them.
NAME_ENCODINGS = (
    "utf-8",
    "cp437",
    "cp850",
    "cp866",
    "cp1251",
    "cp1252",
    "cp932",
    "gbk",
    "big5",
    "cp949",
)


@dataclass(frozen=True, slots=True)
class CleanOptions:
    """What to drop besides junk, and what to keep in spite of it all.

    `keep` protects what it matches from every rule, `drop` removes what it matches; so
    `drop=("**",), keep=("*.png",)` leaves nothing but pictures. `name_encoding` is a Python
    codec, one of NAME_ENCODINGS, for names without a mark of theirs; None means to detect it.
    """

    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    drop_zero_byte_files: bool = False
    name_encoding: str | None = None

    def __post_init__(self) -> None:
        """Raise CleanOptionsError for globs or an encoding that mean nothing."""
        compile_globs(self.keep)
        compile_globs(self.drop)
        if self.name_encoding not in {None, *NAME_ENCODINGS}:
            raise CleanOptionsError(
                f"name_encoding {self.name_encoding!r} is none of {', '.join(NAME_ENCODINGS)};"
                " name one of these, or none to detect it"
            )


@dataclass(frozen=True, slots=True)
class Selection:
    """The entries that stay and those that go, each in central directory order."""

    kept: tuple[Entry, ...]
    removed: tuple[tuple[Entry, RemovalReason], ...]


def select(entries: Sequence[Entry], options: CleanOptions) -> Selection:
    """Sort the entries into kept and removed; a folder stays if something kept needs it."""
    rules = _Rules(options)
    reasons = [rules.reason(entry) for entry in entries]
    staying = zip(entries, reasons, strict=True)
    files = PathTree(entry.path for entry, reason in staying if rules.stays(entry, reason))
    kept, removed = [], []
    for entry, reason in zip(entries, reasons, strict=True):
        final = rules.folder_reason(entry, reason, files) if entry.is_directory else reason
        if final is None:
            kept.append(entry)
        else:
            removed.append((entry, final))
    return Selection(tuple(kept), tuple(removed))


class _Rules:
    """The options, compiled."""

    def __init__(self, options: CleanOptions) -> None:
        self._keep = compile_globs(options.keep)
        self._drop = compile_globs(options.drop)
        self._drop_zero_byte_files = options.drop_zero_byte_files

    def reason(self, entry: Entry) -> RemovalReason | None:
        """Why the entry goes by itself, whatever else is in the archive."""
        if not entry.path:
            return RemovalReason.ROOT_DIRECTORY
        if self._is_protected(entry):
            return None
        junk = junk_reason(entry.path)
        if junk is not None:
            return junk
        if _any_matches(self._drop, entry.path):
            return RemovalReason.DROPPED_BY_OPTION
        if self._drop_zero_byte_files and not entry.is_directory and not entry.header.size_bytes:
            return RemovalReason.ZERO_BYTE_FILE
        return None

    def stays(self, entry: Entry, reason: RemovalReason | None) -> bool:
        """Whether the entry keeps the folders around it: a file, or a protected folder."""
        return reason is None and (not entry.is_directory or self._is_protected(entry))

    def folder_reason(
        self, entry: Entry, reason: RemovalReason | None, staying: PathTree
    ) -> RemovalReason | None:
        """The same for a folder, once it is known what stays below it."""
        if entry.path and staying.has_below(entry.path):
            return None
        if reason is None and not self._is_protected(entry):
            return RemovalReason.EMPTY_DIRECTORY
        return reason

    def _is_protected(self, entry: Entry) -> bool:
        return _any_matches(self._keep, entry.path)


def _any_matches(globs: Sequence[Glob], path: str) -> bool:
    return any(glob.matches(path) for glob in globs)
