"""What an entry may be, as far as its headers tell: the rules about single entries and names."""

import stat
from collections.abc import Iterable, Sequence

from node_agent.capabilities.archive_clean.limits import CleanLimits
from node_agent.capabilities.archive_clean.paths import PathTree
from node_agent.capabilities.archive_clean.records import (
    AES,
    BZIP2,
    DEFLATED,
    FLAG_ENCRYPTED,
    FLAG_MASKED,
    FLAG_PATCHED,
    FLAG_STRONG,
    LZMA,
    STORED,
    CentralHeader,
)
from node_agent.capabilities.archive_clean.refusals import (
    ArchiveRefusedError,
    RefusalReason,
    quoted,
)

_METHODS = frozenset({STORED, DEFLATED, BZIP2, LZMA})
_UNIX_HOSTS = frozenset({3, 19})
_OTHER_METHODS = {
    1: "Shrink",
    2: "Reduce",
    3: "Reduce",
    4: "Reduce",
    5: "Reduce",
    6: "Implode",
    9: "Deflate64",
    10: "PKWARE DCL Implode",
    16: "IBM z/OS CMPSC",
    18: "IBM TERSE",
    19: "IBM LZ77",
    20: "Zstandard (old)",
    93: "Zstandard",
    94: "MP3",
    95: "XZ",
    96: "JPEG",
    97: "WavPack",
    98: "PPMd",
}


def check_header(name: str, path: str, header: CentralHeader, limits: CleanLimits) -> None:
    """Refuse an entry for what its central header says; raises ArchiveRefusedError."""
    _check_readable(name, header)
    _check_kind(name, path, header)
    _check_sizes(name, header, limits)


def check_total(headers: Iterable[CentralHeader], limits: CleanLimits) -> None:
    """Refuse an archive whose entries add up to too much; raises ARCHIVE_TOO_LARGE."""
    total = sum(header.size_bytes for header in headers)
    if total > limits.inflated_bytes_max:
        raise ArchiveRefusedError(
            RefusalReason.TOO_LARGE,
            f"the archive unpacks to {total} bytes, over the limit of"
            f" {limits.inflated_bytes_max}; split it",
        )


def check_unique(paths: Sequence[str]) -> None:
    """Refuse two entries of one name, and a file that is also a folder."""
    tree = PathTree(paths)
    seen: set[str] = set()
    for path in paths:
        bare = path.rstrip("/")
        if bare in seen:
            raise _duplicate(bare, "is used by two entries")
        seen.add(bare)
        if path == bare and tree.has_below(f"{path}/"):
            raise _duplicate(path, "is a file's and also that of a folder with another entry in it")


def _duplicate(path: str, what: str) -> ArchiveRefusedError:
    return ArchiveRefusedError(
        RefusalReason.DUPLICATE_NAME,
        f"the name {quoted(path)} {what}; rename one of the two and pack the files anew",
    )


def _check_readable(name: str, header: CentralHeader) -> None:
    encrypted = FLAG_ENCRYPTED | FLAG_STRONG | FLAG_MASKED
    if header.flags & encrypted or header.method == AES:
        raise ArchiveRefusedError(
            RefusalReason.ENCRYPTED,
            f"entry {quoted(name)} is protected by a password (flags 0x{header.flags:04x}, method"
            f" {header.method}); pack the files anew without one",
        )
    if header.method not in _METHODS or header.flags & FLAG_PATCHED:
        known = _OTHER_METHODS.get(header.method, "unknown")
        method = "patch data" if header.flags & FLAG_PATCHED else known
        raise ArchiveRefusedError(
            RefusalReason.UNSUPPORTED_METHOD,
            f"entry {quoted(name)} is packed with method {header.method} ({method}); use Deflate"
            " or store the files (bzip2 and LZMA are read too)",
        )


def _check_kind(name: str, path: str, header: CentralHeader) -> None:
    mode = header.external_attributes >> 16
    # A link's mode counts whatever the host: unpackers follow it without asking for the host.
    if stat.S_ISLNK(mode):
        raise _special(name, "a symbolic link", mode)
    host_has_modes = header.made_by >> 8 in _UNIX_HOSTS
    if host_has_modes and stat.S_IFMT(mode) not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise _special(name, "a device, pipe or socket", mode)
    if header.disk != 0:
        raise _malformed(name, f"starts on disk {header.disk} of a split archive")
    if (not path or path.endswith("/")) and header.size_bytes:
        raise _malformed(name, f"is a folder and yet holds {header.size_bytes} bytes")


def _check_sizes(name: str, header: CentralHeader, limits: CleanLimits) -> None:
    size, packed = header.size_bytes, header.packed_size_bytes
    if size > limits.entry_bytes_max:
        raise _too_large(
            name, f"unpacks to {size} bytes, over the limit of {limits.entry_bytes_max}"
        )
    if size > limits.ratio_free_bytes_max and size > packed * limits.ratio_max:
        raise _too_large(
            name,
            f"unpacks from {packed} to {size} bytes, over the limit of {limits.ratio_max} to 1",
        )
    if header.method == STORED and size != packed:
        raise _malformed(name, f"is stored, yet has {packed} bytes for a file of {size}")


def _special(name: str, what: str, mode: int) -> ArchiveRefusedError:
    return ArchiveRefusedError(
        RefusalReason.SYMLINK,
        f"entry {quoted(name)} is {what} (mode 0o{mode:o}); put the file itself in its place",
    )


def _too_large(name: str, what: str) -> ArchiveRefusedError:
    return ArchiveRefusedError(
        RefusalReason.TOO_LARGE, f"entry {quoted(name)} {what}; leave it out or split it"
    )


def _malformed(name: str, what: str) -> ArchiveRefusedError:
    return ArchiveRefusedError(
        RefusalReason.MALFORMED, f"entry {quoted(name)} {what}; pack the files anew"
    )
