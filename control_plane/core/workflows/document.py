"""Reads YAML or JSON text into JSON data, and finds the line and column of every key.

YAML is read by the rules of its version 1.2, in which `on` and `no` are text and only
`true` and `false` are booleans. Anchors, aliases, tags and merge keys are refused: they
make small texts large, and a definition is to be read as it stands.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from control_plane.core.errors import DocumentInvalidError
from control_plane.core.expressions.values import JsonValue, from_json
from control_plane.core.workflows.errors import DefinitionInvalidError
from control_plane.core.workflows.violations import Place, PlacedViolation, Places
from control_plane.limits import DEFINITION_BYTES_MAX, DOCUMENT_DEPTH_MAX

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?\d{1,400}|0x[0-9a-fA-F]{1,300}|0o[0-7]{1,400}")
_FLOAT = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?")
_START: Final = Place(1, 1)
_WORDS: Final[Mapping[str, JsonValue]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """The data of a definition, and a way to find the place of each path in its text."""

    value: JsonValue
    places: Places


def read_document(text: str) -> SourceDocument:
    """Read a definition's text; raise DefinitionInvalidError when it is too large or malformed."""
    size_bytes = len(text.encode(errors="surrogatepass"))
    if size_bytes > DEFINITION_BYTES_MAX:
        raise DefinitionInvalidError(
            f"the definition has {size_bytes} bytes, more than the {DEFINITION_BYTES_MAX} allowed"
        )
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        return SourceDocument(_read_json(text), lambda: _places_in_json(text))
    builder = _read_yaml(text)
    return SourceDocument(builder.result(), lambda: builder.places)


def _read_json(text: str) -> JsonValue:
    try:
        return from_json(text.lstrip("\ufeff"))
    except DocumentInvalidError as error:
        cause = error.__cause__
        place = None
        if isinstance(cause, json.JSONDecodeError):
            place = Place(cause.lineno, cause.colno)
        raise malformed(f"the definition cannot be read: {error}", place) from error


def _places_in_json(text: str) -> Mapping[str, Place]:
    """Find the places by the YAML parser, for which JSON is a flow of its own; seldom needed."""
    builder = _Builder()
    try:
        for event in yaml.parse(text.lstrip("\ufeff").replace("\t", " "), Loader=_LOADER):
            builder.take(event)
    except (yaml.YAMLError, UnicodeError, DefinitionInvalidError):
        pass  # What was found before it gave up serves as well.
    return builder.places


def _read_yaml(text: str) -> "_Builder":
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = Place(mark.line + 1, mark.column + 1) if mark is not None else None
        where = f" at {place}" if place else ""
        raise malformed(
            f"the definition is no valid YAML{where}: {error.problem}", place
        ) from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise DefinitionInvalidError(f"the definition is no valid YAML: {error}") from error
    return builder


def malformed(message: str, place: Place | None) -> DefinitionInvalidError:
    """Make the error for a text that cannot be read from some place on."""
    violation = PlacedViolation("definition", message, "MALFORMED", place)
    return DefinitionInvalidError(message, field_violations=(violation,))


@dataclass(slots=True)
class _Frame:
    """A list or an object that is being filled."""

    container: dict[str, JsonValue] | list[JsonValue]
    path: str
    key: str | None = None
    # Of the key, or of the list or object itself.
    place: Place = field(default=_START)


@dataclass(slots=True)
class _Builder:
    """Builds the data from the parser's events without recursion."""

    places: dict[str, Place] = field(default_factory=dict)
    _frames: list[_Frame] = field(default_factory=list)
    _roots: list[JsonValue] = field(default_factory=list)

    def take(self, event: Any) -> None:  # noqa: ANN401 - PyYAML's events share no useful type
        """Take the next event; raise DefinitionInvalidError for what is not supported."""
        place = Place(event.start_mark.line + 1, event.start_mark.column + 1)
        _refuse_extras(event, place)
        match event:
            case yaml.ScalarEvent():
                self._scalar(event, place)
            case yaml.MappingStartEvent():
                self._open({}, place)
            case yaml.SequenceStartEvent():
                self._open([], place)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._frames.pop()

    def result(self) -> JsonValue:
        """Return the one document that was read."""
        if len(self._roots) != 1:
            raise DefinitionInvalidError(
                f"the text holds {len(self._roots)} YAML documents: pass exactly one"
            )
        return self._roots[0]

    def _scalar(self, event: yaml.ScalarEvent, place: Place) -> None:
        frame = self._frames[-1] if self._frames else None
        if frame is not None and isinstance(frame.container, dict) and frame.key is None:
            frame.key = _key(event.value, frame, place)
            frame.place = place
            return
        plain = event.implicit[0] and not event.style
        self._put(_resolved(event.value, place) if plain else event.value, place)

    def _open(self, container: dict[str, JsonValue] | list[JsonValue], place: Place) -> None:
        if len(self._frames) >= DOCUMENT_DEPTH_MAX:
            raise _refused(place, f"the definition nests deeper than {DOCUMENT_DEPTH_MAX} levels")
        self._frames.append(_Frame(container, self._put(container, place)))

    def _put(self, value: JsonValue, place: Place) -> str:
        """Put the value where it belongs and return its path."""
        if not self._frames:
            self._roots.append(value)
            return ""
        frame = self._frames[-1]
        if isinstance(frame.container, list):
            path = f"{frame.path}[{len(frame.container)}]"
            frame.container.append(value)
        elif frame.key is None:
            raise _refused(place, f"a key of {frame.path!r} is not plain text")
        else:
            path = f"{frame.path}.{frame.key}" if frame.path else frame.key
            frame.container[frame.key] = value
            frame.key = None
            place = frame.place
        self.places[path] = place
        return path


def _refused(place: Place, why: str) -> DefinitionInvalidError:
    return malformed(f"{place}: {why}", place)


def _refuse_extras(event: Any, place: Place) -> None:  # noqa: ANN401 - as above
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        raise _refused(place, "anchors and aliases are not supported")
    tag = getattr(event, "tag", None)
    if tag not in (None, "!"):
        raise _refused(place, f"the tag {tag} is not supported")


def _key(text: str, frame: _Frame, place: Place) -> str:
    if text == "<<":
        raise _refused(place, "merge keys are not supported")
    if text in frame.container:
        where = frame.path or "the definition"
        raise _refused(place, f"the key {text!r} occurs twice in {where}")
    return text


def _resolved(text: str, place: Place) -> JsonValue:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise _refused(place, f"the number {text[:40]} is too large")
        return number
    return text
