"""One answer per (principal, operation, key): how a repeated request is told from a new one."""

from dataclasses import dataclass
from typing import Final

from control_plane.core.errors import ControlPlaneError
from foundation.errors import AlreadyExistsError, InvalidArgumentError
from foundation.principals import Principal

KEY_CHARS_MAX: Final = 200


class IdempotencyKeyReusedError(ControlPlaneError, AlreadyExistsError):
    """The key was used before, by the same principal and operation, for another request."""

    reason = "IDEMPOTENCY_KEY_REUSED"


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """What makes a mutating request the same one as an earlier one.

    `principal` is the application, operator or node behind the call, never one of its keys.
    `request_hash` is the SHA-256 over the fields as sent.
    """

    principal: str
    operation: str
    key: str
    request_hash: bytes


def principal_text(principal: Principal) -> str:
    """Return the principal as it stands in an idempotency record, `kind:id`."""
    return f"{principal.kind}:{principal.id}"


def request_identity(
    principal: Principal, operation: str, key: str, request_hash: bytes
) -> RequestIdentity:
    """Check the key and name the request; InvalidArgumentError for an empty or long key."""
    if not key or len(key) > KEY_CHARS_MAX:
        raise InvalidArgumentError.of_field(
            "idempotency_key",
            f"has {len(key)} characters: send 1 to {KEY_CHARS_MAX}, the same for each retry",
            reason="IDEMPOTENCY_KEY_INVALID",
        )
    return RequestIdentity(principal_text(principal), operation, key, request_hash)


def reused(identity: RequestIdentity, existing_id: str) -> IdempotencyKeyReusedError:
    """Make the error for a key that stands for another request."""
    return IdempotencyKeyReusedError(
        f"idempotency key {identity.key!r} was used for another {identity.operation} request, "
        f"which made {existing_id}: send that request again, or use a new key",
        existing_id=existing_id,
    )
