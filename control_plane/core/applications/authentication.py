"""Turns a bearer token into the application, operator or node that it speaks for."""

from collections import OrderedDict
from typing import Final

from control_plane.core.applications.ports import KeyDirectory
from foundation.clock import Clock
from foundation.errors import UnauthenticatedError
from foundation.principals import Principal, PrincipalKind
from foundation.secrets import TokenKind, hash_token, token_kind

CACHE_TTL_S: Final = 5.0
"""How long a revoked key may still work on a replica that saw it shortly before."""
CACHE_ENTRIES_MAX: Final = 10_000


class KeyAuthenticator:
    """Implements Authenticator for API keys and node credentials.

    A key that was found valid is believed for CACHE_TTL_S, so that a stream of calls costs
    one look-up; one that was refused is looked up each time.
    """

    def __init__(self, directory: KeyDirectory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()

    async def authenticate(self, method: str, token: str) -> Principal:
        """Return the principal; UnauthenticatedError for any token that is not valid."""
        del method  # What a principal may do is the use case's business.
        kind = token_kind(token)
        digest = hash_token(token)
        known = self._known.get(digest)
        if known is not None and known[0] > self._clock.monotonic():
            return known[1]
        principal = await self._look_up(kind, digest)
        if principal is None:
            self._known.pop(digest, None)
            raise UnauthenticatedError(
                "the bearer token is not valid: use an API key or node credential that is "
                "registered here and neither revoked nor expired",
                reason="TOKEN_INVALID",
            )
        self._remember(digest, principal)
        return principal

    async def _look_up(self, kind: TokenKind | None, digest: bytes) -> Principal | None:
        if kind is TokenKind.NODE:
            node_id = await self._directory.node_of_credential(digest)
            return None if node_id is None else Principal(PrincipalKind.NODE, node_id)
        if kind is TokenKind.API_KEY:
            owner = await self._directory.key_owner(digest)
            return None if owner is None else owner.principal()
        return None

    def _remember(self, digest: bytes, principal: Principal) -> None:
        self._known[digest] = (self._clock.monotonic() + CACHE_TTL_S, principal)
        self._known.move_to_end(digest)
        while len(self._known) > CACHE_ENTRIES_MAX:
            self._known.popitem(last=False)
