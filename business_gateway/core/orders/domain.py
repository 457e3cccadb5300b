"""Orders: the rules of what may be ordered, cancelled and run again; pure."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NewType

from business_gateway.core.assets.domain import AssetId, is_storable
from business_gateway.core.errors import GatewayError
from business_gateway.core.orders.state_machine import OrderStatus, is_final
from foundation.errors import (
    FailedPreconditionError,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
)
from foundation.ids import is_id

OrderId = NewType("OrderId", str)
CommandId = NewType("CommandId", str)

NAME_CHARS_MAX: Final = 200
WATERMARK_CHARS_MAX: Final = 100
REASON_CHARS_MAX: Final = 500
CONTROL_PLANE: Final = "control-plane"


class OrderNotFoundError(GatewayError, NotFoundError):
    """There is no order with this id; check it."""

    reason = "ORDER_NOT_FOUND"


class SourceAssetNotReadyError(GatewayError, FailedPreconditionError):
    """The order's source asset is not READY; complete its upload, or upload another."""

    reason = "SOURCE_ASSET_NOT_READY"


class OrderNotFinishedError(GatewayError, FailedPreconditionError):
    """The order is still under way, so it cannot be run again; cancel it or wait for its end."""

    reason = "ORDER_NOT_FINISHED"


class OrderNeverSubmittedError(GatewayError, FailedPreconditionError):
    """The order never reached the platform, so there is nothing to run again; make a new one."""

    reason = "ORDER_NEVER_SUBMITTED"


class ProcessingMode(StrEnum):
    """What is to be done with the archive."""

    ARCHIVE_CLEAN_ONLY = "ARCHIVE_CLEAN_ONLY"
    ARCHIVE_CLEAN_THEN_WATERMARK = "ARCHIVE_CLEAN_THEN_WATERMARK"


class RerunMode(StrEnum):
    """What a new run repeats: everything, which is all that the platform offers yet."""

    FROM_SCRATCH = "FROM_SCRATCH"


class CommandKind(StrEnum):
    """What the platform can be told about an order."""

    SUBMIT = "SUBMIT"
    CANCEL = "CANCEL"
    RERUN = "RERUN"


@dataclass(frozen=True, slots=True)
class OrderRequest:
    """What a client asks for, checked: trimmed name and text, known mode."""

    name: str
    processing_mode: ProcessingMode
    watermark_text: str
    source_asset_id: AssetId


@dataclass(frozen=True, slots=True)
class NewOrder:
    """What is stored when an order is accepted."""

    order_id: OrderId
    request: OrderRequest


@dataclass(frozen=True, slots=True)
class NewCommand:
    """A row for the command outbox: its id is also its idempotency with the platform."""

    command_id: CommandId
    kind: CommandKind
    order_id: OrderId
    payload: str


@dataclass(frozen=True, slots=True)
class Order:
    """An order as stored; schema comments say what each field means."""

    order_id: OrderId
    name: str
    processing_mode: ProcessingMode
    watermark_text: str
    source_asset_id: AssetId
    status: OrderStatus
    task_id: str | None
    execution_id: str | None
    run: int
    last_contiguous_sequence: int
    last_projected_sequence: int
    platform_status: str
    progress_percent: int
    diagnosis: str
    diagnosis_json: str | None
    output_json: str | None
    version: int
    cancel_requested_at: datetime | None
    created_at: datetime
    updated_at: datetime
    completed_at: datetime | None


@dataclass(frozen=True, slots=True)
class OrderChange:
    """One version of an order, as live streams show it."""

    order_id: OrderId
    version: int
    kind: str
    status: OrderStatus
    platform_status: str
    run: int
    progress_percent: int
    diagnosis: str
    occurred_at: datetime


@dataclass(frozen=True, slots=True)
class SubmitFacts:
    """What the SUBMIT row says, read under its lock: None where it was withdrawn."""

    ever_claimed: bool
    given_up: bool


def accepted_order(new: NewOrder, now: datetime) -> Order:
    """Return an order as it is right after it was accepted."""
    return Order(
        order_id=new.order_id,
        name=new.request.name,
        processing_mode=new.request.processing_mode,
        watermark_text=new.request.watermark_text,
        source_asset_id=new.request.source_asset_id,
        status=OrderStatus.SUBMITTING,
        task_id=None,
        execution_id=None,
        run=0,
        last_contiguous_sequence=0,
        last_projected_sequence=0,
        platform_status="",
        progress_percent=0,
        diagnosis="",
        diagnosis_json=None,
        output_json=None,
        version=1,
        cancel_requested_at=None,
        created_at=now,
        updated_at=now,
        completed_at=None,
    )


class CancelDecision(StrEnum):
    """What a request to cancel comes to."""

    NOTHING = "NOTHING"
    WITHDRAW = "WITHDRAW"
    CLOSE = "CLOSE"
    COMMAND = "COMMAND"


def decide_cancel(order: Order, submit: SubmitFacts | None) -> CancelDecision:
    """Decide what cancelling means now; both facts are read under the SUBMIT row's lock.

    WITHDRAW: SUBMIT was never claimed, so nobody can have heard of the order: drop it.
    CLOSE: SUBMIT was finally refused, so the platform has nothing: cancelled here.
    COMMAND: the platform has it, or may have it: tell the platform.
    NOTHING: it is finished, or being cancelled already.
    """
    if submit is not None and not submit.ever_claimed and order.status is OrderStatus.SUBMITTING:
        return CancelDecision.WITHDRAW
    if order.status is OrderStatus.NEEDS_ATTENTION and order.task_id is None:
        given_up = submit is None or submit.given_up
        return CancelDecision.CLOSE if given_up else CancelDecision.COMMAND
    if is_final(order.status) or order.status is OrderStatus.CANCELING:
        return CancelDecision.NOTHING
    return CancelDecision.COMMAND


def check_rerun(order: Order) -> None:
    """Raise OrderNotFinishedError or OrderNeverSubmittedError unless it may be run again."""
    if not is_final(order.status):
        raise OrderNotFinishedError(
            f"order {order.order_id} is {order.status}: cancel it, or wait until it is finished"
        )
    if order.task_id is None or order.run < 1:
        raise OrderNeverSubmittedError(
            f"order {order.order_id} never reached the platform: create a new order instead"
        )


def checked_request(
    name: str, mode: str, watermark_text: str, source_asset_id: str
) -> OrderRequest:
    """Check an order's fields, in characters and not bytes, after trimming.

    Raises InvalidArgumentError naming every wrong field.
    """
    trimmed_name, trimmed_text = name.strip(), watermark_text.strip()
    violations = [
        *_name_violations(trimmed_name),
        *_mode_violations(mode),
        *_text_violations(mode, trimmed_text),
        *_asset_violations(source_asset_id),
    ]
    if violations:
        raise InvalidArgumentError.of_fields(violations)
    asset_id = AssetId(source_asset_id.lower())
    return OrderRequest(trimmed_name, ProcessingMode(mode), trimmed_text, asset_id)


def checked_reason(reason: str) -> str:
    """Return the trimmed reason; InvalidArgumentError over 500 characters."""
    trimmed = reason.strip()
    if len(trimmed) > REASON_CHARS_MAX or not is_storable(trimmed):
        raise InvalidArgumentError.of_field(
            "reason", f"has {len(trimmed)} characters: send at most {REASON_CHARS_MAX}, no NUL"
        )
    return trimmed


def _name_violations(name: str) -> list[FieldViolation]:
    if 1 <= len(name) <= NAME_CHARS_MAX and is_storable(name):
        return []
    found = f"has {len(name)} characters after trimming: send 1 to {NAME_CHARS_MAX}, without NUL"
    return [FieldViolation("name", found, "NAME_LENGTH")]


def _mode_violations(mode: str) -> list[FieldViolation]:
    if mode in set(ProcessingMode):
        return []
    known = " or ".join(ProcessingMode)
    return [FieldViolation("processing_mode", f"is {mode[:64]!r}: send {known}", "PROCESSING_MODE")]


def _text_violations(mode: str, text: str) -> list[FieldViolation]:
    if mode == ProcessingMode.ARCHIVE_CLEAN_ONLY and text:
        found = f"must be empty for {mode}: leave it out, or choose the other mode"
        return [FieldViolation("watermark_text", found, "WATERMARK_TEXT_NOT_ALLOWED")]
    if mode == ProcessingMode.ARCHIVE_CLEAN_THEN_WATERMARK and not (
        1 <= len(text) <= WATERMARK_CHARS_MAX and is_storable(text)
    ):
        found = (
            f"has {len(text)} characters after trimming: send 1 to {WATERMARK_CHARS_MAX}, "
            "without NUL"
        )
        return [FieldViolation("watermark_text", found, "WATERMARK_TEXT_LENGTH")]
    return []


def _asset_violations(source_asset_id: str) -> list[FieldViolation]:
    if is_id(source_asset_id):
        return []
    found = f"{source_asset_id[:64]!r} is not a UUID: send the id of an asset"
    return [FieldViolation("source_asset_id", found, "ID_MALFORMED")]
