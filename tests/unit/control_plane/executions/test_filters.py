"""The filter language of lists and bulk acts."""

from datetime import UTC, datetime

import pytest

from control_plane.core.executions.execution_state import ExecutionStatus
from control_plane.core.executions.filters import (
    FilterInvalidError,
    Period,
    TaskFilter,
    parse_filter,
)

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_an_empty_filter_matches_all() -> None:
    """No text asks for nothing."""
    assert parse_filter("  ") == TaskFilter()


def test_equalities_are_joined_by_and() -> None:
    """Status, workflow, reference and labels are read, quoted or bare."""
    text = (
        r'status = RUNNING AND workflow="image-flow" AND labels.team = "a \"b\""'
        ' AND external_ref = x1 AND labels."my key"=1'
    )
    assert parse_filter(text) == TaskFilter(
        statuses=frozenset({ExecutionStatus.RUNNING}),
        workflows=frozenset({"image-flow"}),
        external_refs=frozenset({"x1"}),
        labels=(("team", 'a "b"'), ("my key", "1")),
    )


@pytest.mark.parametrize("brackets", ["{}", "({})"])
def test_alternatives_bind_tighter_than_and(brackets: str) -> None:
    """OR joins values of one field, in brackets or without."""
    either = brackets.format('status = FAILED OR status = "TIMED_OUT"')
    found = parse_filter(f"workflow = a AND {either}")
    assert found.workflows == frozenset({"a"})
    assert found.statuses == frozenset({ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT})


def test_unequal_takes_states_away() -> None:
    """Every != takes one state from those that may be."""
    found = parse_filter("status != SUCCEEDED AND status != CANCELED AND status != CREATED")
    gone = {ExecutionStatus.SUCCEEDED, ExecutionStatus.CANCELED, ExecutionStatus.CREATED}
    assert found.statuses == frozenset(ExecutionStatus) - gone
    assert parse_filter("status = FAILED AND status != FAILED").statuses == frozenset()


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ('create_time >= "2026-01-31T12:00:00Z"', Period(NOON, None)),
        ("create_time < 2026-01-31T13:00:00+01:00", Period(None, NOON)),
        ("create_time > 2026-01-31T12:00:00Z", Period(NOON.replace(microsecond=1), None)),
        ("create_time <= 2026-01-31t12:00:00z", Period(None, NOON.replace(microsecond=1))),
        (
            "create_time >= 2026-01-31T12:00:00Z AND create_time >= 2026-01-30T12:00:00Z",
            Period(NOON, None),
        ),
    ],
)
def test_times_bound_a_period(text: str, period: Period) -> None:
    """A time in any offset is compared exactly; of two bounds the narrower one counts."""
    assert parse_filter(text).created == period
    assert parse_filter(text.replace("create", "complete")).completed == period


def test_only_states_that_end_later_are_live() -> None:
    """A filter that no terminal execution can fit is known as such."""
    assert parse_filter("status = RUNNING OR status = QUEUED").live_only
    assert not parse_filter("status = RUNNING OR status = FAILED").live_only
    assert not parse_filter("").live_only
    assert parse_filter("quarantined = true").quarantined_only


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("status", "character 1"),
        ("status = RUNNING OR workflow = a", "by OR at character 21"),
        ("status = RUNNING OR status != FAILED", "by OR"),
        ("labels.a = 1 OR labels.b = 2", "labels by OR"),
        ("status = RUNNING workflow = a", "expects AND or OR at character 18"),
        ("(status = RUNNING AND workflow = a)", r"expects \) at character 19"),
        ("status = RUNNING AND", "at character 21"),
        ("color = red", "color"),
        ("quarantined = false", "quarantined = true"),
        ("labels. = red", "labels"),
        ("status = FLYING", "FLYING"),
        ("status > FAILED", "status by >"),
        ("create_time = 2026-01-31T12:00:00Z", "create_time by ="),
        ("create_time < yesterday", "yesterday"),
        ("create_time < 2026-01-31", "2026-01-31T09:30:00Z"),
        ("create_time < 2026-13-31T12:00:00Z", "2026-13-31"),
        ("create_time <= 9999-12-31T23:59:59Z", "9999"),
        ("status = RUNNING AND status = FAILED", "twice"),
        ("labels.a = 1 AND labels.a = 2", "labels.a twice"),
        ('workflow = a"b"', "quote all"),
        ('workflow = "a', "character 12"),
        ("workflow = a\x00", "NUL"),
        ("a" * 1001, "1001"),
    ],
)
def test_a_wrong_filter_says_where(text: str, words: str) -> None:
    """The error names what cannot be read, by its place or value."""
    with pytest.raises(FilterInvalidError, match=words) as refused:
        parse_filter(text)
    assert refused.value.field_violations[0].field == "filter"
