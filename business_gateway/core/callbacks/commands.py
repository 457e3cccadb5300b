"""Hands commands to the platform and says what its answers mean for their outbox rows."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from business_gateway.core.callbacks.domain import Acceptance
from business_gateway.core.errors import GatewayError
from business_gateway.core.orders.domain import CommandKind, RerunMode
from foundation.errors import ErrorCode, InvalidArgumentError, TdpError
from foundation.outbox.model import Dead, DestinationUnreachable, Outcome, Retry

FINAL_REFUSALS: Final = frozenset(
    {
        ErrorCode.INVALID_ARGUMENT,
        ErrorCode.NOT_FOUND,
        ErrorCode.ALREADY_EXISTS,
        ErrorCode.FAILED_PRECONDITION,
        ErrorCode.PERMISSION_DENIED,
    }
)


class CommandPayloadError(GatewayError, InvalidArgumentError):
    """A command's payload is not what its kind carries: a defect of ours, or of another version."""

    reason = "COMMAND_PAYLOAD_UNREADABLE"


@dataclass(frozen=True, slots=True)
class Submission:
    """What SUBMIT asks for."""

    order_id: str
    name: str
    workflow_name: str
    workflow_version: str
    input_json: str


@dataclass(frozen=True, slots=True)
class RunCommand:
    """What CANCEL and RERUN ask for; run 0 is the current one."""

    order_id: str
    run: int
    reason: str
    mode: RerunMode = RerunMode.FROM_SCRATCH


class PlatformCommands(Protocol):
    """What the platform can be told; each call is idempotent under its key.

    Raises the TdpError that the platform answered; UnavailableError when it is out of reach.
    """

    async def submit(self, key: str, submission: Submission) -> Acceptance:
        """Hand an order over."""
        ...

    async def cancel(self, key: str, task_id: str, command: RunCommand) -> None:
        """Ask for the end of a run; one that is over or not current stays as it is."""
        ...

    async def rerun(self, key: str, task_id: str, command: RunCommand) -> Acceptance:
        """Begin a new run of a finished task, and return the run that is then current."""
        ...


@dataclass(frozen=True, slots=True)
class CommandFacts:
    """What a command needs to know of its order; `submit_status` is None without a SUBMIT."""

    order_id: str
    order_status: str
    task_id: str | None
    submit_status: str | None


class CommandOrders(Protocol):
    """Orders as commands see them."""

    async def facts(self, order_ids: Sequence[str]) -> Sequence[CommandFacts]:
        """Read the facts of those orders that exist."""
        ...

    async def close_unsubmitted(self, order_id: str) -> bool:
        """Cancel an order that was finally refused, unless it was submitted after all."""
        ...


def parse_submission(payload: str) -> Submission:
    """Read the payload of SUBMIT; CommandPayloadError for another's."""
    try:
        fields = json.loads(payload)
        return Submission(
            order_id=str(fields["order_id"]),
            name=str(fields["name"]),
            workflow_name=str(fields["workflow_name"]),
            workflow_version=str(fields["workflow_version"]),
            input_json=json.dumps(fields["input"], ensure_ascii=False, separators=(",", ":")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(CommandKind.SUBMIT, error) from error


def parse_run_command(kind: CommandKind, payload: str) -> RunCommand:
    """Read the payload of CANCEL or RERUN; CommandPayloadError for another's."""
    try:
        fields = json.loads(payload)
        mode = RerunMode(fields["mode"]) if kind is CommandKind.RERUN else RerunMode.FROM_SCRATCH
        run, reason = int(fields["run"]), str(fields["reason"])
        return RunCommand(str(fields["order_id"]), run, reason, mode)
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(kind, error) from error


def outcome_of(error: TdpError) -> Outcome:
    """Return what a failed call means: given up, tried again, or nothing but out of reach."""
    text = f"{error.code} {error.reason}: {error.message}"
    if error.code in FINAL_REFUSALS:
        return Dead(text)
    if error.code is ErrorCode.UNAVAILABLE:
        return DestinationUnreachable(text)
    return Retry(text, retry_after_s=error.retry_delay_s)


def _unreadable(kind: CommandKind, error: Exception) -> CommandPayloadError:
    return CommandPayloadError(f"the payload of {kind} cannot be read: {error!r}")
