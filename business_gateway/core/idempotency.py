"""Which request an Idempotency-Key stands for: its scope, and the hash of what was asked."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from business_gateway.core.errors import (
    IdempotencyKeyMalformedError,
    IdempotencyKeyMissingError,
)
from foundation.canonical_json import FieldValue, request_hash

KEY_CHARS_MAX: Final = 200
# Visible ASCII: what a header carries unharmed.
_KEY_SHAPE = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """(principal, operation, key), and the SHA-256 over the request's fields as sent."""

    principal: str
    operation: str
    key: str
    request_sha256: bytes


def request_identity(
    principal: str, operation: str, key: str | None, fields: Mapping[str, FieldValue]
) -> RequestIdentity:
    """Check the key and hash the fields.

    Raises IdempotencyKeyMissingError without a key, IdempotencyKeyMalformedError for one that
    is too long or not visible ASCII.
    """
    if not key:
        raise IdempotencyKeyMissingError(
            f"{operation} needs the header Idempotency-Key: send a random value of at most "
            f"{KEY_CHARS_MAX} characters, and the same one with each retry"
        )
    if len(key) > KEY_CHARS_MAX or not _KEY_SHAPE.fullmatch(key):
        raise IdempotencyKeyMalformedError.of_field(
            "Idempotency-Key",
            f"has {len(key)} characters: send 1 to {KEY_CHARS_MAX} of visible ASCII",
        )
    return RequestIdentity(principal, operation, key, request_hash(operation, fields))
