"""Decodes the names and comments of entries: UTF-8 flag, Info-ZIP Unicode field, code page."""

import zlib
from collections.abc import Sequence

from node_agent.capabilities.archive_clean.encodings import detect_encoding
from node_agent.capabilities.archive_clean.records import (
    EXTRA_UNICODE_COMMENT,
    EXTRA_UNICODE_PATH,
    FLAG_UTF8,
    CentralHeader,
    LocalHeader,
)
from node_agent.capabilities.archive_clean.refusals import (
    ArchiveRefusedError,
    RefusalReason,
    quoted,
)

_UNICODE_FIELD_HEADER_BYTES = 5


class NameDecoder:
    """Decodes all names of one archive, whose unmarked ones share one encoding.

    `encoding` is that of the unmarked names: `utf-8`, a code page, or None if all were ASCII
    or marked.
    """

    def __init__(self, headers: Sequence[CentralHeader], encoding: str | None = None) -> None:
        """Detect the encoding of unmarked names, unless the caller knows it."""
        unmarked = [header.raw_name for header in headers if _is_unmarked(header)]
        self.encoding = (encoding or detect_encoding(unmarked)) if unmarked else None

    def name(self, header: CentralHeader) -> str:
        """The entry's name; raises ARCHIVE_UNDECODABLE_NAME."""
        raw = header.raw_name
        if header.flags & FLAG_UTF8:
            return _decoded(raw, "utf-8", raw)
        text = unicode_field(header.extra.get(EXTRA_UNICODE_PATH), raw)
        if text is not None:
            return _decoded(text, "utf-8", raw)
        return _decoded(raw, self.encoding or "ascii", raw)

    def local_name(self, header: LocalHeader, central_name: str) -> str:
        """The name the local header's own Unicode field claims, or else the central one."""
        text = unicode_field(header.extra.get(EXTRA_UNICODE_PATH), header.raw_name)
        if text is None or header.flags & FLAG_UTF8:
            return central_name
        return _decoded(text, "utf-8", header.raw_name)

    def comment(self, header: CentralHeader) -> str | None:
        """The entry's comment, or None if it cannot be decoded: no reason to refuse a file."""
        raw = header.raw_comment
        text = unicode_field(header.extra.get(EXTRA_UNICODE_COMMENT), raw)
        marked = header.flags & FLAG_UTF8 or text is not None
        encoding = "utf-8" if marked else self.encoding or "cp437"
        try:
            return (raw if text is None else text).decode(encoding)
        except UnicodeDecodeError:
            return None


def unicode_field(payload: bytes | None, raw: bytes) -> bytes | None:
    """The UTF-8 bytes of an Info-ZIP Unicode field that was made for these raw bytes.

    Tools that rename without knowing the field leave a stale one; its CRC tells.
    """
    if payload is None or len(payload) <= _UNICODE_FIELD_HEADER_BYTES or payload[0] != 1:
        return None
    if int.from_bytes(payload[1:_UNICODE_FIELD_HEADER_BYTES], "little") != zlib.crc32(raw):
        return None
    return payload[_UNICODE_FIELD_HEADER_BYTES:]


def _is_unmarked(header: CentralHeader) -> bool:
    if header.flags & FLAG_UTF8 or header.raw_name.isascii():
        return False
    return unicode_field(header.extra.get(EXTRA_UNICODE_PATH), header.raw_name) is None


def _decoded(text: bytes, encoding: str, raw: bytes) -> str:
    try:
        return text.decode(encoding)
    except UnicodeDecodeError as error:
        raise ArchiveRefusedError(
            RefusalReason.UNDECODABLE_NAME,
            f"the name {quoted(raw)} is not valid {encoding} ({error.reason} at byte"
            f" {error.start}); rename the file and pack the files anew",
        ) from None
