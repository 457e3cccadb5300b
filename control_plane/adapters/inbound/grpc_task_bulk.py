"""The bulk calls of TaskService: translates between the contract and their use cases."""

from control_plane.adapters.inbound.messages import outcome
from control_plane.core.engine.reuse import RerunMode
from control_plane.core.executions.bulk import BulkRequest, BulkTasks
from foundation.errors import InvalidArgumentError
from foundation.grpc.context import ServicerContext as Context
from foundation.principals import current_principal
from tdp.control.v1 import task_service_pb2 as pb


class BulkTaskCalls:
    """Serves BulkCancelTasks and BulkRerunTasks for TaskService."""

    _bulk: BulkTasks

    async def BulkCancelTasks(
        self, request: pb.BulkCancelTasksRequest, context: Context
    ) -> pb.BulkCancelTasksResponse:
        answer = await self._bulk.cancel(current_principal(), _asked(request))
        return pb.BulkCancelTasksResponse(
            matched_count=answer.matched,
            changed_count=answer.changed,
            outcome=outcome(created=answer.created),
            has_more=answer.has_more,
        )

    async def BulkRerunTasks(
        self, request: pb.BulkRerunTasksRequest, context: Context
    ) -> pb.BulkRerunTasksResponse:
        mode = rerun_mode(request.mode)
        answer = await self._bulk.rerun(current_principal(), _asked(request), mode)
        return pb.BulkRerunTasksResponse(
            matched_count=answer.matched,
            changed_count=answer.changed,
            outcome=outcome(created=answer.created),
            refused_count=answer.refused,
            has_more=answer.has_more,
        )


def rerun_mode(mode: pb.RerunMode.ValueType) -> RerunMode:
    """Translate a rerun mode; InvalidArgumentError for none, and for one that is not known."""
    names = {value: name for name, value in pb.RerunMode.items()}
    if mode == pb.RERUN_MODE_UNSPECIFIED or mode not in names:
        raise InvalidArgumentError.of_field("mode", "is not given: name a rerun mode")
    return RerunMode(names[mode].removeprefix("RERUN_MODE_"))


def _asked(request: pb.BulkCancelTasksRequest | pb.BulkRerunTasksRequest) -> BulkRequest:
    return BulkRequest(
        idempotency_key=request.idempotency_key,
        application_id=request.application_id,
        filter=request.filter,
        dry_run=request.dry_run,
        reason=request.reason,
    )
