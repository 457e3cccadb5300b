"""Reads an archive's entries and turns the whole archive down unless all of them are sound.

What is checked here needs no data: names, methods, sizes as declared, duplicates, and that
headers and data tile the file without gap or overlap.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from node_agent.capabilities.archive_clean.end_records import DirectoryPlace, find_directory
from node_agent.capabilities.archive_clean.layout import Placement, place
from node_agent.capabilities.archive_clean.limits import CleanLimits
from node_agent.capabilities.archive_clean.names import NameDecoder
from node_agent.capabilities.archive_clean.paths import safe_path
from node_agent.capabilities.archive_clean.policy import (
    check_header,
    check_total,
    check_unique,
)
from node_agent.capabilities.archive_clean.records import (
    CentralHeader,
    RecordError,
    parse_central,
)
from node_agent.capabilities.archive_clean.refusals import ArchiveRefusedError, RefusalReason
from node_agent.capabilities.archive_clean.source import ArchiveSource


@dataclass(frozen=True, slots=True)
class Entry:
    """One sound entry.

    `name` is as decoded, `path` as it will be written: with `/` only, no `.` segments, and a
    slash at the end of directories. `comment` is None if it could not be decoded.
    """

    name: str
    path: str
    comment: str | None
    header: CentralHeader
    placement: Placement

    @property
    def is_directory(self) -> bool:
        """Whether the entry is a folder; the root's path is empty."""
        return not self.path or self.path.endswith("/")


@dataclass(frozen=True, slots=True)
class Archive:
    """All entries in central directory order, and the archive's own comment as stored."""

    entries: tuple[Entry, ...]
    comment: bytes
    name_encoding: str | None


def read_archive(
    source: ArchiveSource, limits: CleanLimits, name_encoding: str | None = None
) -> Archive:
    """The archive's entries, none of them read yet.

    Raises:
        ArchiveRefusedError: every reason but ARCHIVE_CRC_MISMATCH.
    """
    found = find_directory(source)
    _check_directory_limits(found, limits)
    headers = _central_headers(source, found)
    decoder = NameDecoder(headers, name_encoding)
    names = [decoder.name(header) for header in headers]
    paths = [safe_path(name) for name in names]
    for name, path, header in zip(names, paths, headers, strict=True):
        check_header(name, path, header, limits)
    check_total(headers, limits)
    check_unique(paths)
    placements = place(source, found.offset, names, headers, decoder)
    comments = [decoder.comment(header) for header in headers]
    parts = zip(names, paths, comments, headers, placements, strict=True)
    return Archive(tuple(Entry(*part) for part in parts), found.comment, decoder.encoding)


def _check_directory_limits(found: DirectoryPlace, limits: CleanLimits) -> None:
    for value, limit, what in (
        (found.entries, limits.entries_max, "entries"),
        (found.size_bytes, limits.directory_bytes_max, "bytes of central directory"),
    ):
        if value > limit:
            raise ArchiveRefusedError(
                RefusalReason.TOO_LARGE,
                f"the archive has {value} {what}, over the limit of {limit}; split it",
            )


def _central_headers(source: ArchiveSource, found: DirectoryPlace) -> Sequence[CentralHeader]:
    directory = source.read(found.offset, found.size_bytes)
    headers, at = [], 0
    try:
        for _ in range(found.entries):
            header, at = parse_central(directory, at)
            headers.append(header)
    except RecordError as error:
        raise _malformed(f"{error} (entry {len(headers) + 1} of {found.entries})") from None
    if at != len(directory):
        raise _malformed(
            f"after its {found.entries} entries the central directory has"
            f" {len(directory) - at} bytes more"
        )
    return headers


def _malformed(what: str) -> ArchiveRefusedError:
    return ArchiveRefusedError(
        RefusalReason.MALFORMED, f"the archive is malformed: {what}; pack the files anew"
    )
