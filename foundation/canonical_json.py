"""One spelling for a JSON document, and hashes of requests, without passing through floats.

Object keys are sorted by code point, space is dropped, strings get their shortest escapes;
numbers stay exactly as they were written, so 1, 1.0 and 1e0 are three different texts and
a large integer loses no digit. (RFC 8785 turns every number into a double: unusable here.)
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from foundation.errors import InvalidArgumentError

_encode_string = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """Bounds of a document: UTF-8 bytes as sent, and nesting of arrays and objects."""

    size_bytes_max: int = 256 * 1024
    depth_max: int = 64


DOCUMENT_LIMITS: Final = JsonLimits()
# Workflow definitions and snapshots.
DEFINITION_LIMITS: Final = JsonLimits(size_bytes_max=1024 * 1024)


@dataclass(frozen=True, slots=True)
class JsonText:
    """Marks a field of a request as JSON text, to be hashed by content, not by spelling."""

    text: str


FieldValue = (
    None | bool | int | str | bytes | JsonText | Sequence["FieldValue"] | Mapping[str, "FieldValue"]
)


class _Number(str):
    """The text of a JSON number, told apart from a string."""

    __slots__ = ()


def canonical_json(text: str, *, field: str, limits: JsonLimits = DOCUMENT_LIMITS) -> str:
    """Return the canonical spelling of a JSON document.

    Raises InvalidArgumentError for `field` with reason JSON_TOO_LARGE, JSON_TOO_DEEP,
    JSON_MALFORMED, JSON_DUPLICATE_KEY or JSON_LONE_SURROGATE.
    """
    _check_size(text, field, limits)
    parts: list[str] = []
    _write(_parse(text, field), parts, _Bound(field, limits.depth_max), 1)
    return "".join(parts)


def request_hash(operation: str, fields: Mapping[str, FieldValue]) -> bytes:
    """Return the SHA-256 over an operation's name and its fields as sent.

    Leave out the idempotency key and the trace context. Empty stays empty and differs from
    absent (None). Order of fields and of object keys does not matter. Raises
    InvalidArgumentError for a JsonText that is not JSON, TypeError for a float.
    """
    encoded = {name: _encodable(value, name) for name, value in fields.items()}
    parts: list[str] = []
    _write({"fields": encoded, "operation": operation}, parts, _Bound(operation, 1_000), 1)
    return hashlib.sha256("".join(parts).encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True)
class _Bound:
    field: str
    depth_max: int


@dataclass(frozen=True, slots=True)
class _Raw:
    """Canonical text to be written as it is."""

    text: str


def _check_size(text: str, field: str, limits: JsonLimits) -> None:
    try:
        size_bytes = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        _refuse(field, "JSON_LONE_SURROGATE", "is not Unicode text: it has a lone surrogate")
    if size_bytes > limits.size_bytes_max:
        _refuse(
            field,
            "JSON_TOO_LARGE",
            f"has {size_bytes} bytes, more than {limits.size_bytes_max}: pass a reference instead",
        )


def _parse(text: str, field: str) -> object:
    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(items)
        if len(found) != len(items):
            _refuse_repeats(items, field)
        return found

    try:
        return json.loads(
            text,
            parse_float=_Number,
            parse_int=_Number,
            parse_constant=_refuse_constant,
            object_pairs_hook=pairs,
        )
    except ValueError as error:
        _refuse(field, "JSON_MALFORMED", f"is not JSON: {error}")
    except RecursionError:
        _refuse(field, "JSON_TOO_DEEP", "is nested too deeply to be read: flatten it")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _refuse_repeats(items: list[tuple[str, object]], field: str) -> NoReturn:
    seen: set[str] = set()
    for key, _ in items:
        if key in seen:
            _refuse(field, "JSON_DUPLICATE_KEY", f"has the key {key[:64]!r} twice in one object")
        seen.add(key)
    raise AssertionError("no key is repeated")


def _refuse(field: str, reason: str, description: str) -> NoReturn:
    raise InvalidArgumentError.of_field(field, description, reason=reason)


def _write(value: object, parts: list[str], bound: _Bound, depth: int) -> None:
    match value:
        case _Number():
            parts.append(value)
        case str():
            parts.append(_string(value, bound))
        case dict():
            _write_object(value, parts, bound, depth)
        case list():
            _write_array(value, parts, bound, depth)
        case _Raw():
            parts.append(value.text)
        case True | False:
            parts.append("true" if value else "false")
        case _:
            parts.append("null")


def _write_object(value: dict[str, object], parts: list[str], bound: _Bound, depth: int) -> None:
    _check_depth(bound, depth)
    separator = "{"
    for key in sorted(value):
        parts.append(separator + _string(key, bound) + ":")
        _write(value[key], parts, bound, depth + 1)
        separator = ","
    parts.append("}" if value else "{}")


def _write_array(value: list[object], parts: list[str], bound: _Bound, depth: int) -> None:
    _check_depth(bound, depth)
    separator = "["
    for item in value:
        parts.append(separator)
        _write(item, parts, bound, depth + 1)
        separator = ","
    parts.append("]" if value else "[]")


def _check_depth(bound: _Bound, depth: int) -> None:
    if depth > bound.depth_max:
        _refuse(bound.field, "JSON_TOO_DEEP", f"is nested deeper than {bound.depth_max}")


def _string(value: str, bound: _Bound) -> str:
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            _refuse(bound.field, "JSON_LONE_SURROGATE", "has half of a surrogate pair in a string")
    return _encode_string(value)


def _encodable(value: FieldValue, field: str) -> object:
    match value:
        case JsonText(text=""):
            return ""
        case JsonText(text=text):
            # The mark keeps the document `""` apart from a field that was left empty.
            return ["json", _Raw(canonical_json(text, field=field, limits=DEFINITION_LIMITS))]
        case None | bool() | str():
            return value
        case int():
            return _Number(value)
        case bytes():
            return ["bytes", value.hex()]
        case Mapping():
            return {key: _encodable(item, f"{field}.{key}") for key, item in value.items()}
        case Sequence():
            return [_encodable(item, f"{field}[{n}]") for n, item in enumerate(value)]
        case _:
            raise TypeError(f"{field} is a {type(value).__name__}: requests are hashed exactly")
