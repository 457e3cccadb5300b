"""Errors cross a real server as rich statuses, in every kind of handler, and leak nothing."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from structlog.testing import capture_logs

from foundation.errors import (
    AlreadyExistsError,
    ErrorCode,
    FailedPreconditionError,
    FieldViolation,
    InternalError,
    InvalidArgumentError,
    MessageTooLargeError,
    PreconditionViolation,
    ResourceExhaustedError,
    TdpError,
    UnauthenticatedError,
    UnimplementedError,
)
from foundation.grpc.channel import call_unary, owned_call
from foundation.grpc.status import RemoteError, from_rpc_error, to_status, trailing_metadata
from tests.integration.foundation_grpc.echo import Caller, served

KINDS = {
    "unary": "unary_unary",
    "generator": "unary_stream",
    "writer": "unary_stream",
    "collect": "stream_unary",
    "session": "stream_stream",
    "chat": "stream_stream",
}


async def requests(text: str) -> AsyncIterator[StringValue]:
    """Stream a single request."""
    yield StringValue(value=text)


async def call(caller: Caller, name: str, text: str) -> list[str]:
    """Call a handler of any kind with one request; return its answers, or raise its TdpError."""
    kind = KINDS[name]
    request = requests(text) if kind.startswith("stream") else StringValue(value=text)
    async with owned_call(caller.method(name, kind)(request, timeout=10.0)) as started:
        try:
            if kind.endswith("unary"):
                return [(await started).value]
            return [answer.value async for answer in started]
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error


@pytest.mark.parametrize("name", KINDS)
async def test_answers_pass_through(name: str) -> None:
    """With the error interceptor in place every kind of handler still answers."""
    async with served() as one:
        assert (await call(one.caller, name, "hello"))[-1] == "hello"


@pytest.mark.parametrize("name", KINDS)
async def test_an_error_of_ours_arrives_whole(name: str) -> None:
    """Code, reason, message and metadata reach the caller from every kind of handler."""
    async with served() as one:
        with pytest.raises(FailedPreconditionError) as caught:
            await call(one.caller, name, "lease")
    assert caught.value.reason == "LEASE_LOST"
    assert caught.value.message == "lease 3 of attempt 7 is lost: stop it"
    assert caught.value.metadata == {"lease": "3"}
    assert not caught.value.retryable


@pytest.mark.parametrize("name", KINDS)
async def test_a_bug_is_an_id_outside_and_a_traceback_inside(name: str) -> None:
    """Of an unexpected exception the caller gets an id, and the log has the same id."""
    async with served() as one:
        with capture_logs() as logs, pytest.raises(InternalError) as caught:
            await call(one.caller, name, "bug")
    assert "secret" not in caught.value.message + str(caught.value.metadata)
    (logged,) = [entry for entry in logs if entry["event"] == "rpc_failed_unexpectedly"]
    assert logged["error_id"] == caught.value.metadata["error_id"]
    assert logged["error_id"] in caught.value.message
    assert isinstance(logged["exc_info"], ZeroDivisionError)


async def test_field_violations_arrive() -> None:
    """BadRequest names field, description and reason."""
    async with served() as one:
        with pytest.raises(InvalidArgumentError) as caught:
            await call(one.caller, "unary", "invalid")
    assert caught.value.field_violations == (FieldViolation("name", "is empty", "EMPTY"),)


async def test_an_error_inside_a_task_group_is_found() -> None:
    """A handler whose TaskGroup failed with one of our errors answers that error."""
    async with served() as one:
        with pytest.raises(FailedPreconditionError, match="lost"):
            await call(one.caller, "session", "group")


async def test_what_is_not_offered_says_so() -> None:
    """A generated default handler and an unknown method both answer a rich UNIMPLEMENTED."""
    async with served() as one:
        with pytest.raises(UnimplementedError, match="not offered"):
            await call(one.caller, "unary", "todo")
        with pytest.raises(UnimplementedError) as caught:
            await call_unary(one.caller.unary("nothing"), StringValue(), timeout_s=10.0)
    assert caught.value.reason == "METHOD_UNKNOWN"


async def test_an_abort_by_hand_is_left_alone() -> None:
    """A handler's own context.abort keeps its code."""
    async with served() as one:
        with pytest.raises(RemoteError) as caught:
            await call(one.caller, "unary", "abort")
    assert (caught.value.code, caught.value.reason) == (ErrorCode.DATA_LOSS, "DATA_LOSS")


class Counter:
    """Keeps what it observes."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.changed = asyncio.Event()

    def finished(self, method: str, code: str, duration_s: float) -> None:
        """Note the method's last part and the code."""
        assert duration_s >= 0.0
        self.seen.append((method.rpartition("/")[2], code))
        self.changed.set()


async def test_observers_hear_of_every_outcome() -> None:
    """Success, our errors, bugs, aborts and cancellations are all reported with their code."""
    counter = Counter()
    async with served(observers=(counter,)) as one:
        await call(one.caller, "unary", "fine")
        for text in ("lease", "bug", "abort"):
            with pytest.raises(TdpError):
                await call(one.caller, "unary", text)
        counter.changed.clear()
        waiting = one.caller.method("unary", "unary_unary")(StringValue(value="wait"))
        await one.echo.waiting.wait()
        waiting.cancel()
        await counter.changed.wait()
    codes = ["OK", "FAILED_PRECONDITION", "INTERNAL", "DATA_LOSS", "CANCELLED"]
    assert counter.seen == [("unary", code) for code in codes]


async def test_leaving_an_owned_call_cancels_the_handler() -> None:
    """A stream that is left early is cancelled at the server, not abandoned."""
    async with served() as one:
        method = one.caller.method("session", "stream_stream")
        async with owned_call(method()) as stream:
            await stream.write(StringValue(value="wait"))
            await one.echo.waiting.wait()
        await asyncio.wait_for(one.echo.cancelled.wait(), 10.0)


async def test_an_oversized_message_is_refused_before_it_is_written() -> None:
    """The client's own check names the size, and the server never sees the call."""
    async with served() as one:
        with pytest.raises(MessageTooLargeError) as caught:
            await call_unary(
                one.caller.unary(),
                StringValue(value="x" * 1_000),
                timeout_s=10.0,
                size_bytes_max=1_000,
            )
        assert one.echo.calls == 0
    assert caught.value.metadata == {"size_bytes": "1003", "size_bytes_max": "1000"}


async def test_the_transports_own_refusal_of_a_size_is_final() -> None:
    """A message over the channel's limit is MESSAGE_TOO_LARGE, which no retry can help."""
    async with served() as one:
        with pytest.raises(MessageTooLargeError) as caught:
            await call(one.caller, "unary", "x" * (4 * 1024 * 1024 + 1))
    assert not caught.value.retryable


def rebuilt(error: TdpError) -> TdpError:
    """Send an error to a status and back, without a wire."""
    status = to_status(error)
    code = next(one for one in grpc.StatusCode if one.value[0] == status.code)
    trailer = grpc.aio.Metadata(*trailing_metadata(status))
    return from_rpc_error(
        grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailer, details=status.message)
    )


def test_every_detail_survives_the_way_back() -> None:
    """Retry delay, retryability, preconditions and the existing id are the same afterwards."""
    violation = PreconditionViolation("STATE", "node-1", "is drained")
    first = rebuilt(ResourceExhaustedError("slow down", reason="RATE_LIMITED", retry_delay_s=1.25))
    second = rebuilt(FailedPreconditionError("no", precondition_violations=[violation]))
    third = rebuilt(AlreadyExistsError("taken", existing_id="abc"))
    assert (first.reason, first.retry_delay_s, first.retryable) == ("RATE_LIMITED", 1.25, True)
    assert (second.precondition_violations, second.retryable) == ((violation,), False)
    assert isinstance(third, AlreadyExistsError)
    assert third.existing_id == "abc"


def test_huge_errors_are_cut_to_fit_into_trailers() -> None:
    """A thousand violations and a long Chinese message stay below gRPC's 8 KiB of metadata."""
    violations = [FieldViolation(f"steps[{n}].key", "界" * 5_000) for n in range(1_000)]
    error = InvalidArgumentError(
        "界" * 10_000, field_violations=violations, metadata={"a": "b" * 9_000}
    )
    status = to_status(error)
    assert status.ByteSize() * 4 / 3 + len(status.message.encode()) * 3 < 8_000
    kept = rebuilt(error).field_violations
    assert kept
    assert [one.field for one in kept] == [one.field for one in violations[: len(kept)]]
    assert rebuilt(error).message.endswith("…")


def test_an_overfull_error_keeps_its_reason_and_small_facts() -> None:
    """When everything is too much, ErrorInfo still travels, with the metadata that fits."""
    preconditions = [PreconditionViolation("T", "界" * 200, "界" * 200)] * 9
    error = FailedPreconditionError(
        "no",
        reason="TOO_MUCH",
        metadata={"small": "1"} | {f"large{n}": "界" * 200 for n in range(50)},
        field_violations=[FieldViolation("f", "界" * 250)] * 9,
        precondition_violations=preconditions,
        retry_delay_s=2.0,
    )
    assert to_status(error).ByteSize() < 3_500
    back = rebuilt(error)
    assert (back.reason, back.metadata["small"], back.retry_delay_s) == ("TOO_MUCH", "1", 2.0)


def test_a_foreign_status_has_its_kinds_own_reason() -> None:
    """Without details, or with rubbish in them, the code decides."""
    rubbish = grpc.aio.Metadata(("grpc-status-details-bin", b"\xff\xff\xff"))
    for trailer in (grpc.aio.Metadata(), rubbish):
        error = from_rpc_error(
            grpc.aio.AioRpcError(grpc.StatusCode.UNAUTHENTICATED, grpc.aio.Metadata(), trailer)
        )
        assert isinstance(error, UnauthenticatedError)
        assert error.reason == "UNAUTHENTICATED"
        assert "UNAUTHENTICATED" in error.message
