"""Who calls over REST: a bearer key whose SHA-256 is in the settings."""

import hmac
from collections.abc import Callable, Sequence
from typing import Annotated, Final

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from business_gateway.core.errors import GatewayError
from foundation.errors import UnauthenticatedError
from foundation.secrets import hash_token

# All keys belong to one client: replacing a key in the middle of a retry doubles nothing.
CLIENT: Final = "client"
_TOKEN_CHARS_MAX: Final = 512
_bearer = HTTPBearer(auto_error=False, description="An API key of this gateway.")


class CredentialRefusedError(GatewayError, UnauthenticatedError):
    """The request has no API key, or one that is not valid; send `Authorization: Bearer <key>`."""

    reason = "CREDENTIAL_REFUSED"


Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def client_of(key_hashes: Sequence[bytes]) -> Callable[[Credentials], str]:
    """Return the dependency that answers the principal, or raises CredentialRefusedError."""

    def client(credentials: Credentials) -> str:
        token = "" if credentials is None else credentials.credentials
        if not token or len(token) > _TOKEN_CHARS_MAX or not _is_known(token, key_hashes):
            raise CredentialRefusedError(
                "the request has no valid API key: send `Authorization: Bearer <key>`"
            )
        return CLIENT

    return client


def _is_known(token: str, key_hashes: Sequence[bytes]) -> bool:
    """Compare with every hash, so that the time tells nothing of which one was near."""
    found = hash_token(token)
    return any([hmac.compare_digest(found, one) for one in key_hashes])  # noqa: C419 - see above
