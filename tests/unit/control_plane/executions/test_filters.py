"""The filter language of lists."""

import pytest

from control_plane.core.executions.filters import FilterInvalidError, TaskFilter, parse_filter


def test_an_empty_filter_matches_all() -> None:
    """No text asks for nothing."""
    assert parse_filter("  ") == TaskFilter()


def test_equalities_are_joined_by_and() -> None:
    """Status, workflow, reference and labels are read, quoted or bare."""
    text = (
        r'status = RUNNING AND workflow="image-flow" AND labels.team = "a \"b\""'
        " AND external_ref = x1"
    )
    assert parse_filter(text) == TaskFilter("RUNNING", "image-flow", "x1", (("team", 'a "b"'),))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("status", "character 1"),
        ("status = RUNNING OR workflow = a", "expects AND at character 18"),
        ("status = RUNNING workflow = a", "expects AND"),
        ("color = red", "color"),
        ("status = FLYING", "FLYING"),
        ("status = RUNNING AND status = FAILED", "twice"),
        ("a" * 1001, "1001"),
    ],
)
def test_a_wrong_filter_says_where(text: str, words: str) -> None:
    """The error names what cannot be read, by its place or value."""
    with pytest.raises(FilterInvalidError, match=words):
        parse_filter(text)
