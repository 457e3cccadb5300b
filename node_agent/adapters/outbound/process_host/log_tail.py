"""The end of what a child writes to its standard output and error, in bounded memory."""

from collections import deque
from typing import Final

from foundation.logging import redact

TAIL_BYTES: Final = 8 * 1024


class LogTail:
    """Keeps the last 8 KiB."""

    def __init__(self) -> None:
        """Start empty."""
        self._pieces: deque[bytes] = deque()
        self._size_bytes = 0

    def write(self, data: bytes) -> None:
        """Take what came; the oldest pieces go as soon as the rest is enough."""
        piece = data[-TAIL_BYTES:]
        self._pieces.append(piece)
        self._size_bytes += len(piece)
        while self._size_bytes - len(self._pieces[0]) >= TAIL_BYTES:
            self._size_bytes -= len(self._pieces.popleft())

    def clear(self) -> None:
        """Forget all, for the next attempt."""
        self._pieces.clear()
        self._size_bytes = 0

    def text(self) -> str:
        """The tail as text, without secrets, at most 8 KiB in UTF-8."""
        shown = redact(b"".join(self._pieces).decode("utf-8", "replace").replace("\0", "\ufffd"))
        return shown.encode()[-TAIL_BYTES:].decode("utf-8", "ignore")
