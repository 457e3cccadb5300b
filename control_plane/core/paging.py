"""Pages of lists: sizes within bounds, and tokens that clients pass back unread."""

import base64
import binascii
import hashlib
import json
import re
from typing import Final

from control_plane.core.errors import ControlPlaneError
from control_plane.limits import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, PAGE_TOKEN_CHARS_MAX
from foundation.errors import InvalidArgumentError

_INTEGER_MAX: Final = 2**63 - 1
_NO_TEXT: Final = re.compile("[\x00\ud800-\udfff]")


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
    text = json.dumps([_mark(scope), *position], ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode("ascii")


def page_position(token: str, scope: str, *kinds: type) -> tuple[str | int, ...] | None:
    """Return where to continue, None on the first page; PageTokenInvalidError for a strange one."""
    if not token:
        return None
    try:
        if len(token) > PAGE_TOKEN_CHARS_MAX:
            raise ValueError(token)  # noqa: TRY301 - one answer for every strange token
        padded = token + "=" * (-len(token) % 4)
        found = json.loads(base64.urlsafe_b64decode(padded.encode("ascii")))
    except (ValueError, binascii.Error, RecursionError):
        found = None
    fits = (
        isinstance(found, list)
        and len(found) == len(kinds) + 1
        and found[0] == _mark(scope)
        and all(map(_is_sound, found[1:], kinds))
    )
    if not fits:
        raise PageTokenInvalidError.of_field(
            "page_token", "was not made by this list with these filters: start without one"
        )
    return tuple(found[1:])


def _is_sound(position: object, kind: type) -> bool:
    """Whether a part of a position is of its kind, and such that the database can take it."""
    if type(position) is not kind:
        return False
    if isinstance(position, int):
        return -_INTEGER_MAX <= position <= _INTEGER_MAX
    return isinstance(position, str) and not _NO_TEXT.search(position)


def _mark(scope: str) -> str:
    """Return what stands for a scope in a token, short however long its filter is."""
    return hashlib.sha256(scope.encode()).hexdigest()[:16]
