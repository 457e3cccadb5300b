"""What can go wrong with a transfer: for good, or so that another try may succeed."""

import re
from http import HTTPStatus
from typing import Final

import aiohttp

from foundation.errors import ErrorCode, TdpError
from node_agent.core.execution.ports import Grant

_REFUSED_GRANT: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.GONE})
_PASSING: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_SERVER_ERRORS_FROM: Final = 500
# S3's words for a signature whose time is over, which come with status 400.
_EXPIRED_CODES: Final = frozenset({"ExpiredToken", "RequestExpired", "TokenRefreshRequired"})
_ERROR_CODE: Final = re.compile(rb"<Code>([A-Za-z]{1,64})</Code>")
_ERROR_BYTES_READ: Final = 4_096
_OK: Final = frozenset({HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT})


class TransferFailedError(TdpError):
    """The store could not be reached, or answered with errors, for all tries."""

    reason = "TRANSFER_FAILED"
    retryable = True
    code = ErrorCode.UNAVAILABLE


class TransferRefusedError(TdpError):
    """The store does not take the request, and will not take it later."""

    reason = "TRANSFER_REFUSED"
    code = ErrorCode.FAILED_PRECONDITION


class ResourceMissingError(TdpError):
    """The store has no such object."""

    reason = "RESOURCE_MISSING"
    code = ErrorCode.NOT_FOUND


class ResourceDamagedError(TdpError):
    """The bytes that came are not those that the grant names, even after another try."""

    reason = "RESOURCE_DAMAGED"
    retryable = True
    code = ErrorCode.DATA_LOSS


class ResourceTooLargeError(TdpError):
    """The object has more bytes than may be read."""

    reason = "RESOURCE_TOO_LARGE"
    code = ErrorCode.OUT_OF_RANGE


class InterruptionError(Exception):
    """This try failed; another may succeed. The text is safe to be shown."""


class GrantRefusedError(InterruptionError):
    """The store no longer takes the grant."""


class RangeRefusedError(InterruptionError):
    """What is here already is no part of the object as it is now."""


def shown_name(grant: Grant | None) -> str:
    """Name a grant's resource in a message; its URL is never shown."""
    return repr(grant.resource_ref) if grant is not None else "(no grant yet)"


async def check_status(response: aiohttp.ClientResponse, grant: Grant) -> None:
    """Return for a good answer, and raise what a bad one means."""
    status = response.status
    if status in _OK or status == HTTPStatus.PARTIAL_CONTENT:
        return
    code = await _error_code(response)
    answer = f"the store answered {status}{f' ({code})' if code else ''}"
    if status in {HTTPStatus.PRECONDITION_FAILED, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE}:
        # What is here is no part of what is there, so the download begins again.
        raise RangeRefusedError(f"{answer} to a range")
    if status in _REFUSED_GRANT or code in _EXPIRED_CODES:
        raise GrantRefusedError(f"{answer} to the grant")
    if status in _PASSING or status >= _SERVER_ERRORS_FROM:
        raise InterruptionError(answer)
    if status == HTTPStatus.NOT_FOUND:
        raise ResourceMissingError(f"{answer} for {shown_name(grant)}; upload it again")
    raise TransferRefusedError(
        f"{answer} for {shown_name(grant)}; see whether store and grant fit each other"
    )


async def _error_code(response: aiohttp.ClientResponse) -> str:
    """The store's own word for the error, empty if there is none; the rest may hold secrets."""
    found = _ERROR_CODE.search(await response.content.read(_ERROR_BYTES_READ))
    return found[1].decode() if found is not None else ""
