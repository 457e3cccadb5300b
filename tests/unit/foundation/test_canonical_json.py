"""Canonical JSON: one spelling per document, exact numbers, bounded; and request hashes."""

import json
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.canonical_json import JsonLimits, JsonText, canonical_json, request_hash
from foundation.errors import InvalidArgumentError

PINNED = "82292d788bea21d28574023f1dd1fcfe076ed0008074abc10fd1885e0f2e1ece"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def refusal(call: Callable[[], object]) -> str:
    """Return the reason with which the call refuses its document."""
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    (violation,) = caught.value.field_violations
    assert violation.field == "input_json"
    return violation.reason


@given(documents, st.booleans(), st.sampled_from([None, 2]))
def test_spelling_does_not_matter(document: object, ascii_only: bool, indent: int | None) -> None:  # noqa: FBT001 - drawn by Hypothesis
    """Escapes, space and key order do not change the canonical form, which parses back equal."""
    spelled = json.dumps(document, ensure_ascii=ascii_only, indent=indent)
    canonical = canonical_json(spelled, field="x")
    assert json.loads(canonical) == document
    assert canonical == json.dumps(
        document, ensure_ascii=False, sort_keys=True, separators=(",", ":")
    )
    assert canonical_json(canonical, field="x") == canonical


@given(st.dictionaries(texts, st.integers(), min_size=2), st.randoms())
def test_key_order_does_not_matter(document: dict[str, int], random: object) -> None:
    """Members in any order give the same canonical form."""
    items = list(document.items())
    getattr(random, "shuffle")(items)  # noqa: B009 - typed as object to suit st.randoms
    assert canonical_json(json.dumps(dict(items)), field="x") == canonical_json(
        json.dumps(document), field="x"
    )


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_numbers_keep_their_digits(number: Decimal) -> None:
    """A number of any size or precision comes out as the very text that went in."""
    text = str(number).replace("E", "e")
    assert canonical_json(f"[ {text} ]", field="x") == f"[{text}]"


@pytest.mark.parametrize("number", ["9007199254740993", "1.0", "1e400", "-0", "0.10", "1E+2"])
def test_numbers_that_floats_would_damage(number: str) -> None:
    """Large integers, trailing zeros, minus zero and huge exponents stay as written."""
    assert canonical_json(number, field="x") == number


def test_integers_of_ten_thousand_digits_pass() -> None:
    """Python's limit on integer conversion is never met."""
    assert canonical_json("9" * 10_000, field="x") == "9" * 10_000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "JSON_MALFORMED"),
        ("{", "JSON_MALFORMED"),
        ("[1,]", "JSON_MALFORMED"),
        ("NaN", "JSON_MALFORMED"),
        ("[-Infinity]", "JSON_MALFORMED"),
        ("01", "JSON_MALFORMED"),
        ("\ufeff{}", "JSON_MALFORMED"),
        ('{"a":1,"\\u0061":2}', "JSON_DUPLICATE_KEY"),
        ('"\\ud800"', "JSON_LONE_SURROGATE"),
        ('{"\\udfff":1}', "JSON_LONE_SURROGATE"),
        ('"\ud800"', "JSON_LONE_SURROGATE"),
        ("[" * 65 + "]" * 65, "JSON_TOO_DEEP"),
        ("[" * 100_000 + "]" * 100_000, "JSON_TOO_DEEP"),
        ('{"a":' * 65 + "1" + "}" * 65, "JSON_TOO_DEEP"),
        ('"' + "x" * 262_143 + '"', "JSON_TOO_LARGE"),
        ('"' + "界" * 90_000 + '"', "JSON_TOO_LARGE"),
    ],
)
def test_refusals(text: str, reason: str) -> None:
    """Malformed, ambiguous, deep and large documents are refused with their reason."""
    assert refusal(lambda: canonical_json(text, field="input_json")) == reason


def test_the_bounds_themselves_are_allowed() -> None:
    """A document exactly at the depth and size bounds passes."""
    deep = "[" * 64 + "]" * 64
    assert canonical_json(deep, field="x") == deep
    assert canonical_json('"abc"', field="x", limits=JsonLimits(size_bytes_max=5)) == '"abc"'


def test_hash_ignores_order_and_spelling() -> None:
    """Order of fields and the spelling of JSON text do not change the hash."""
    first = request_hash("CreateTask", {"a": "1", "input": JsonText('{"x":1,"y":[2]}')})
    second = request_hash("CreateTask", {"input": JsonText('{ "y": [2], "x": 1 }'), "a": "1"})
    assert first == second
    assert len(first) == 32


@pytest.mark.parametrize(
    "fields",
    [
        {"version": None},
        {"version": "1"},
        {"version": JsonText("")},
        {},
        {"version": "", "other": ""},
        {"version": 0},
        {"version": False},
        {"version": b""},
        {"version": []},
        {"version": {}},
        {"version": JsonText('""')},
    ],
)
def test_hash_tells_kinds_of_nothing_apart(fields: dict[str, object]) -> None:
    """Empty, absent, zero, false and empty JSON are different requests."""
    empty = request_hash("Op", {"version": ""})
    same = fields == {"version": JsonText("")}
    # An empty `_json` field is the empty string that was sent: the field's kind is fixed.
    assert (request_hash("Op", fields) == empty) is same  # type: ignore[arg-type]  # mixed on purpose


def test_hash_covers_operation_and_exact_numbers() -> None:
    """Another operation, or 1.0 for 1 in a document, is another request."""
    assert request_hash("A", {}) != request_hash("B", {})
    one, other = (request_hash("A", {"d": JsonText(text)}) for text in ("[1]", "[1.0]"))
    assert one != other


def test_hash_is_pinned() -> None:
    """The stored hash of a known request never changes between versions."""
    fields = {"n": 3, "on": True, "labels": {"b": "2", "a": "界"}, "doc": JsonText("[1.50]")}
    assert request_hash("tdp.Pin", fields).hex() == PINNED  # type: ignore[arg-type]  # a dict of mixed kinds


def test_hash_refuses_floats_and_bad_documents() -> None:
    """A float cannot be hashed exactly, and a JSON field that is no JSON is named."""
    with pytest.raises(TypeError, match=r"labels\[1\] is a float"):
        request_hash("Op", {"labels": ["a", 1.5]})  # type: ignore[list-item]  # refused at run time
    fields = {"input_json": JsonText("{")}
    assert refusal(lambda: request_hash("Op", fields)) == "JSON_MALFORMED"
