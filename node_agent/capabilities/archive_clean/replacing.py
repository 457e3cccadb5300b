"""A file that appears under its name whole and durable, or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(destination: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside the destination and rename it there if all goes well.

    Content and name are on the disk on return. On any exception the temporary file is removed
    and the destination is what it was before.
    """
    handle, name = tempfile.mkstemp(prefix=f".{destination.name[:100]}.", dir=destination.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(destination)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(destination.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
