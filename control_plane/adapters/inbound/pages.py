"""Pages of answers: as many messages as fit both the size that was asked for and the bytes."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from google.protobuf.message import Message

from control_plane.core.paging import page_token
from control_plane.limits import PAGE_BYTES_MAX

ViewT = TypeVar("ViewT")
MessageT = TypeVar("MessageT", bound=Message)


def page_of(
    found: Sequence[ViewT], size: int, to_message: Callable[[ViewT], MessageT]
) -> tuple[list[MessageT], list[ViewT]]:
    """Translate up to `size` views within the bytes of a page.

    Returns the messages, and, if there are more, the last view in them (else nothing).
    """
    page: list[MessageT] = []
    page_bytes = 0
    for view in found[:size]:
        message = to_message(view)
        page_bytes += message.ByteSize()
        if page and page_bytes > PAGE_BYTES_MAX:
            break
        page.append(message)
    more = len(found) > len(page)
    return page, [found[len(page) - 1]] if more else []


def next_page(scope: str, *last: str | int | tuple[str | int, ...]) -> str:
    """Return the token that goes on after the last item; empty where there is none."""
    if not last:
        return ""
    (position,) = last
    return page_token(scope, *(position if isinstance(position, tuple) else (position,)))
