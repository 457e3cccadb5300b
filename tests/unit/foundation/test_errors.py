"""Errors: reasons, codes and details, and their derivation by a process."""

import inspect

import pytest

from foundation import errors
from foundation.errors import (
    AlreadyExistsError,
    ErrorCode,
    FailedPreconditionError,
    FieldViolation,
    InvalidArgumentError,
    TdpError,
)


class SomeProcessError(TdpError):
    """Base of some process."""


class LeaseLostError(SomeProcessError, FailedPreconditionError):
    """A derived kind with a reason of its own."""

    reason = "LEASE_LOST"


class PlainError(SomeProcessError, FailedPreconditionError):
    """A derived kind without a reason of its own."""


def test_a_process_error_takes_code_from_its_kind_and_its_own_reason() -> None:
    """An error of a process is caught by its base and keeps its kind's gRPC code."""
    error: TdpError = LeaseLostError("attempt 1 lost lease 3: stop it")
    assert isinstance(error, SomeProcessError)
    assert (error.reason, error.code) == ("LEASE_LOST", ErrorCode.FAILED_PRECONDITION)
    assert str(error) == error.message == "attempt 1 lost lease 3: stop it"


def test_the_process_base_does_not_hide_the_kind() -> None:
    """A process's bare base overrides neither reason nor code of the kind beside it."""
    error = PlainError("no")
    assert (error.reason, error.code) == ("FAILED_PRECONDITION", ErrorCode.FAILED_PRECONDITION)


def test_an_instance_may_name_a_finer_reason() -> None:
    """A reason given to one error does not leak into its class."""
    assert FailedPreconditionError("no", reason="NODE_DRAINED").reason == "NODE_DRAINED"
    assert FailedPreconditionError.reason == "FAILED_PRECONDITION"


@pytest.mark.parametrize("reason", ["", "lower", "TWO__BARS", "_X", "WITH SPACE", "1ST"])
def test_reasons_are_upper_snake(reason: str) -> None:
    """A misspelt reason is refused on an instance and on a class."""
    with pytest.raises(ValueError, match="UPPER_SNAKE"):
        TdpError("x", reason=reason)
    with pytest.raises(ValueError, match="UPPER_SNAKE"):
        type("BadError", (TdpError,), {"reason": reason})


def test_already_exists_names_the_existing_id() -> None:
    """The id of what is there travels as an attribute and as metadata."""
    error = AlreadyExistsError("taken", existing_id="abc", metadata={"kind": "task"})
    assert (error.existing_id, error.metadata) == ("abc", {"existing_id": "abc", "kind": "task"})


def test_invalid_argument_lists_every_field() -> None:
    """Several wrong fields make one error whose message and violations name them all."""
    violations = [FieldViolation("a", "is empty"), FieldViolation("b[1]", "is 0")]
    error = InvalidArgumentError.of_fields(violations)
    assert error.message == "a: is empty; b[1]: is 0"
    assert error.field_violations == tuple(violations)


def test_every_kind_has_documentation_and_a_code() -> None:
    """Each class of the module says what it means and maps to a canonical code."""
    kinds = [
        kind
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, TdpError)
    ]
    assert len(kinds) > 10
    assert all(kind.__doc__ and kind.code in ErrorCode for kind in kinds)
