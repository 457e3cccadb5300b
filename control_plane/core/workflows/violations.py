"""Collects everything that is wrong with a document, so that one answer names it all."""

from collections.abc import Mapping
from typing import Final

from foundation.errors import FieldViolation

_SHOWN_MAX: Final = 50


class Violations:
    """A list of violations, each with its path and, where known, its line in the source."""

    __slots__ = ("_found", "_lines")

    def __init__(self, lines: Mapping[str, int] | None = None) -> None:
        """Start empty; `lines` maps paths to lines of the source, counted from 1."""
        self._found: list[FieldViolation] = []
        self._lines = lines or {}

    def add(self, path: str, description: str, reason: str = "INVALID") -> None:
        """Note that what is at `path` is wrong, and how."""
        line = self._line_of(path)
        place = f" (line {line})" if line else ""
        self._found.append(FieldViolation(path, f"{description}{place}", reason))

    def __bool__(self) -> bool:
        return bool(self._found)

    def all(self) -> tuple[FieldViolation, ...]:
        """Return the first of them, in the order found; the rest would only repeat."""
        return tuple(self._found[:_SHOWN_MAX])

    def _line_of(self, path: str) -> int | None:
        """Find the line of the path, or of the nearest thing around it."""
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return None
