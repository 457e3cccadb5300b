"""Pages and their tokens."""

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
    "token", ["!", "bm90IGpzb24", "W10", page_token("other", 3, 1), page_token("steps:1", "3", 1)]
)
def test_a_strange_token_is_refused(token: str) -> None:
    """A token of another list, of other kinds, or of no list at all names its field."""
    with pytest.raises(PageTokenInvalidError) as refused:
        page_position(token, "steps:1", int, int)
    assert refused.value.field_violations[0].field == "page_token"


def test_sizes_have_a_default_and_bounds() -> None:
    """Zero means the default; what is out of bounds is refused."""
    assert page_size(0) == PAGE_SIZE_DEFAULT
    assert page_size(PAGE_SIZE_MAX) == PAGE_SIZE_MAX
    for wrong in (-1, PAGE_SIZE_MAX + 1):
        with pytest.raises(InvalidArgumentError):
            page_size(wrong)
