"""The callback calls of TaskService: translates between the contract and their use cases."""

from typing import Final

from control_plane.adapters.inbound.messages import outcome
from control_plane.adapters.inbound.pages import next_page, page_of
from control_plane.core.callbacks.redelivery import (
    Callbacks,
    CallbackView,
    LogEntry,
    RedeliveryRequest,
)
from control_plane.core.paging import page_position, page_size
from foundation.grpc.context import ServicerContext as Context
from foundation.grpc.times import timestamp
from foundation.outbox.model import OPEN_STATUSES, OutboxStatus
from foundation.principals import current_principal
from tdp.control.v1 import task_service_pb2 as pb

_STATUSES: Final = {
    OutboxStatus.PENDING: pb.CALLBACK_STATUS_PENDING,
    OutboxStatus.PUBLISHING: pb.CALLBACK_STATUS_DELIVERING,
    OutboxStatus.FAILED: pb.CALLBACK_STATUS_RETRYING,
    OutboxStatus.PUBLISHED: pb.CALLBACK_STATUS_DELIVERED,
    OutboxStatus.DEAD: pb.CALLBACK_STATUS_DEAD,
    OutboxStatus.QUARANTINED: pb.CALLBACK_STATUS_QUARANTINED,
}
_STATUSES_BACK: Final = {number: status for status, number in _STATUSES.items()}


class CallbackCalls:
    """Serves ListCallbacks and RedeliverCallbacks for TaskService."""

    _callbacks: Callbacks

    async def ListCallbacks(
        self, request: pb.ListCallbacksRequest, context: Context
    ) -> pb.ListCallbacksResponse:
        selection = await self._callbacks.selection(
            current_principal(),
            request.application_id,
            request.execution_id,
            _STATUSES_BACK.get(request.status),
        )
        statuses = ",".join(sorted(selection.statuses))
        scope = f"callbacks:{selection.owner}:{selection.execution_id}:{statuses}"
        position = page_position(request.page_token, scope, int)
        before = None if position is None else int(position[0])
        size = page_size(request.page_size)
        found = await self._callbacks.page(selection, before, size + 1)
        page, last = page_of(found, size, _message)
        return pb.ListCallbacksResponse(
            callbacks=page, next_page_token=next_page(scope, *(one.position for one in last))
        )

    async def RedeliverCallbacks(
        self, request: pb.RedeliverCallbacksRequest, context: Context
    ) -> pb.RedeliverCallbacksResponse:
        answer = await self._callbacks.redeliver(
            current_principal(),
            RedeliveryRequest(
                idempotency_key=request.idempotency_key,
                application_id=request.application_id,
                execution_id=request.execution_id,
                filter=request.filter,
                include_delivered=request.include_delivered,
                dry_run=request.dry_run,
            ),
        )
        return pb.RedeliverCallbacksResponse(
            matched_count=answer.matched,
            changed_count=answer.changed,
            outcome=outcome(created=answer.created),
            has_more=answer.has_more,
        )


def _message(view: CallbackView) -> pb.Callback:
    is_due = view.status in OPEN_STATUSES and view.status is not OutboxStatus.PUBLISHING
    return pb.Callback(
        callback_id=view.callback_id,
        event_id=view.event_id,
        event_type=view.event_type,
        application_id=view.application_id,
        task_id=view.task_id,
        execution_id=view.execution_id,
        sequence=view.sequence,
        status=_STATUSES[view.status],
        attempt_count=view.attempt_count,
        held=view.held,
        redelivered=view.redelivered,
        last_error=view.last_error,
        create_time=timestamp(view.created_at),
        next_try_time=timestamp(view.due_at if is_due else None),
        deliver_time=timestamp(view.delivered_at),
        log=[_entry(one) for one in view.log],
    )


def _entry(entry: LogEntry) -> pb.CallbackLogEntry:
    return pb.CallbackLogEntry(
        kind=entry.kind, detail=entry.detail, occur_time=timestamp(entry.occurred_at)
    )
