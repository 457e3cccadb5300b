"""The use cases of orders: create, cancel, run again, read, list."""

from collections.abc import Sequence
from dataclasses import dataclass

from business_gateway.core.idempotency import request_identity
from business_gateway.core.orders.commands import (
    SHIPPED_WORKFLOWS,
    Workflows,
    cancel_command,
    rerun_command,
    submit_command,
)
from business_gateway.core.orders.domain import (
    CancelDecision,
    CommandId,
    NewCommand,
    NewOrder,
    Order,
    OrderId,
    RerunMode,
    SubmitFacts,
    check_rerun,
    checked_reason,
    checked_request,
    decide_cancel,
)
from business_gateway.core.orders.ports import (
    CancelChange,
    CommandAnnouncer,
    OrderChangeAnnouncer,
    OrderStore,
    StoredAnswer,
)
from business_gateway.core.orders.state_machine import OrderStatus, check_order_move
from business_gateway.core.paging import page_cursor, page_position, page_size
from foundation.errors import InvalidArgumentError
from foundation.ids import IdSource, parse_id


@dataclass(frozen=True, slots=True)
class OrderPage:
    """Some orders, newest first, and the cursor of the next page: empty on the last."""

    orders: Sequence[Order]
    next_cursor: str


@dataclass(frozen=True, slots=True)
class OrderDraft:
    """An order's fields as sent."""

    name: str
    processing_mode: str
    watermark_text: str
    source_asset_id: str


class Orders:
    """What a client does with orders. Commands leave through the outbox, never from here."""

    def __init__(
        self,
        store: OrderStore,
        ids: IdSource,
        commands: CommandAnnouncer,
        changes: OrderChangeAnnouncer,
        workflows: Workflows = SHIPPED_WORKFLOWS,
    ) -> None:
        self._workflows = workflows
        self._store = store
        self._ids = ids
        self._commands = commands
        self._changes = changes

    async def create(self, principal: str, key: str | None, draft: OrderDraft) -> StoredAnswer:
        """Accept an order: stored with its SUBMIT, or replayed.

        Raises InvalidArgumentError, SourceAssetNotReadyError, and the errors of the key.
        """
        identity = request_identity(
            principal,
            "CreateOrder",
            key,
            {
                "name": draft.name,
                "processing_mode": draft.processing_mode,
                "watermark_text": draft.watermark_text,
                "source_asset_id": draft.source_asset_id,
            },
        )
        request = checked_request(
            draft.name, draft.processing_mode, draft.watermark_text, draft.source_asset_id
        )
        order = NewOrder(OrderId(self._ids.new_id()), request)
        command = submit_command(self._new_command_id(), order, self._workflows)
        return self._told(await self._store.create(identity, order, command))

    async def cancel(
        self, principal: str, key: str | None, order_id: str, reason: str
    ) -> StoredAnswer:
        """Ask for the end of an order; one that is finished is answered as it is.

        Raises OrderNotFoundError, InvalidArgumentError, and the errors of the key.
        """
        wanted = OrderId(parse_id(order_id, "order_id"))
        identity = request_identity(
            principal, "CancelOrder", key, {"order_id": wanted, "reason": reason}
        )
        why = checked_reason(reason)
        command_id = self._new_command_id()

        def rule(order: Order, submit: SubmitFacts | None) -> CancelChange | None:
            return _cancel_change(order, submit, command_id, why)

        return self._told(await self._store.cancel(identity, wanted, rule))

    async def rerun(
        self, principal: str, key: str | None, order_id: str, mode: str, reason: str
    ) -> StoredAnswer:
        """Begin another run of a finished order.

        Raises OrderNotFoundError, OrderNotFinishedError, OrderNeverSubmittedError,
        InvalidArgumentError, and the errors of the key.
        """
        wanted = OrderId(parse_id(order_id, "order_id"))
        identity = request_identity(
            principal, "RerunOrder", key, {"order_id": wanted, "mode": mode, "reason": reason}
        )
        chosen, why = _checked_mode(mode), checked_reason(reason)
        command_id = self._new_command_id()

        def rule(order: Order) -> NewCommand:
            check_rerun(order)
            return rerun_command(command_id, wanted, order.run, chosen, why)

        return self._told(await self._store.rerun(identity, wanted, rule))

    async def get(self, order_id: str) -> Order:
        """Read one; OrderNotFoundError."""
        return await self._store.get(OrderId(parse_id(order_id, "order_id")))

    async def page(self, status: str, cursor: str, size: int) -> OrderPage:
        """Read a page, newest first; InvalidArgumentError, PageCursorInvalidError."""
        wanted = _checked_status(status)
        limit = page_size(size)
        scope = f"orders:{status}"
        position = page_position(cursor, scope)
        before_id = None if position is None else OrderId(parse_id(position, "cursor"))
        found = await self._store.page(wanted, before_id, limit + 1)
        more = len(found) > limit
        next_cursor = page_cursor(scope, found[limit - 1].order_id) if more else ""
        return OrderPage(found[:limit], next_cursor)

    def _new_command_id(self) -> CommandId:
        return CommandId(self._ids.new_id())

    def _told(self, answer: StoredAnswer) -> StoredAnswer:
        """Wake who waits; a replay too, since the first answer may have died before this."""
        self._commands.commands_added()
        self._changes.announce(answer.order_id)
        return answer


def _cancel_change(
    order: Order, submit: SubmitFacts | None, command_id: CommandId, reason: str
) -> CancelChange | None:
    decision = decide_cancel(order, submit)
    if decision is CancelDecision.NOTHING:
        return None
    if decision is CancelDecision.WITHDRAW:
        change = CancelChange(OrderStatus.CANCELED, "WITHDRAWN", withdraw=True)
    elif decision is CancelDecision.CLOSE:
        change = CancelChange(OrderStatus.CANCELED, "CLOSED")
    else:
        # A run that has only been asked for has no number yet; its RERUN goes out first.
        run = 0 if order.status is OrderStatus.SUBMITTING else order.run
        command = cancel_command(command_id, order.order_id, run, reason)
        change = CancelChange(OrderStatus.CANCELING, "CANCEL_REQUESTED", command=command)
    check_order_move(order.status, change.status, never_submitted=order.task_id is None)
    return change


def _checked_mode(mode: str) -> RerunMode:
    if mode not in set(RerunMode):
        known = " or ".join(RerunMode)
        raise InvalidArgumentError.of_field("mode", f"is {mode[:64]!r}: send {known}")
    return RerunMode(mode)


def _checked_status(status: str) -> OrderStatus | None:
    if not status:
        return None
    if status not in set(OrderStatus):
        known = ", ".join(OrderStatus)
        raise InvalidArgumentError.of_field("status", f"is {status[:64]!r}: send one of {known}")
    return OrderStatus(status)
