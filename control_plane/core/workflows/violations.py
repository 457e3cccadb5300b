"""Collects everything that is wrong with a document, so that one answer names it all."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from foundation.errors import FieldViolation

_SHOWN_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in a text: line and column, in characters, counted from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


Places = Callable[[], Mapping[str, Place]]
"""Finds the places of all paths of a source; called once something is wrong, at most once."""


@dataclass(frozen=True, slots=True)
class PlacedViolation(FieldViolation):
    """A violation whose place in the source is known, or None."""

    place: Place | None = None


class Violations:
    """A list of violations, each with its path and, where known, its place in the source."""

    __slots__ = ("_find_places", "_found", "_places")

    def __init__(self, places: Places | None = None) -> None:
        """Start empty; `places` finds where paths of the source stand."""
        self._found: list[PlacedViolation] = []
        self._find_places = places
        self._places: Mapping[str, Place] = {}

    def add(self, path: str, description: str, reason: str = "INVALID") -> None:
        """Note that what is at `path` is wrong, and how."""
        place = self._place_of(path)
        where = f" ({place})" if place else ""
        self._found.append(PlacedViolation(path, f"{description}{where}", reason, place))

    def __bool__(self) -> bool:
        return bool(self._found)

    def all(self) -> tuple[PlacedViolation, ...]:
        """Return the first of them, in the order found; the rest would only repeat."""
        return tuple(self._found[:_SHOWN_MAX])

    def _place_of(self, path: str) -> Place | None:
        """Find the place of the path, or of the nearest thing around it."""
        if self._find_places is not None:
            self._places = self._find_places()
            self._find_places = None
        while path:
            if path in self._places:
                return self._places[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return None
