"""Reads the archive at given places, and never takes a short read for the whole."""

import os
from collections.abc import Iterator
from typing import BinaryIO

from node_agent.capabilities.archive_clean.limits import CHUNK_BYTES
from node_agent.capabilities.archive_clean.refusals import ArchiveRefusedError, RefusalReason


class ArchiveSource:
    """Random access to an open archive file."""

    def __init__(self, file: BinaryIO) -> None:
        """Take an open, seekable file; its size is taken once, now."""
        self._file = file
        self.size_bytes = file.seek(0, os.SEEK_END)

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`; raises ARCHIVE_TRUNCATED if there are fewer."""
        self._file.seek(offset)
        data = self._file.read(length)
        if len(data) != length:
            raise ArchiveRefusedError(
                RefusalReason.TRUNCATED,
                f"the archive ends at byte {offset + len(data)}, where {length - len(data)} more"
                f" bytes were expected; upload it again, whole",
            )
        return data

    def chunks(self, offset: int, length: int) -> Iterator[bytes]:
        """The same bytes in pieces of at most CHUNK_BYTES."""
        end = offset + length
        while offset < end:
            chunk = self.read(offset, min(CHUNK_BYTES, end - offset))
            offset += len(chunk)
            yield chunk
