"""JSON data as Python values: its type, its exact text, and its bounds."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from control_plane.core.errors import DocumentInvalidError
from control_plane.limits import DOCUMENT_DEPTH_MAX

JsonValue: TypeAlias = (
    bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"] | None
)


def to_json(value: JsonValue) -> str:
    """Return canonical JSON text: keys sorted, no spaces, Unicode as it is.

    Raises ValueError for NaN and infinities, which JSON does not have.
    """
    return _ENCODER.encode(value)


def from_json(text: str) -> JsonValue:
    """Read JSON text with exact integers; raise DocumentInvalidError for anything else."""
    try:
        value: JsonValue = _DECODER.decode(text)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise DocumentInvalidError(f"the document is no valid JSON: {error}") from error
    if depth_of(value) > DOCUMENT_DEPTH_MAX:
        raise _too_deep()
    if "\\u" in text:
        _check_characters(value)
    return value


def depth_of(value: JsonValue) -> int:
    """Return how many lists and objects lie inside one another; 0 for a scalar."""
    depth, level = 0, [value]
    while level := [one for one in level if isinstance(one, list | dict)]:
        depth += 1
        level = [child for one in level for child in children(one)]
    return depth


def children(value: JsonValue) -> Sequence[JsonValue]:
    """Return what lies directly inside a list or an object; nothing for a scalar."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return value
    return ()


def texts_of(value: JsonValue, path: str) -> Iterator[tuple[str, str]]:
    """Return every string in the value with its path, which begins with `path`."""
    pending = [(path, value)]
    while pending:
        at, one = pending.pop()
        if isinstance(one, str):
            yield at, one
        elif isinstance(one, Mapping):
            pending.extend((f"{at}.{key}", child) for key, child in reversed([*one.items()]))
        elif isinstance(one, Sequence):
            pending.extend((f"{at}[{n}]", child) for n, child in reversed([*enumerate(one)]))


def longest_list(value: JsonValue) -> int:
    """Return the length of the longest list anywhere inside the value."""
    longest, pending = 0, [value]
    while pending:
        one = pending.pop()
        if isinstance(one, list):
            longest = max(longest, len(one))
        pending.extend(children(one))
    return longest


def _check_characters(value: JsonValue) -> None:
    """Refuse what JSON can escape and what no store or CEL runtime keeps as it is."""
    try:
        to_json(value).encode()
    except UnicodeEncodeError as error:
        raise DocumentInvalidError(
            "the document holds half of a surrogate pair, which is no character"
        ) from error
    pending = [value]
    while pending:
        one = pending.pop()
        keys = tuple(one) if isinstance(one, Mapping) else ()
        if any("\0" in text for text in (*keys, one) if isinstance(text, str)):
            raise DocumentInvalidError("the document has a NUL character in a key or a text")
        pending.extend(children(one))


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    document: dict[str, JsonValue] = {}
    for key, value in pairs:
        if key in document:
            raise ValueError(f"the key {key!r} occurs twice in one object")
        document[key] = value
    return document


def _too_deep() -> DocumentInvalidError:
    return DocumentInvalidError(
        f"the document nests deeper than {DOCUMENT_DEPTH_MAX} levels: flatten it"
    )


# Made once: making them costs as much as a small document.
_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
)
_DECODER: Final = json.JSONDecoder(
    parse_float=_finite, parse_constant=_no_constant, object_pairs_hook=_unique
)
