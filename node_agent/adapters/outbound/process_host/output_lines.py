"""What children print, line by line in the agent's own log at debug, each with its attempt."""

from collections.abc import Callable
from typing import Final

import structlog

LINE_BYTES_MAX: Final = 4 * 1024
_log = structlog.stdlib.get_logger(__name__)


class OutputLines:
    """Cuts a child's output into lines; an endless one is cut at 4 KiB."""

    def __init__(self, on_line: Callable[[str], None] | None = None) -> None:
        """Start with no attempt: what comes now is of the child's own start."""
        self._on_line = on_line
        self._attempt_id = ""
        self._rest = b""

    def begin(self, attempt_id: str) -> None:
        """Log what comes from now on as this attempt's."""
        self._flush()
        self._attempt_id = attempt_id

    def write(self, data: bytes) -> None:
        """Log every line that is whole now."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._tell(line)
        if len(self._rest) > LINE_BYTES_MAX:
            self._flush()

    def _flush(self) -> None:
        rest, self._rest = self._rest, b""
        if rest:
            self._tell(rest)

    def _tell(self, line: bytes) -> None:
        text = line[:LINE_BYTES_MAX].decode("utf-8", "replace")
        _log.debug("capability_output", attempt_id=self._attempt_id, line=text)
        if self._on_line is not None:
            self._on_line(text)
