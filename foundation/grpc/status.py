"""Errors to google.rpc.Status and back: one table for all servers and clients.

ErrorInfo (domain "tdp") is always there; BadRequest, PreconditionFailure and RetryInfo when
the error has something to say in them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from foundation import errors
from foundation.errors import ErrorCode, FieldViolation, PreconditionViolation, TdpError
from foundation.grpc.times import duration, seconds_of

ERROR_DOMAIN: Final = "tdp"
DETAILS_KEY: Final = "grpc-status-details-bin"
# Trailers above 8 KiB are refused by some peers (gRPC's soft limit). The message travels
# twice, percent-encoded once; the details travel in base64.
_MESSAGE_BYTES_MAX = 512
_DETAILS_BYTES_MAX = 3_072
_INFO_BYTES_MAX = 1_024
_DESCRIPTION_CHARS_MAX = 256
_RETRYABLE_KEY = "retryable"

_Detail = TypeVar("_Detail", bound=Message)

_KINDS: Final[Mapping[ErrorCode, type[TdpError]]] = {
    ErrorCode.INVALID_ARGUMENT: errors.InvalidArgumentError,
    ErrorCode.NOT_FOUND: errors.NotFoundError,
    ErrorCode.FAILED_PRECONDITION: errors.FailedPreconditionError,
    ErrorCode.ABORTED: errors.AbortedError,
    ErrorCode.OUT_OF_RANGE: errors.OutOfRangeError,
    ErrorCode.PERMISSION_DENIED: errors.PermissionDeniedError,
    ErrorCode.UNAUTHENTICATED: errors.UnauthenticatedError,
    ErrorCode.RESOURCE_EXHAUSTED: errors.ResourceExhaustedError,
    ErrorCode.DEADLINE_EXCEEDED: errors.DeadlineExceededError,
    ErrorCode.UNAVAILABLE: errors.UnavailableError,
    ErrorCode.UNIMPLEMENTED: errors.UnimplementedError,
    ErrorCode.INTERNAL: errors.InternalError,
}


class RemoteError(TdpError):
    """A status whose code has no kind of its own (CANCELLED, UNKNOWN, DATA_LOSS)."""

    reason = "REMOTE_ERROR"

    def __init__(self, message: str, *, remote_code: ErrorCode, reason: str) -> None:
        """Keep the code that the peer answered."""
        super().__init__(message, reason=reason)
        self.code = remote_code


def grpc_code(code: ErrorCode) -> grpc.StatusCode:
    """Return gRPC's enum member for a canonical code."""
    return grpc.StatusCode[code.value]


def to_status(error: TdpError) -> status_pb2.Status:
    """Return the rich status of an error, cut to fit into trailers."""
    status = status_pb2.Status(
        code=grpc_code(error.code).value[0], message=_cut(error.message, _MESSAGE_BYTES_MAX)
    )
    for detail in _details(error):
        packed = AnyMessage()
        packed.Pack(detail)
        if status.ByteSize() + packed.ByteSize() <= _DETAILS_BYTES_MAX:
            status.details.append(packed)
    return status


def trailing_metadata(status: status_pb2.Status) -> tuple[tuple[str, bytes], ...]:
    """Return the trailer in which a rich status travels."""
    return ((DETAILS_KEY, status.SerializeToString()),)


def from_rpc_error(error: grpc.aio.AioRpcError) -> TdpError:
    """Return a failed call's status as the error that it is on this side.

    The kind follows the code; reason, message, metadata, violations, retry delay and
    retryability come from the details. A status without them (of the transport, a proxy or
    a foreign server) gets the kind's own reason.
    """
    code = ErrorCode[error.code().name]
    details = _received_details(error)
    info = _first(details, error_details_pb2.ErrorInfo)
    message = error.details() or f"the peer answered {code.value} without a message"
    remote = _of_kind(code, message, info)
    remote.field_violations = tuple(_field_violations(details))
    remote.precondition_violations = tuple(_precondition_violations(details))
    retry = _first(details, error_details_pb2.RetryInfo)
    if retry is not None and retry.HasField("retry_delay"):
        remote.retry_delay_s = seconds_of(retry.retry_delay)
    return remote


def _details(error: TdpError) -> Iterator[Message]:
    yield _error_info(error)
    if error.retry_delay_s is not None:
        yield error_details_pb2.RetryInfo(retry_delay=duration(error.retry_delay_s))
    if error.field_violations:
        yield _bad_request(error.field_violations)
    if error.precondition_violations:
        yield _precondition_failure(error.precondition_violations)


def _error_info(error: TdpError) -> error_details_pb2.ErrorInfo:
    info = error_details_pb2.ErrorInfo(
        reason=error.reason,
        domain=ERROR_DOMAIN,
        metadata={_RETRYABLE_KEY: "true" if error.retryable else "false"},
    )
    for key, value in error.metadata.items():
        # What does not fit is left out, so that reason and domain always travel.
        if info.ByteSize() + len(key) + len(value.encode("utf-8", "replace")) < _INFO_BYTES_MAX:
            info.metadata[key] = value
    return info


def _bad_request(violations: Sequence[FieldViolation]) -> error_details_pb2.BadRequest:
    request = error_details_pb2.BadRequest()
    for one in violations:
        added = request.field_violations.add(
            field=one.field[:_DESCRIPTION_CHARS_MAX],
            description=one.description[:_DESCRIPTION_CHARS_MAX],
            reason=one.reason,
        )
        if request.ByteSize() > _DETAILS_BYTES_MAX // 2:
            # The first violations are kept: the caller mends those and sees the next.
            request.field_violations.remove(added)
            break
    return request


def _precondition_failure(
    violations: Sequence[PreconditionViolation],
) -> error_details_pb2.PreconditionFailure:
    failure = error_details_pb2.PreconditionFailure()
    for one in violations[:4]:
        failure.violations.add(
            type=one.type,
            subject=one.subject[:_DESCRIPTION_CHARS_MAX],
            description=one.description[:_DESCRIPTION_CHARS_MAX],
        )
    return failure


def _cut(text: str, size_bytes_max: int) -> str:
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= size_bytes_max:
        return encoded.decode("utf-8")
    return encoded[: size_bytes_max - 3].decode("utf-8", "ignore") + "…"


def _received_details(error: grpc.aio.AioRpcError) -> list[AnyMessage]:
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            try:
                return list(status_pb2.Status.FromString(value).details)
            except DecodeError:
                # A foreign server's rubbish must not hide the status itself.
                return []
    return []


def _first(details: Sequence[AnyMessage], kind: type[_Detail]) -> _Detail | None:
    for packed in details:
        if packed.TypeName() == kind.DESCRIPTOR.full_name:
            found = kind()
            try:
                packed.Unpack(found)
            except DecodeError:
                return None
            return found
    return None


def _of_kind(code: ErrorCode, message: str, info: error_details_pb2.ErrorInfo | None) -> TdpError:
    metadata = dict(info.metadata) if info is not None else {}
    retryable = metadata.pop(_RETRYABLE_KEY, None)
    error = _bare(code, message, metadata)
    error.metadata = metadata
    if info is not None and errors.is_reason(info.reason):
        error.reason = info.reason
    if retryable is not None:
        error.retryable = retryable == "true"
    return error


def _bare(code: ErrorCode, message: str, metadata: Mapping[str, str]) -> TdpError:
    if code is ErrorCode.ALREADY_EXISTS:
        return errors.AlreadyExistsError(message, existing_id=metadata.get("existing_id", ""))
    if code is ErrorCode.RESOURCE_EXHAUSTED and "larger than max" in message:
        # The transport's own refusal of a message; the same one will never fit.
        return errors.MessageTooLargeError(message)
    kind = _KINDS.get(code)
    if kind is None:
        return RemoteError(message, remote_code=code, reason=code.value)
    return kind(message)


def _field_violations(details: Sequence[AnyMessage]) -> Iterator[FieldViolation]:
    request = _first(details, error_details_pb2.BadRequest)
    for one in request.field_violations if request is not None else ():
        yield FieldViolation(one.field, one.description, one.reason)


def _precondition_violations(details: Sequence[AnyMessage]) -> Iterator[PreconditionViolation]:
    failure = _first(details, error_details_pb2.PreconditionFailure)
    for one in failure.violations if failure is not None else ():
        yield PreconditionViolation(one.type, one.subject, one.description)
