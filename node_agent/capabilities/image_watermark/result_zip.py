"""The ZIP of results, written file by file so that a restart goes on behind the last one."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_COPY_BYTES = 1024 * 1024
_FILE_MODE = 0o100644 << 16
_EARLIEST = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ZippedFile:
    """Where a file stands in the ZIP; enough to write the directory without reading it again."""

    path: str
    offset: int
    end: int
    method: int
    crc: int
    size_bytes: int
    packed_size_bytes: int


class ResultZip:
    """An unfinished ZIP on disk; each `append` opens it, so that nothing is left open.

    Times are left out: the same pictures give the same bytes.
    """

    def __init__(self, file: Path) -> None:
        """Take its place; the file need not exist."""
        self.file = file

    def size_bytes(self) -> int:
        """How long it is."""
        return self.file.stat().st_size if self.file.exists() else 0

    def cut(self, size_bytes: int) -> None:
        """Drop what was written behind that length."""
        with self.file.open("ab") as archive:
            archive.truncate(size_bytes)

    def append(self, path: str, source: Path, *, compress: bool) -> ZippedFile:
        """Write a file at the end, on disk when this returns; the directory comes by `finish`."""
        offset = self.size_bytes()
        info = zipfile.ZipInfo(path, _EARLIEST)
        info.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
        info.external_attr = _FILE_MODE
        info.file_size = source.stat().st_size
        with self._opened() as file:
            file.seek(offset)
            archive = zipfile.ZipFile(file, "w")
            with source.open("rb") as content, archive.open(info, "w") as target:
                shutil.copyfileobj(content, target, _COPY_BYTES)
            end = archive.start_dir
            # The library ends an archive with its directory: ours comes once, by `finish`.
            archive.close()
            file.truncate(end)
            file.flush()
            os.fsync(file.fileno())
        return ZippedFile(
            path, offset, end, info.compress_type, info.CRC, info.file_size, info.compress_size
        )

    def finish(self, files: Sequence[ZippedFile]) -> None:
        """Write the directory of all files; one written before is replaced."""
        with self._opened() as file:
            file.seek(max((zipped.end for zipped in files), default=0))
            file.truncate()
            with zipfile.ZipFile(file, "w") as archive:
                archive.filelist.extend(_info(zipped) for zipped in files)

    def _opened(self) -> BinaryIO:
        return self.file.open("r+b" if self.file.exists() else "w+b")


def _info(zipped: ZippedFile) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(zipped.path, _EARLIEST)
    info.external_attr = _FILE_MODE
    info.header_offset = zipped.offset
    info.compress_type = zipped.method
    info.CRC = zipped.crc
    info.file_size = zipped.size_bytes
    info.compress_size = zipped.packed_size_bytes
    return info
