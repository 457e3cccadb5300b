"""Pages of lists: sizes within bounds, and cursors that clients pass back unread."""

import base64
import binascii
import json
from typing import Final

from business_gateway.core.errors import PageCursorInvalidError
from foundation.errors import InvalidArgumentError

PAGE_SIZE_DEFAULT: Final = 50
PAGE_SIZE_MAX: Final = 200


def page_size(asked: int) -> int:
    """Return the size to use: the default for 0; InvalidArgumentError outside 1 to the maximum."""
    if not 0 <= asked <= PAGE_SIZE_MAX:
        raise InvalidArgumentError.of_field(
            "page_size", f"is {asked}: send 1 to {PAGE_SIZE_MAX}, or none for {PAGE_SIZE_DEFAULT}"
        )
    return asked or PAGE_SIZE_DEFAULT


def page_cursor(scope: str, position: str) -> str:
    """Make the cursor that continues after `position`; `scope` ties it to list and filter."""
    text = json.dumps([scope, position], ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode("ascii")


def page_position(cursor: str, scope: str) -> str | None:
    """Return where to continue, None without a cursor; PageCursorInvalidError for a strange one."""
    if not cursor:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        found = json.loads(base64.b64decode(padded.encode("ascii"), b"-_", validate=True))
    except (ValueError, binascii.Error):
        found = None
    if not isinstance(found, list) or [type(one) for one in found] != [str, str]:
        found = [None, None]
    if found[0] != scope or not isinstance(found[1], str):
        raise PageCursorInvalidError.of_field(
            "cursor", "was not made by this list with these filters: start without one"
        )
    return found[1]
