"""Who calls over REST: a bearer key whose SHA-256 is in the settings, or a session of the page."""

import hmac
from collections.abc import Callable, Sequence
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from business_gateway.core.console.errors import SessionForbiddenError
from business_gateway.core.console.sessions import Session, Sessions
from business_gateway.core.errors import GatewayError
from foundation.errors import UnauthenticatedError
from foundation.secrets import hash_token

# All keys belong to one client: replacing a key in the middle of a retry doubles nothing.
CLIENT: Final = "client"
TOKEN_CHARS_MAX: Final = 512
# The prefix makes browsers insist on Secure, on the path / and on this very host.
SESSION_COOKIE: Final = "__Host-tdp_console"
CSRF_HEADER: Final = "X-CSRF-Token"
_READING_METHODS: Final = frozenset({"GET", "HEAD"})
_bearer = HTTPBearer(auto_error=False, description="An API key of this gateway.")


class CredentialRefusedError(GatewayError, UnauthenticatedError):
    """The request has no API key, or one that is not valid; send `Authorization: Bearer <key>`."""

    reason = "CREDENTIAL_REFUSED"


Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def client_of(key_hashes: Sequence[bytes], sessions: Sessions) -> Callable[..., str]:
    """Return the dependency that answers the principal, or raises CredentialRefusedError.

    A key in the request decides alone. Without one a session of the page does: an operator's
    may only read, and what changes something must carry the session's CSRF token
    (SessionForbiddenError).
    """

    def client(request: Request, credentials: Credentials) -> str:
        if credentials is None and "Authorization" not in request.headers:
            session = session_of(request, sessions)
            if session is not None:
                _check_client(request, session)
                return CLIENT
        token = "" if credentials is None else credentials.credentials
        if not is_client_key(token, key_hashes):
            raise CredentialRefusedError(
                "the request has no valid API key: send `Authorization: Bearer <key>`"
            )
        return CLIENT

    return client


def session_of(request: Request, sessions: Sessions) -> Session | None:
    """Return the session that the request's cookie holds, None without one."""
    return sessions.read(request.cookies.get(SESSION_COOKIE, ""))


def check_csrf(request: Request, session: Session) -> None:
    """Raise SessionForbiddenError unless the request carries the session's CSRF token."""
    sent = request.headers.get(CSRF_HEADER, "").encode()
    if not hmac.compare_digest(sent, session.csrf_token.encode()):
        raise SessionForbiddenError(
            f"the request lacks the session's {CSRF_HEADER}: load the page again"
        )


def is_client_key(token: str, key_hashes: Sequence[bytes]) -> bool:
    """Whether the token is a key of a client; its length is bounded before anything is computed."""
    return 0 < len(token) <= TOKEN_CHARS_MAX and _is_known(token, key_hashes)


def _check_client(request: Request, session: Session) -> None:
    if request.method in _READING_METHODS:
        return
    check_csrf(request, session)
    if not session.client_key_sha256:
        raise SessionForbiddenError(
            "an operator's session reads orders only: sign in with an API key of the gateway too"
        )


def _is_known(token: str, key_hashes: Sequence[bytes]) -> bool:
    """Compare with every hash, so that the time tells nothing of which one was near."""
    found = hash_token(token)
    return any([hmac.compare_digest(found, one) for one in key_hashes])  # noqa: C419 - see above
