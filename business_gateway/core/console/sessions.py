"""Sessions of people at the page: who signed in, sealed into a cookie; no replica keeps any.

A session holds up to two identities: that of a client, who has an API key of the gateway, and
that of an operator, whose key of the control plane is kept inside so that each act at the
platform is done, and recorded, in the operator's own name. The cookie is encrypted; signing out
makes the browser forget it, and withdrawing a key ends every session that was made with it.
"""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from foundation.clock import Clock
from foundation.secrets import KeyRing, SecretPlace, SecretUnreadableError

SESSION_VALID_S: Final = 12 * 3600
_COOKIE_CHARS_MAX: Final = 3_000
_CSRF_BYTES: Final = 18
_PLACE: Final = SecretPlace(table="console", column="session", tenant="", row="")
_PURPOSE: Final = b"tdp console session 1"


@dataclass(frozen=True, slots=True)
class Session:
    """Who signed in: the SHA-256 (hex) of a client's key, an operator's key, or both.

    `csrf_token` has to come with everything that changes something.
    """

    csrf_token: str = field(repr=False)
    expires_at_s: float
    client_key_sha256: str = ""
    operator_key: str = field(default="", repr=False)

    @property
    def is_operator(self) -> bool:
        """Whether an operator's key is in it; the control plane checks it with each call."""
        return bool(self.operator_key)


class Sessions:
    """Makes, extends and reads sessions."""

    def __init__(self, secret: bytes, client_key_hashes: Sequence[bytes], clock: Clock) -> None:
        """`secret` is shared by all replicas; the key of the cookie is derived from it."""
        self._ring = KeyRing({1: hmac.digest(secret, _PURPOSE, hashlib.sha256)}, 1)
        self._client_keys = frozenset(one.hex() for one in client_key_hashes)
        self._clock = clock

    def begin(self) -> Session:
        """Return a session of nobody yet."""
        ends_at_s = self._clock.now().timestamp() + SESSION_VALID_S
        return Session(secrets.token_urlsafe(_CSRF_BYTES), ends_at_s)

    @staticmethod
    def with_client(session: Session, key_sha256: bytes) -> Session:
        """Return the session as that of a client too."""
        return replace(session, client_key_sha256=key_sha256.hex())

    @staticmethod
    def with_operator(session: Session, operator_key: str) -> Session:
        """Return the session as that of an operator too."""
        return replace(session, operator_key=operator_key)

    def seal(self, session: Session) -> str:
        """Return the cookie's value."""
        facts = [
            session.csrf_token,
            session.expires_at_s,
            session.client_key_sha256,
            session.operator_key,
        ]
        sealed = self._ring.seal(json.dumps(facts).encode(), _PLACE)
        return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode("ascii")

    def read(self, cookie: str) -> Session | None:
        """Return the session of a cookie; None if it is damaged, over, or its key was withdrawn."""
        if not cookie or len(cookie) > _COOKIE_CHARS_MAX:
            return None
        try:
            padded = cookie + "=" * (-len(cookie) % 4)
            sealed = base64.b64decode(padded.encode("ascii"), b"-_", validate=True)
            csrf, ends_at_s, client, operator = json.loads(self._ring.open(sealed, _PLACE))
        except (ValueError, binascii.Error, SecretUnreadableError):
            return None
        session = Session(csrf, ends_at_s, client if client in self._client_keys else "", operator)
        is_over = session.expires_at_s <= self._clock.now().timestamp()
        is_nobody = not session.client_key_sha256 and not session.operator_key
        return None if is_over or is_nobody else session
