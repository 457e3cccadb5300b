"""The root of every error that TDP means: reason, retryability, gRPC code and details.

A process derives its own base (`class ControlPlaneError(TdpError)`) and its errors from
that base and one of the kinds below: `class LeaseLostError(ControlPlaneError,
FailedPreconditionError)`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

_REASON_SHAPE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")


class ErrorCode(StrEnum):
    """The canonical codes of google.rpc.Code, by name, so that core needs no gRPC."""

    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"
    DATA_LOSS = "DATA_LOSS"
    UNAUTHENTICATED = "UNAUTHENTICATED"


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One field of a request that is wrong, by its path (`steps[2].key`), and why."""

    field: str
    description: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PreconditionViolation:
    """One precondition that does not hold: its type, the subject's id, and why."""

    type: str
    subject: str
    description: str


class TdpError(Exception):
    """Base of all errors that TDP raises on purpose.

    `reason` is UPPER_SNAKE and stable: clients branch on it. `retryable` says whether the
    same request can succeed later without change. `retry_delay_s` is the least wait, in
    seconds. `metadata` are string facts for programs (ids, limits), never secrets.
    """

    reason: str = "INTERNAL"
    retryable: bool = False
    code: ErrorCode = ErrorCode.INTERNAL

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Refuse, at definition, a reason that is not UPPER_SNAKE."""
        super().__init_subclass__(**kwargs)
        _check_reason(cls.reason)

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        field_violations: Sequence[FieldViolation] = (),
        precondition_violations: Sequence[PreconditionViolation] = (),
        retry_delay_s: float | None = None,
    ) -> None:
        """Keep the message (what, with which value, what to do) and its details."""
        super().__init__(message)
        if reason is not None:
            self.reason = _check_reason(reason)
        self.message = message
        self.metadata = dict(metadata or {})
        self.field_violations = tuple(field_violations)
        self.precondition_violations = tuple(precondition_violations)
        self.retry_delay_s = retry_delay_s


def is_reason(text: str) -> bool:
    """Whether the text is a well-formed reason (UPPER_SNAKE)."""
    return _REASON_SHAPE.fullmatch(text) is not None


def _check_reason(reason: str) -> str:
    if not is_reason(reason):
        message = f"error reason {reason!r} is not UPPER_SNAKE"
        raise ValueError(message)
    return reason


class InvalidArgumentError(TdpError):
    """The request is wrong whatever the state; `field_violations` name the fields."""

    reason = "INVALID_ARGUMENT"
    code = ErrorCode.INVALID_ARGUMENT

    @classmethod
    def of_field(cls, field: str, description: str, *, reason: str = "") -> Self:
        """Make the error for a single wrong field."""
        violation = FieldViolation(field, description, reason)
        return cls(f"{field}: {description}", field_violations=(violation,))

    @classmethod
    def of_fields(cls, violations: Sequence[FieldViolation]) -> Self:
        """Make the error for several wrong fields; the message lists them all."""
        message = "; ".join(f"{one.field}: {one.description}" for one in violations)
        return cls(message, field_violations=violations)


class NotFoundError(TdpError):
    """The named thing does not exist, or is not visible to this principal."""

    reason = "NOT_FOUND"
    code = ErrorCode.NOT_FOUND


class AlreadyExistsError(TdpError):
    """The thing exists with other content; metadata `existing_id` names it."""

    reason = "ALREADY_EXISTS"
    code = ErrorCode.ALREADY_EXISTS

    def __init__(
        self,
        message: str,
        *,
        existing_id: str,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Keep the id of what is already there, for programs, in metadata."""
        facts = {**(metadata or {}), "existing_id": existing_id}
        super().__init__(message, reason=reason, metadata=facts)
        self.existing_id = existing_id


class FailedPreconditionError(TdpError):
    """The state does not allow it now; a retry of the same request will not help alone."""

    reason = "FAILED_PRECONDITION"
    code = ErrorCode.FAILED_PRECONDITION


class AbortedError(TdpError):
    """A concurrent change won; reading again and retrying can succeed."""

    reason = "ABORTED"
    retryable = True
    code = ErrorCode.ABORTED


class OutOfRangeError(TdpError):
    """A position (sequence, page token) beyond what exists."""

    reason = "OUT_OF_RANGE"
    code = ErrorCode.OUT_OF_RANGE


class PermissionDeniedError(TdpError):
    """The principal is known and may not do this."""

    reason = "PERMISSION_DENIED"
    code = ErrorCode.PERMISSION_DENIED


class UnauthenticatedError(TdpError):
    """No credential, or one that is not valid; never says which part was wrong."""

    reason = "UNAUTHENTICATED"
    code = ErrorCode.UNAUTHENTICATED


class ResourceExhaustedError(TdpError):
    """A quota, rate or size is used up; `retry_delay_s` says when to try again, if ever."""

    reason = "RESOURCE_EXHAUSTED"
    retryable = True
    code = ErrorCode.RESOURCE_EXHAUSTED


class MessageTooLargeError(TdpError):
    """A message, document or page over its bound; the same one will never fit."""

    reason = "MESSAGE_TOO_LARGE"
    code = ErrorCode.RESOURCE_EXHAUSTED


class DeadlineExceededError(TdpError):
    """It took longer than allowed; whether it happened is unknown, so retry with the same key."""

    reason = "DEADLINE_EXCEEDED"
    retryable = True
    code = ErrorCode.DEADLINE_EXCEEDED


class UnavailableError(TdpError):
    """A part that is needed does not answer now; retry later with the same key."""

    reason = "UNAVAILABLE"
    retryable = True
    code = ErrorCode.UNAVAILABLE


class UnimplementedError(TdpError):
    """The contract names it and this version does not offer it."""

    reason = "UNIMPLEMENTED"
    code = ErrorCode.UNIMPLEMENTED


class InternalError(TdpError):
    """A broken invariant of ours; the message carries an error id and nothing private."""

    reason = "INTERNAL"
    code = ErrorCode.INTERNAL
