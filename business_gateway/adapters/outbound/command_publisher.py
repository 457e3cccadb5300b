"""The publisher behind the command outbox: SUBMIT, CANCEL and RERUN to the control plane."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import assert_never

import structlog

from business_gateway.core.callbacks.commands import (
    CommandFacts,
    CommandOrders,
    PlatformCommands,
    outcome_of,
    parse_run_command,
    parse_submission,
)
from business_gateway.core.callbacks.domain import Acceptance, Effect
from business_gateway.core.callbacks.ports import Answer, Inbox, OrderListener
from business_gateway.core.orders.commands import platform_key
from business_gateway.core.orders.domain import CommandKind
from business_gateway.core.orders.state_machine import OrderStatus
from foundation.errors import TdpError
from foundation.failpoints import failpoint
from foundation.outbox.model import (
    SET_ASIDE_STATUSES,
    Dead,
    Delivered,
    OutboxRow,
    OutboxStatus,
    Outcome,
    Retry,
)

_log = structlog.stdlib.get_logger(__name__)
_NO_FACTS = CommandFacts("", "", None, None)


class CommandPublisher:
    """Implements Publisher. What the platform answers is projected before the row is marked.

    So a row that is marked is known to its order; one that is not is sent again under the
    same key, and answered and projected the same.
    """

    def __init__(
        self,
        platform: PlatformCommands,
        orders: CommandOrders,
        inbox: Inbox,
        listener: OrderListener,
    ) -> None:
        self._platform = platform
        self._orders = orders
        self._inbox = inbox
        self._listener = listener

    async def publish(self, rows: Sequence[OutboxRow]) -> Sequence[Outcome]:
        """Hand the rows over side by side; the outbox lets through one of each order at a time."""
        facts = await self._facts(rows)
        return await asyncio.gather(
            *(self._handed_over(row, facts.get(_order_id(row), _NO_FACTS)) for row in rows)
        )

    async def _facts(self, rows: Sequence[OutboxRow]) -> Mapping[str, CommandFacts]:
        # A first SUBMIT needs none, and it is most of what is ever sent.
        needed = {
            _order_id(row) for row in rows if _kind(row) is not CommandKind.SUBMIT or row.redriven
        }
        if not needed:
            return {}
        return {one.order_id: one for one in await self._orders.facts(sorted(needed))}

    async def _handed_over(self, row: OutboxRow, facts: CommandFacts) -> Outcome:
        try:
            return await self._sent(row, facts)
        except TdpError as error:
            return outcome_of(error)
        except Exception as error:  # noqa: BLE001 - told by the outcome and the log
            # Of this row alone: the others of the batch keep their own outcomes.
            _log.exception("command_failed_unexpectedly", outbox_id=row.outbox_id)
            return Retry(f"{type(error).__name__}: {error}")

    async def _sent(self, row: OutboxRow, facts: CommandFacts) -> Outcome:
        kind = _kind(row)
        key = platform_key(kind, _order_id(row), str(row.outbox_id))
        match kind:
            case CommandKind.SUBMIT:
                return await self._submit(key, row, facts)
            case CommandKind.CANCEL:
                return await self._cancel(key, row, facts)
            case CommandKind.RERUN:
                return await self._rerun(key, row, facts)
            case _:
                assert_never(kind)

    async def _submit(self, key: str, row: OutboxRow, facts: CommandFacts) -> Outcome:
        if facts.order_status == OrderStatus.CANCELED:
            return Dead("the order was cancelled after its SUBMIT was refused: nothing to submit")
        submission = parse_submission(row.payload)
        await failpoint("gateway.submit.before")
        acceptance = await self._platform.submit(key, submission)
        await failpoint("gateway.submit.after")
        return await self._accepted(row, acceptance)

    async def _rerun(self, key: str, row: OutboxRow, facts: CommandFacts) -> Outcome:
        if facts.task_id is None:
            return Dead("the order never reached the platform: there is nothing to run again")
        command = parse_run_command(CommandKind.RERUN, row.payload)
        await failpoint("gateway.rerun.before")
        acceptance = await self._platform.rerun(key, facts.task_id, command)
        await failpoint("gateway.rerun.after")
        return await self._accepted(row, acceptance)

    async def _cancel(self, key: str, row: OutboxRow, facts: CommandFacts) -> Outcome:
        if facts.task_id is None:
            return await self._cancelled_here(row, facts)
        command = parse_run_command(CommandKind.CANCEL, row.payload)
        await failpoint("gateway.cancel.before")
        await self._platform.cancel(key, facts.task_id, command)
        await failpoint("gateway.cancel.after")
        return Delivered()

    async def _cancelled_here(self, row: OutboxRow, facts: CommandFacts) -> Outcome:
        """Complete the cancel of an order that the platform refused to take."""
        status = facts.submit_status
        if status is not None and status not in SET_ASIDE_STATUSES:
            return Retry(f"SUBMIT is {status} again: it goes first", counts_attempt=False)
        if status == OutboxStatus.QUARANTINED:
            return Retry("SUBMIT was set aside without an answer: drive it again first")
        try:
            if await self._orders.close_unsubmitted(_order_id(row)):
                self._listener.announce(_order_id(row))
        except TdpError as error:
            return Retry(f"the order could not be cancelled here: {error}", counts_attempt=False)
        return Delivered()

    async def _accepted(self, row: OutboxRow, acceptance: Acceptance) -> Outcome:
        order_id = _order_id(row)
        try:
            outcome = await self._inbox.add(Answer(order_id, acceptance))
        except TdpError as error:
            # Our own database: says nothing about the platform, nor about the row.
            return Retry(f"the answer could not be stored: {error}", counts_attempt=False)
        if outcome is not None and outcome.effect is Effect.FOREIGN:
            _log.error(
                "acceptance_of_another_task",
                order_id=order_id,
                task_id=acceptance.task_id,
                why="an event of another task with this order's reference came first",
            )
        return Delivered()


def _kind(row: OutboxRow) -> CommandKind:
    return CommandKind(str(row.extra["kind"]))


def _order_id(row: OutboxRow) -> str:
    return str(row.extra["order_id"])
