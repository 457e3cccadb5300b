"""The base of every error of the gateway, and those that several areas share."""

from foundation.errors import (
    AbortedError,
    InternalError,
    InvalidArgumentError,
    TdpError,
    UnavailableError,
)


class GatewayError(TdpError):
    """Base of all errors that the gateway raises on purpose."""


class TransitionForbiddenError(GatewayError, InternalError):
    """A state machine was asked for a move that its table does not have: a defect of ours."""

    reason = "TRANSITION_FORBIDDEN"


class IdempotencyKeyMissingError(GatewayError, InvalidArgumentError):
    """The request changes something and so needs an Idempotency-Key header, made by the caller.

    Send a fresh random value for each intent, and the same one with each retry of it.
    """

    reason = "IDEMPOTENCY_KEY_MISSING"


class IdempotencyKeyMalformedError(GatewayError, InvalidArgumentError):
    """The Idempotency-Key is too long or not visible ASCII; send a shorter, simpler one."""

    reason = "IDEMPOTENCY_KEY_MALFORMED"


class IdempotencyKeyReusedError(GatewayError, InvalidArgumentError):
    """The Idempotency-Key was used before for another request; use a new key for a new intent."""

    reason = "IDEMPOTENCY_KEY_REUSED"


class RequestInProgressError(GatewayError, AbortedError):
    """A request with this Idempotency-Key is still running; retry it in a moment, same key."""

    reason = "REQUEST_IN_PROGRESS"


class PageCursorInvalidError(GatewayError, InvalidArgumentError):
    """The cursor was not made by this list with these filters; start without one."""

    reason = "PAGE_CURSOR_INVALID"


class ObjectStoreUnavailableError(GatewayError, UnavailableError):
    """The object store does not answer now; retry later."""

    reason = "OBJECT_STORE_UNAVAILABLE"
