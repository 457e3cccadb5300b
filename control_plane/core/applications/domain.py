"""What an application is, what may be told about it, and who an API key speaks for."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from foundation.errors import InvalidArgumentError
from foundation.principals import Principal, PrincipalKind

NAME_CHARS_MAX: Final = 100
SECRET_BYTES_MIN: Final = 24
SECRET_BYTES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Application:
    """A business system; its secrets are kept apart and never shown."""

    application_id: str
    name: str
    callback_url: str
    callback_disabled: bool
    resource_provider_url: str
    disabled: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class NewApplication:
    """What is registered; secrets are sealed already."""

    application_id: str
    name: str
    callback_url: str
    callback_secret: bytes | None
    resource_provider_url: str
    resource_provider_secret: bytes | None


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A key of an application or, without one, of an operator; only its hash is known."""

    api_key_id: str
    application_id: str | None
    operator_name: str | None
    key_sha256: bytes
    scopes: tuple[str, ...]
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class KeyOwner:
    """Whom a valid key speaks for."""

    application_id: str | None
    operator_name: str | None
    scopes: tuple[str, ...]

    def principal(self) -> Principal:
        """Return the application or the operator, never the key."""
        if self.application_id is not None:
            kind, name = PrincipalKind.APPLICATION, self.application_id
        else:
            kind, name = PrincipalKind.OPERATOR, self.operator_name or ""
        return Principal(kind, name, frozenset(self.scopes))


def checked_name(name: str, field: str) -> str:
    """Return the trimmed name; InvalidArgumentError unless it has 1 to 100 characters."""
    trimmed = name.strip()
    if not 1 <= len(trimmed) <= NAME_CHARS_MAX:
        raise InvalidArgumentError.of_field(
            field, f"has {len(trimmed)} characters after trimming: send 1 to {NAME_CHARS_MAX}"
        )
    return trimmed


def checked_secret(secret: bytes, field: str, *, needed: bool) -> bytes | None:
    """Return the secret, None for an absent one that is not needed.

    InvalidArgumentError unless it has 24 to 64 bytes; the message never quotes it.
    """
    if not secret and not needed:
        return None
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise InvalidArgumentError.of_field(
            field,
            f"has {len(secret)} bytes: send {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} random bytes",
            reason="SECRET_LENGTH",
        )
    return secret
