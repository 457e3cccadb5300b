"""Orders on PostgreSQL: a change, its command and its record in one transaction."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

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
)
from business_gateway.core.orders.evidence import CommandFact, GatewayFacts, InboxFacts
from business_gateway.core.orders.ports import CancelChange, CancelRule, RerunRule, StoredAnswer
from business_gateway.core.orders.state_machine import OrderStatus, is_final
from foundation.failpoints import failpoint
from foundation.outbox.model import SET_ASIDE_STATUSES
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database

_SQL: Final = NamedSql.load("business_gateway.sql.queries", "orders.sql", "idempotency.sql")

Change = Callable[[Connection], Awaitable[Order]]


class PostgresOrderStore:
    """Implements OrderStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self, identity: RequestIdentity, order: NewOrder, command: NewCommand
    ) -> StoredAnswer:
        """See OrderStore."""
        request = order.request

        async def accept(connection: Connection) -> Order:
            row = await connection.fetchrow(
                _SQL.insert_order,
                order.order_id,
                request.name,
                request.processing_mode.value,
                request.watermark_text,
                request.source_asset_id,
                command.command_id,
                CONTROL_PLANE,
                command.payload,
            )
            if row is None:
                raise await _asset_not_ready(connection, order)
            return order_of(row)

        await failpoint("order.accept.before")
        answer = await self._once(identity, accept)
        await failpoint("order.accept.after")
        return answer

    async def cancel(
        self, identity: RequestIdentity, order_id: OrderId, rule: CancelRule
    ) -> StoredAnswer:
        """See OrderStore."""

        async def cancel(connection: Connection) -> Order:
            # First the command, then the order: the order of locks that marking commands has.
            submit = await _locked_submit(connection, order_id)
            order = await _locked_order(connection, order_id)
            change = rule(order, submit)
            return order if change is None else await _cancelled(connection, order, change)

        await failpoint("order.cancel.before")
        answer = await self._once(identity, cancel)
        await failpoint("order.cancel.after")
        return answer

    async def rerun(
        self, identity: RequestIdentity, order_id: OrderId, rule: RerunRule
    ) -> StoredAnswer:
        """See OrderStore."""

        async def rerun(connection: Connection) -> Order:
            command = rule(await _locked_order(connection, order_id))
            await _add_command(connection, command)
            row = await connection.fetchrow(_SQL.rerun_order, order_id)
            assert row is not None
            return order_of(row)

        await failpoint("order.rerun.before")
        answer = await self._once(identity, rerun)
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

    async def _once(self, identity: RequestIdentity, change: Change) -> StoredAnswer:
        return await self._database.run_transaction(lambda one: answer_once(one, identity, change))


async def answer_once(
    connection: Connection, identity: RequestIdentity, change: Change
) -> StoredAnswer:
    """Make the change and keep its answer, or answer from the record of the first time.

    Raises RequestInProgressError while another transaction holds the key, and
    IdempotencyKeyReusedError when the record is of another request.
    """
    scope = (identity.principal, identity.operation, identity.key)
    if not await connection.fetchval(_SQL.try_request_lock, "\x1f".join(scope)):
        raise RequestInProgressError(
            f"a request with Idempotency-Key {identity.key!r} is still running: send it again "
            "in a moment with the same key",
            retry_delay_s=1.0,
        )
    # A statement of its own, so that it sees what the last holder of the lock committed.
    record = await connection.fetchrow(_SQL.find_record, *scope)
    if record is not None:
        if record["request_sha256"] != identity.request_sha256:
            raise IdempotencyKeyReusedError(
                f"Idempotency-Key {identity.key!r} was used for another {identity.operation}, "
                f"about order {record['order_id']}: use a new key for a new request",
                metadata={"existing_id": record["order_id"]},
            )
        return StoredAnswer(OrderId(record["order_id"]), record["answer"], replayed=True)
    order = await change(connection)
    document = document_text(order_document(order))
    await connection.execute(
        _SQL.insert_record, *scope, identity.request_sha256, order.order_id, document
    )
    return StoredAnswer(order.order_id, document, replayed=False)


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
