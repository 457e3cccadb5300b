"""Pages and their tokens."""

import base64
import json

import pytest

from control_plane.core.paging import PageTokenInvalidError, page_position, page_size, page_token
from control_plane.limits import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX
from foundation.errors import InvalidArgumentError


def test_a_token_leads_back_to_its_position() -> None:
    """A token made by a list continues that list."""
    token = page_token("steps:1", 3, -1)
    assert page_position(token, "steps:1", int, int) == (3, -1)
    assert page_position("", "steps:1", int, int) is None


@pytest.mark.parametrize(
    "token",
    [
        "!",
        "bm90IGpzb24",
        "W10",
        base64.urlsafe_b64encode(b"[" * 700).decode(),
        page_token("other", 3, 1),
        page_token("steps:1", "3", 1),
        page_token("steps:1", 3, 2**63),
        page_token("steps:1", 3, 1) + "A" * 1_000,
    ],
)
def test_a_strange_token_is_refused(token: str) -> None:
    """A token of another list, of other kinds, or of no list at all names its field."""
    with pytest.raises(PageTokenInvalidError) as refused:
        page_position(token, "steps:1", int, int)
    assert refused.value.field_violations[0].field == "page_token"


@pytest.mark.parametrize("name", ["a\x00", "\ud800"])
def test_a_position_that_no_database_takes_is_refused(name: str) -> None:
    """What is no text for PostgreSQL is the caller's mistake, not an internal error."""
    with pytest.raises(PageTokenInvalidError):
        page_position(_token_with(name), "nodes", str)
    assert page_position(_token_with("a\nb"), "nodes", str) == ("a\nb",)


def test_a_token_stays_short_however_long_its_filter() -> None:
    """A filter is in the token as its hash, so that a token always fits."""
    assert len(page_token("tasks:" + "x" * 1_000, "0190aaaa-0000-7000-8000-000000000001")) < 100


def _token_with(name: str) -> str:
    mark, _ = json.loads(base64.urlsafe_b64decode(page_token("nodes", "abc") + "=="))
    return base64.urlsafe_b64encode(json.dumps([mark, name]).encode()).decode()


def test_sizes_have_a_default_and_bounds() -> None:
    """Zero means the default; what is out of bounds is refused."""
    assert page_size(0) == PAGE_SIZE_DEFAULT
    assert page_size(PAGE_SIZE_MAX) == PAGE_SIZE_MAX
    for wrong in (-1, PAGE_SIZE_MAX + 1):
        with pytest.raises(InvalidArgumentError):
            page_size(wrong)
