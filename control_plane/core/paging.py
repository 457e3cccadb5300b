"""Pages of lists: sizes within bounds, and tokens that clients pass back unread."""

import base64
import binascii
import json

from control_plane.core.errors import ControlPlaneError
from control_plane.limits import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX
from foundation.errors import InvalidArgumentError


class PageTokenInvalidError(ControlPlaneError, InvalidArgumentError):
    """The page token was not made by this list."""

    reason = "PAGE_TOKEN_INVALID"


def page_size(asked: int, default: int = PAGE_SIZE_DEFAULT) -> int:
    """Return the size to use: the default for 0; InvalidArgumentError outside 1 to 1,000."""
    if not 0 <= asked <= PAGE_SIZE_MAX:
        raise InvalidArgumentError.of_field(
            "page_size", f"is {asked}: send 1 to {PAGE_SIZE_MAX}, or 0 for {default}"
        )
    return asked or default


def page_token(scope: str, *position: str | int) -> str:
    """Make the token that continues after `position`; `scope` ties it to list and filter."""
    text = json.dumps([scope, *position], ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode("ascii")


def page_position(token: str, scope: str, *kinds: type) -> tuple[str | int, ...] | None:
    """Return where to continue, None on the first page; PageTokenInvalidError for a strange one."""
    if not token:
        return None
    try:
        padded = token + "=" * (-len(token) % 4)
        found = json.loads(base64.urlsafe_b64decode(padded.encode("ascii")))
    except (ValueError, binascii.Error):
        found = None
    fits = (
        isinstance(found, list)
        and len(found) == len(kinds) + 1
        and found[0] == scope
        and all(type(one) is kind for one, kind in zip(found[1:], kinds, strict=True))
    )
    if not fits:
        raise PageTokenInvalidError.of_field(
            "page_token", "was not made by this list with these filters: start without one"
        )
    return tuple(found[1:])
