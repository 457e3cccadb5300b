"""Reads one object of a definition key by key, noting wrong types and unknown keys."""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Final, TypeVar

from control_plane.core.expressions.values import JsonValue
from control_plane.core.workflows.durations import parse_duration
from control_plane.core.workflows.violations import Violations

Choice = TypeVar("Choice", bound=StrEnum)
Value = TypeVar("Value")

_LABELS_MAX: Final = 64
_LABEL_CHARS_MAX: Final = 256
_TEXT_CHARS_MAX: Final = 200


class Fields:
    """The keys of one object, each to be taken at most once.

    Every method notes a violation and returns the default when the value is wrong, so that
    reading goes on and finds the other mistakes too.
    """

    __slots__ = ("_left", "_violations", "path")

    def __init__(self, value: JsonValue, path: str, violations: Violations) -> None:
        """Take the object at `path`; what is no object counts as an empty one."""
        self.path = path
        self._violations = violations
        self._left: dict[str, JsonValue] = {}
        if isinstance(value, Mapping):
            self._left = dict(value)
        elif value is not None:
            self.wrong("", f"expected an object, not {kind_of(value)}")

    def wrong(self, key: str, description: str, reason: str = "INVALID") -> None:
        """Note that the value of `key` (or the object itself, for "") is wrong."""
        self._violations.add(self.at(key), description, reason)

    def at(self, key: str) -> str:
        """Return the path of `key`."""
        return ".".join(part for part in (self.path, key) if part)

    def take(self, key: str) -> JsonValue:
        """Return the raw value, None when absent."""
        return self._left.pop(key, None)

    def part(self, key: str) -> "Fields":
        """Return the fields of the object under `key`."""
        return Fields(self.take(key), self.at(key), self._violations)

    def of(self, key: str, value: JsonValue) -> "Fields":
        """Return the fields of a value that was taken from under `key`."""
        return Fields(value, self.at(key), self._violations)

    def text(self, key: str, shape: re.Pattern[str], expected: str, *, needed: bool = True) -> str:
        """Return text that matches `shape`; `expected` says in words what that is."""
        value = self.take(key)
        if value is None and not needed:
            return ""
        if not isinstance(value, str):
            given = "it is missing" if value is None else f"not {kind_of(value)}"
            self.wrong(key, f"expected {expected} in quotes, {given}", "REQUIRED")
            return ""
        if len(value) > _TEXT_CHARS_MAX or not shape.fullmatch(value):
            self.wrong(key, f"{value[:80]!r} is not {expected}")
            return ""
        return value

    def expression(self, key: str) -> str:
        """Return an expression's text, empty when absent; booleans stand for themselves."""
        value = self.take(key)
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if not isinstance(value, str) or not value.strip():
            self.wrong(key, "expected an expression as text")
            return ""
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of text, without repetitions."""
        value = self.take(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self.wrong(key, "expected a list of text")
            return ()
        if len(set(value)) != len(value):
            self.wrong(key, "an entry occurs twice", "DUPLICATE")
        return tuple(dict.fromkeys(value))

    def integer(self, key: str, default: int, least: int, most: int) -> int:
        """Return an integer within bounds, both included."""
        number = self.number(key, default, least, most)
        if not isinstance(number, int):
            self.wrong(key, f"expected an integer, not {number}")
            return default
        return number

    def number(self, key: str, default: Value, least: float, most: float) -> Value | int | float:
        """Return a number within bounds, both included."""
        value = self.take(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong(key, f"expected a number, not {kind_of(value)}")
            return default
        if not least <= value <= most:
            self.wrong(key, f"{value} is out of range: {least} to {most}")
            return default
        return value

    def flag(self, key: str) -> bool:
        """Return a boolean, false when absent."""
        value = self.take(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.wrong(key, f"expected true or false, not {kind_of(value)}")
        return False

    def duration(self, key: str, default: Value) -> timedelta | Value:
        """Return a duration above zero."""
        value = self.take(key)
        if value is None:
            return default
        duration = self._checked(key, value, parse_duration)
        if duration is None:
            return default
        if not duration:
            self.wrong(key, "must be longer than zero: leave the key out for no bound")
            return default
        return duration

    def choice(self, key: str, default: Choice) -> Choice:
        """Return one of the default's enumeration."""
        value = self.take(key)
        options = type(default)
        if value is None:
            return default
        if value not in {option.value for option in options}:
            self.wrong(key, f"{str(value)[:40]!r} is none of {', '.join(options)}")
            return default
        return options(value)

    def labels(self, key: str) -> dict[str, str]:
        """Return an object whose values are all text."""
        value = self.take(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.wrong(key, f"expected an object of text values, not {kind_of(value)}")
            return {}
        if len(value) > _LABELS_MAX:
            self.wrong(key, f"{len(value)} labels are more than the {_LABELS_MAX} allowed")
        for name, one in value.items():
            if not isinstance(one, str) or len(name) + len(one) > _LABEL_CHARS_MAX:
                self.wrong(f"{key}.{name}", f"expected short text in quotes, not {kind_of(one)}")
        return {name: one for name, one in value.items() if isinstance(one, str)}

    def finish(self) -> None:
        """Note every key that nobody took: it is misspelt or unknown."""
        for key in self._left:
            self.wrong(key, "unknown key: remove it, or correct its spelling", "UNKNOWN_KEY")

    def _checked(
        self, key: str, value: JsonValue, check: Callable[[object], Value]
    ) -> Value | None:
        try:
            return check(value)
        except ValueError as error:
            self.wrong(key, str(error))
            return None


def kind_of(value: object) -> str:
    """Name the JSON type of a value, for messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return f"the number {value}"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "an object"
