"""Reads YAML or JSON text into JSON data, with the source line of every key.

YAML is read by the rules of its version 1.2, in which `on` and `no` are text and only
`true` and `false` are booleans. Anchors, aliases, tags and merge keys are refused: they
make small texts large, and a definition is to be read as it stands.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from control_plane.core.errors import DocumentInvalidError
from control_plane.core.expressions.values import JsonValue, from_json
from control_plane.core.workflows.errors import DefinitionInvalidError
from control_plane.limits import DEFINITION_BYTES_MAX, DOCUMENT_DEPTH_MAX

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?\d{1,400}|0x[0-9a-fA-F]{1,300}|0o[0-7]{1,400}")
_FLOAT = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?")
_WORDS: Final[Mapping[str, JsonValue]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """The data of a definition, and the line (from 1) of each path, where the source has lines."""

    value: JsonValue
    lines: Mapping[str, int]


def read_document(text: str) -> SourceDocument:
    """Read a definition's text; raise DefinitionInvalidError when it is too large or malformed."""
    size_bytes = len(text.encode(errors="surrogatepass"))
    if size_bytes > DEFINITION_BYTES_MAX:
        raise DefinitionInvalidError(
            f"the definition has {size_bytes} bytes, more than the {DEFINITION_BYTES_MAX} allowed"
        )
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        return SourceDocument(_read_json(text), {})
    return _read_yaml(text)


def _read_json(text: str) -> JsonValue:
    try:
        return from_json(text.lstrip("\ufeff"))
    except DocumentInvalidError as error:
        raise DefinitionInvalidError(f"the definition cannot be read: {error}") from error


def _read_yaml(text: str) -> SourceDocument:
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f" at line {mark.line + 1}" if mark is not None else ""
        raise DefinitionInvalidError(
            f"the definition is no valid YAML{line}: {error.problem}"
        ) from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise DefinitionInvalidError(f"the definition is no valid YAML: {error}") from error
    return SourceDocument(builder.result(), builder.lines)


@dataclass(slots=True)
class _Frame:
    """A list or an object that is being filled."""

    container: dict[str, JsonValue] | list[JsonValue]
    path: str
    key: str | None = None


@dataclass(slots=True)
class _Builder:
    """Builds the data from the parser's events without recursion."""

    lines: dict[str, int] = field(default_factory=dict)
    _frames: list[_Frame] = field(default_factory=list)
    _roots: list[JsonValue] = field(default_factory=list)

    def take(self, event: Any) -> None:  # noqa: ANN401 - PyYAML's events share no useful type
        """Take the next event; raise DefinitionInvalidError for what is not supported."""
        line = event.start_mark.line + 1
        _refuse_extras(event, line)
        match event:
            case yaml.ScalarEvent():
                self._scalar(event, line)
            case yaml.MappingStartEvent():
                self._open({}, line)
            case yaml.SequenceStartEvent():
                self._open([], line)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._frames.pop()

    def result(self) -> JsonValue:
        """Return the one document that was read."""
        if len(self._roots) != 1:
            raise DefinitionInvalidError(
                f"the text holds {len(self._roots)} YAML documents: pass exactly one"
            )
        return self._roots[0]

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        frame = self._frames[-1] if self._frames else None
        if frame is not None and isinstance(frame.container, dict) and frame.key is None:
            frame.key = _key(event.value, frame, line)
            return
        plain = event.implicit[0] and not event.style
        self._place(_resolved(event.value, line) if plain else event.value, line)

    def _open(self, container: dict[str, JsonValue] | list[JsonValue], line: int) -> None:
        if len(self._frames) >= DOCUMENT_DEPTH_MAX:
            raise DefinitionInvalidError(
                f"line {line}: the definition nests deeper than {DOCUMENT_DEPTH_MAX} levels"
            )
        self._frames.append(_Frame(container, self._place(container, line)))

    def _place(self, value: JsonValue, line: int) -> str:
        """Put the value where it belongs and return its path."""
        if not self._frames:
            self._roots.append(value)
            return ""
        frame = self._frames[-1]
        if isinstance(frame.container, list):
            path = f"{frame.path}[{len(frame.container)}]"
            frame.container.append(value)
        elif frame.key is None:
            raise DefinitionInvalidError(f"line {line}: a key of {frame.path!r} is not plain text")
        else:
            path = f"{frame.path}.{frame.key}" if frame.path else frame.key
            frame.container[frame.key] = value
            frame.key = None
        self.lines[path] = line
        return path


def _refuse_extras(event: Any, line: int) -> None:  # noqa: ANN401 - as above
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        raise DefinitionInvalidError(f"line {line}: anchors and aliases are not supported")
    tag = getattr(event, "tag", None)
    if tag not in (None, "!"):
        raise DefinitionInvalidError(f"line {line}: the tag {tag} is not supported")


def _key(text: str, frame: _Frame, line: int) -> str:
    if text == "<<":
        raise DefinitionInvalidError(f"line {line}: merge keys are not supported")
    if text in frame.container:
        raise DefinitionInvalidError(
            f"line {line}: the key {text!r} occurs twice in {frame.path or 'the definition'}"
        )
    return text


def _resolved(text: str, line: int) -> JsonValue:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise DefinitionInvalidError(f"line {line}: the number {text[:40]} is too large")
        return number
    return text
