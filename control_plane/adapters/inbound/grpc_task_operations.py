"""The RPCs of TaskService that act on a live execution: translation only."""

from datetime import timedelta

from control_plane.adapters.inbound import task_messages as messages
from control_plane.adapters.inbound.messages import outcome
from control_plane.core.executions.operations import (
    ExecutionOperations,
    OperationRequest,
    StepAddress,
)
from foundation.errors import InvalidArgumentError
from foundation.grpc.context import ServicerContext as Context
from foundation.grpc.times import timestamp
from foundation.principals import current_principal
from tdp.control.v1 import task_service_pb2 as pb


class OperationCalls:
    """Serves the acts on steps, executions and attempts for TaskService."""

    _operations: ExecutionOperations

    async def SignalStep(
        self, request: pb.SignalStepRequest, context: Context
    ) -> pb.SignalStepResponse:
        step, created = await self._operations.signal(
            current_principal(),
            _asked(request),
            _address(request),
            request.payload_json,
            approved=request.approved,
        )
        return pb.SignalStepResponse(step=messages.step(step), outcome=outcome(created=created))

    async def SkipStep(self, request: pb.SkipStepRequest, context: Context) -> pb.SkipStepResponse:
        step, created = await self._operations.skip(
            current_principal(), _asked(request), _address(request)
        )
        return pb.SkipStepResponse(step=messages.step(step), outcome=outcome(created=created))

    async def PauseExecution(
        self, request: pb.PauseExecutionRequest, context: Context
    ) -> pb.PauseExecutionResponse:
        execution, created = await self._operations.pause(current_principal(), _asked(request))
        return pb.PauseExecutionResponse(
            execution=messages.execution(execution), outcome=outcome(created=created)
        )

    async def ResumeExecution(
        self, request: pb.ResumeExecutionRequest, context: Context
    ) -> pb.ResumeExecutionResponse:
        execution, created = await self._operations.resume(current_principal(), _asked(request))
        return pb.ResumeExecutionResponse(
            execution=messages.execution(execution), outcome=outcome(created=created)
        )

    async def ExtendAttempt(
        self, request: pb.ExtendAttemptRequest, context: Context
    ) -> pb.ExtendAttemptResponse:
        attempt, extended = await self._operations.extend(
            current_principal(),
            OperationRequest(request.idempotency_key, request.attempt_id, request.reason),
            _extension(request),
        )
        return pb.ExtendAttemptResponse(
            attempt=messages.attempt(attempt),
            run_deadline_time=timestamp(extended.run_deadline_at),
            outcome=outcome(created=extended.created),
        )


def _asked(
    request: pb.SignalStepRequest
    | pb.SkipStepRequest
    | pb.PauseExecutionRequest
    | pb.ResumeExecutionRequest,
) -> OperationRequest:
    return OperationRequest(request.idempotency_key, request.execution_id, request.reason)


def _address(request: pb.SignalStepRequest | pb.SkipStepRequest) -> StepAddress:
    return StepAddress(request.step_key, request.item_index)


def _extension(request: pb.ExtendAttemptRequest) -> timedelta:
    if not request.HasField("extension"):
        raise InvalidArgumentError.of_field("extension", "is not given: send 1 s to 7 days")
    try:
        return request.extension.ToTimedelta()
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError.of_field("extension", f"is no duration: {error}") from error
