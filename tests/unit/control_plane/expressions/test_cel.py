"""Expressions and mappings on the real CEL runtime."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.adapters.outbound.cel import CelCompiler
from control_plane.core.expressions.errors import ExpressionFailedError, ExpressionInvalidError
from control_plane.core.expressions.lexer import references
from control_plane.core.expressions.ports import ValueKind
from control_plane.core.expressions.template import (
    EXPRESSION_CHARS_MAX,
    compile_expression,
    compile_template,
)
from control_plane.core.expressions.values import JsonValue

CEL = CelCompiler()
INT64 = st.integers(-(2**63), 2**63 - 1)
# The runtime cuts text at a NUL, so `from_json` refuses it.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
JSON = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def _value(source: str, variables: Mapping[str, JsonValue], *, per_item: bool = False) -> JsonValue:
    return compile_expression(source, CEL, per_item=per_item).evaluate(variables)


def _render(tree: JsonValue, document: JsonValue = None) -> Any:  # noqa: ANN401 - any JSON
    return json.loads(compile_template(tree, CEL, per_item=False).render({"input": document}))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("input.a + 1", 42),
        ("input.name.size()", 2),
        ("input.big", 2**63 - 1),
        ("input.bigger", 2**64 - 1),
        ("steps.clean.output.files.map(f, f.name)", ["a", "b"]),
        ('steps["clean-up"].status == "SKIPPED"', True),
        ("steps.`clean-up`.output == null", True),
        ("has(input.nothing)", False),
        ("has(input.nothing) ? input.nothing : 'none'", "none"),
        ("{'a': [1, {'b': 2.5}]}", {"a": [1, {"b": 2.5}]}),
        ("timestamp('2026-01-02T03:04:05Z')", "2026-01-02T03:04:05Z"),
        ("duration('1h') + duration('1.5s')", "3601.5s"),
        ("b'abc'", "YWJj"),
    ],
)
def test_values_of_expressions(source: str, expected: object) -> None:
    """Values keep their type, integers their digits, and text is counted in characters."""
    documents: dict[str, JsonValue] = {
        "input": {"a": 41, "name": "水印", "big": 2**63 - 1, "bigger": 2**64 - 1},
        "steps": {
            "clean": {"output": {"files": [{"name": "a"}, {"name": "b"}]}, "status": "SUCCEEDED"},
            "clean-up": {"output": None, "status": "SKIPPED"},
        },
    }
    value = _value(source, documents)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("input.missing", "missing"),
        ("[1, input.missing]", "missing"),
        ("{'a': input.missing}", "missing"),
        ("1 / (input.a - 41)", "divide by zero"),
        ("input.a + 9223372036854775807", "overflow"),
        ("input.a + 1.5", "overload"),
        ("input.a.all(x, true)", "overload|no such|range"),
        ("0.0 / 0.0", "JSON"),
        ("{1: 2}", "keys of JSON objects are text"),
        ("type(1)", "JSON"),
        ("input.list.all(x, input.list.all(y, true))", "budget"),
        ("input.long.map(x, x)", "for_each"),
    ],
)
def test_evaluation_errors_are_typed(source: str, complaint: str) -> None:
    """Whatever goes wrong at run time names the expression and the reason."""
    documents: dict[str, JsonValue] = {
        "a": 41,
        "list": list(range(300)),
        "long": list(range(2_001)),
    }
    with pytest.raises(ExpressionFailedError, match=complaint) as caught:
        _value(source, {"input": documents})
    assert caught.value.expression == source
    assert f"`{source}`" in str(caught.value)


def test_integers_beyond_64_bits_are_refused_rather_than_rounded() -> None:
    """CEL has no larger ones, so a document that holds one says so wherever it is read."""
    with pytest.raises(ExpressionFailedError, match=r"out of range for 'input\['huge'\]"):
        _value("input.small", {"input": {"small": 1, "huge": 2**70}})


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("1 + 'a'", "overload"),
        ("nope.x", "undeclared"),
        ("item.x", "undeclared"),
        ("(", "Syntax error"),
        ("'open", "never closed"),
        ("", "empty"),
        ("'a\0b'", "NUL"),
        ("steps", "must name a step"),
        ("steps.clean", "must name a step"),
        ("steps.clean.error", "must name a step"),
        ("steps[input.key].output", "must name a step"),
        ("steps.map(s, s)", "must name a step"),
        ("'a' + " * EXPRESSION_CHARS_MAX + "'a'", "more than"),
        ("!(" * 100 + "true" + ")" * 100, "recursion"),
    ],
)
def test_wrong_expressions_are_refused_when_compiled(source: str, complaint: str) -> None:
    """Syntax, types, unknown names, unclear steps and sizes are refused before they run."""
    with pytest.raises(ExpressionInvalidError, match=complaint):
        compile_expression(source, CEL, per_item=False)


def test_items_are_known_only_where_there_are_items() -> None:
    """`item` and `index` exist with for_each alone."""
    assert (
        _value("item.name + string(index)", {"item": {"name": "a"}, "index": 3}, per_item=True)
        == "a3"
    )


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("1 == 1", ValueKind.BOOL),
        ("[1]", ValueKind.LIST),
        ("'a'", ValueKind.TEXT),
        ("input.a", ValueKind.DYNAMIC),
        ("1", ValueKind.OTHER),
    ],
)
def test_static_kinds(source: str, kind: ValueKind) -> None:
    """The static type is known as far as definitions check it."""
    assert CEL.compile(source, per_item=False).kind is kind


@pytest.mark.parametrize(
    ("source", "steps"),
    [
        ("steps.a.output.steps.b + steps.c.status", {"a", "c"}),
        ("'steps.x.output' + r'\\' + steps.a.output", {"a"}),
        ("input.steps.b // steps.c.output\n", set()),
        ('{"k": steps["a-b"].output}.k', {"a-b"}),
        (".steps.a.output", {"a"}),
        ("1 ? .steps.a.output : 2", {"a"}),
        ("'''it's''' + steps.a.output", {"a"}),
    ],
)
def test_steps_that_an_expression_reads(source: str, steps: set[str]) -> None:
    """Only real references count, not text, comments or fields of the same name."""
    assert references(source).steps == steps


def test_mapping_keeps_types_and_interpolates() -> None:
    """A whole `${ }` keeps its type, inside text it is written out, `$${` is literal."""
    tree: dict[str, JsonValue] = {
        "whole": "${ input.n }",
        "text": "n=${input.n}, b=${true}, l=${[1, 'x']}, z=${null}",
        "brace": "${ {'a': '}'} }",
        "escaped": "$${input.n} costs $5",
        "plain": [1, "x", {"deep": "${input.s}"}],
        "fixed": {"a": [1.5, None, True]},
    }
    assert _render(tree, {"n": 7, "s": "字"}) == {
        "whole": 7,
        "text": 'n=7, b=true, l=[1,"x"], z=null',
        "brace": {"a": "}"},
        "escaped": "${input.n} costs $5",
        "plain": [1, "x", {"deep": "字"}],
        "fixed": {"a": [1.5, None, True]},
    }


@given(JSON)
def test_documents_pass_through_a_mapping_unchanged(document: JsonValue) -> None:
    """Any JSON document, with integers of 64 bits, comes out as it went in."""
    rendered = _render({"all": "${input}"}, document)["all"]
    assert rendered == document
    assert repr(rendered) == repr(document) or isinstance(document, dict | list | float)


@given(st.text(st.characters(exclude_characters="$", exclude_categories=["Cs"])))
def test_text_without_expressions_is_left_alone(text: str) -> None:
    """A string that holds no `${` is itself."""
    assert _render([text]) == [text]


def test_a_mapped_document_is_bounded() -> None:
    """Over 256 KiB it fails and says what to do."""
    template = compile_template(["${input}", "${input}"], CEL, per_item=False)
    with pytest.raises(ExpressionFailedError, match="pass references"):
        template.render({"input": "x" * 200_000})


def test_an_open_expression_in_a_mapping_is_refused() -> None:
    """`${` without its brace is a mistake and not text."""
    with pytest.raises(ExpressionInvalidError, match="never closed"):
        compile_template({"a": "x ${ input.a"}, CEL, per_item=False)
