"""JSON text into data and back, with what is refused on the way."""

import pytest

from control_plane.core.errors import DocumentInvalidError
from control_plane.core.expressions.values import depth_of, from_json, longest_list, to_json


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no valid JSON"),
        ("[1,]", "no valid JSON"),
        ("NaN", "not JSON"),
        ("1e999", "too large"),
        ('{"a":1,"a":1}', "'a' occurs twice"),
        ('"\\ud800"', "surrogate"),
        ('{"a\\u0000b":1}', "NUL"),
        ('["a\\u0000b"]', "NUL"),
        ("[" * 65 + "]" * 65, "deeper than 64"),
        ("[" * 100_000, "deeper than 64"),
    ],
)
def test_what_is_refused(text: str, complaint: str) -> None:
    """Everything that some reader on the way would read otherwise, or not at all."""
    with pytest.raises(DocumentInvalidError, match=complaint):
        from_json(text)


def test_canonical_text() -> None:
    """Keys are sorted, spaces dropped, characters kept, integers exact."""
    text = '{"b": [1, 2.5, 9007199254740993], "a": "\\u6c34\\u5370\\n"}'
    assert to_json(from_json(text)) == '{"a":"水印\\n","b":[1,2.5,9007199254740993]}'


def test_measures_of_a_document() -> None:
    """Depth counts lists and objects inside one another, wherever the deepest is."""
    assert depth_of(1) == 0
    assert depth_of([{"a": [1, {}]}, 2]) == 4
    assert longest_list({"a": [1, [1, 2, 3]], "b": "text of many characters"}) == 3
