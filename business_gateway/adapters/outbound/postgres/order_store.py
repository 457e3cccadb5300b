"""Orders on PostgreSQL: a change, its command and its record in one transaction."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

import asyncpg

from business_gateway.adapters.outbound.postgres.order_rows import change_of, order_of
from business_gateway.core.errors import IdempotencyKeyReusedError, RequestInProgressError
from business_gateway.core.idempotency import RequestIdentity
from business_gateway.core.orders.documents import document_text, order_document
from business_gateway.core.orders.domain import (
    CONTROL_PLANE,
    NewCommand,
    NewOrder,
    Order,
    OrderChange,
    OrderId,
    OrderNotFoundError,
    SourceAssetNotReadyError,
    SubmitFacts,
    accepted_order,
)
from business_gateway.core.orders.evidence import CommandFact, GatewayFacts, InboxFacts
from business_gateway.core.orders.ports import CancelChange, CancelRule, RerunRule, StoredAnswer
from business_gateway.core.orders.state_machine import OrderStatus, is_final
from foundation.failpoints import failpoint
from foundation.outbox.model import SET_ASIDE_STATUSES
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database

_SQL: Final = NamedSql.load("business_gateway.sql.queries", "orders.sql", "idempotency.sql")

_RECORD_KEY: Final = "idempotency_records_pkey"

# Makes a change at a moment of the database, keeps its answer with it and returns that.
Change = Callable[[Connection, datetime], Awaitable[str]]


class PostgresOrderStore:
    """Implements OrderStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self, identity: RequestIdentity, order: NewOrder, command: NewCommand
    ) -> StoredAnswer:
        """See OrderStore."""
        request = order.request

        async def accept(connection: Connection, now: datetime) -> str:
            document = _document(accepted_order(order, now))
            accepted = await connection.fetchval(
                _SQL.insert_order,
                order.order_id,
                request.name,
                request.processing_mode.value,
                request.watermark_text,
                request.source_asset_id,
                command.command_id,
                CONTROL_PLANE,
                command.payload,
                now,
                *_scope(identity),
                identity.request_sha256,
                document,
            )
            if not accepted:
                raise await _asset_not_ready(connection, order)
            return document

        await failpoint("order.accept.before")
        answer = await self._once(identity, order.order_id, accept)
        await failpoint("order.accept.after")
        return answer

    async def cancel(
        self, identity: RequestIdentity, order_id: OrderId, rule: CancelRule
    ) -> StoredAnswer:
        """See OrderStore."""

        async def cancel(connection: Connection, _now: datetime) -> str:
            # First the command, then the order: the order of locks that marking commands has.
            submit = await _locked_submit(connection, order_id)
            order = await _locked_order(connection, order_id)
            change = rule(order, submit)
            if change is not None:
                order = await _cancelled(connection, order, change)
            return await _recorded(connection, identity, order)

        await failpoint("order.cancel.before")
        answer = await self._once(identity, order_id, cancel)
        await failpoint("order.cancel.after")
        return answer

    async def rerun(
        self, identity: RequestIdentity, order_id: OrderId, rule: RerunRule
    ) -> StoredAnswer:
        """See OrderStore."""

        async def rerun(connection: Connection, _now: datetime) -> str:
            command = rule(await _locked_order(connection, order_id))
            await _add_command(connection, command)
            row = await connection.fetchrow(_SQL.rerun_order, order_id)
            assert row is not None
            return await _recorded(connection, identity, order_of(row))

        await failpoint("order.rerun.before")
        answer = await self._once(identity, order_id, rerun)
        await failpoint("order.rerun.after")
        return answer

    async def get(self, order_id: OrderId) -> Order:
        """See OrderStore."""
        row = await self._database.fetchrow(_SQL.get_order, order_id)
        if row is None:
            raise _not_found(order_id)
        return order_of(row)

    async def page(
        self, status: OrderStatus | None, before_id: OrderId | None, limit: int
    ) -> Sequence[Order]:
        """See OrderStore."""
        if status is None:
            rows = await self._database.fetch(_SQL.page_orders, before_id, limit)
        else:
            rows = await self._database.fetch(
                _SQL.page_orders_by_status, before_id, limit, status.value
            )
        return [order_of(row) for row in rows]

    async def changes_after(
        self, order_id: OrderId, version: int, limit: int
    ) -> Sequence[OrderChange]:
        """See OrderStore."""
        rows = await self._database.fetch(_SQL.changes_after, order_id, version, limit)
        return [change_of(row) for row in rows]

    async def gateway_facts(self, order_id: OrderId) -> GatewayFacts:
        """See OrderStore."""
        order = await self.get(order_id)
        commands = await self._database.fetch(_SQL.command_facts, order_id)
        inbox = await self._database.fetchrow(_SQL.inbox_facts, order_id)
        assert inbox is not None
        return GatewayFacts(
            order_id=order_id,
            status=order.status.value,
            is_final=is_final(order.status),
            created_at=order.created_at,
            updated_at=order.updated_at,
            version=order.version,
            task_id=order.task_id,
            execution_id=order.execution_id,
            run=order.run,
            last_contiguous_sequence=order.last_contiguous_sequence,
            last_projected_sequence=order.last_projected_sequence,
            commands=[CommandFact(**dict(row)) for row in commands],
            inbox=InboxFacts(**{**dict(inbox), "last_event_id": inbox["last_event_id"] or ""}),
        )

    async def _once(
        self, identity: RequestIdentity, order_id: OrderId, change: Change
    ) -> StoredAnswer:
        async def answer(connection: Connection) -> StoredAnswer:
            return await _answer_once(connection, identity, order_id, change)

        while True:
            try:
                return await self._database.run_transaction(answer)
            except asyncpg.UniqueViolationError as error:
                # The request finished between our looking for its record and our lock; now its
                # record is there to be found.
                if error.constraint_name != _RECORD_KEY:
                    raise


async def _answer_once(
    connection: Connection, identity: RequestIdentity, order_id: OrderId, change: Change
) -> StoredAnswer:
    """Make the change, which keeps its answer, or answer from the record of the first time.

    Raises RequestInProgressError while another transaction holds the key, and
    IdempotencyKeyReusedError when the record is of another request.
    """
    found = await connection.fetchrow(_SQL.begin_request, *_scope(identity))
    assert found is not None
    if found["answer"] is not None:
        if found["request_sha256"] != identity.request_sha256:
            raise _key_reused(identity, found["order_id"])
        return StoredAnswer(OrderId(found["order_id"]), found["answer"], replayed=True)
    if not found["locked"]:
        raise RequestInProgressError(
            f"a request with Idempotency-Key {identity.key!r} is still running: send it again "
            "in a moment with the same key",
            retry_delay_s=1.0,
        )
    return StoredAnswer(order_id, await change(connection, found["now"]), replayed=False)


async def _recorded(connection: Connection, identity: RequestIdentity, order: Order) -> str:
    document = _document(order)
    await connection.execute(
        _SQL.insert_record, *_scope(identity), identity.request_sha256, order.order_id, document
    )
    return document


def _document(order: Order) -> str:
    return document_text(order_document(order))


def _scope(identity: RequestIdentity) -> tuple[str, str, str]:
    return identity.principal, identity.operation, identity.key


def _key_reused(identity: RequestIdentity, order_id: str) -> IdempotencyKeyReusedError:
    return IdempotencyKeyReusedError(
        f"Idempotency-Key {identity.key!r} was used for another {identity.operation}, about order "
        f"{order_id}: use a new key for a new request",
        metadata={"existing_id": order_id},
    )


async def _locked_submit(connection: Connection, order_id: OrderId) -> SubmitFacts | None:
    row = await connection.fetchrow(_SQL.lock_submit, order_id)
    if row is None:
        return None
    return SubmitFacts(
        ever_claimed=row["ever_claimed"], given_up=row["status"] in SET_ASIDE_STATUSES
    )


async def _locked_order(connection: Connection, order_id: OrderId) -> Order:
    row = await connection.fetchrow(_SQL.lock_order, order_id)
    if row is None:
        raise _not_found(order_id)
    return order_of(row)


async def _cancelled(connection: Connection, order: Order, change: CancelChange) -> Order:
    if change.withdraw:
        await connection.execute(_SQL.withdraw_submit, order.order_id)
    if change.command is not None:
        await _add_command(connection, change.command)
    row = await connection.fetchrow(
        _SQL.cancel_order, order.order_id, change.status.value, change.kind
    )
    assert row is not None
    return order_of(row)


async def _add_command(connection: Connection, command: NewCommand) -> None:
    await connection.execute(
        _SQL.insert_command,
        command.command_id,
        command.order_id,
        CONTROL_PLANE,
        command.payload,
        command.kind.value,
    )


async def _asset_not_ready(connection: Connection, order: NewOrder) -> SourceAssetNotReadyError:
    asset_id = order.request.source_asset_id
    state = await connection.fetchval(_SQL.asset_state, asset_id)
    found = f"is {state}" if state is not None else "does not exist"
    return SourceAssetNotReadyError(
        f"asset {asset_id} {found}: upload and complete an asset, then order with its id",
        metadata={"asset_id": asset_id, "state": state or ""},
    )


def _not_found(order_id: OrderId) -> OrderNotFoundError:
    return OrderNotFoundError(f"there is no order {order_id}: check its id")
