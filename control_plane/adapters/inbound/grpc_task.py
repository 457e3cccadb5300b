"""TaskService: translates between the contract and the use cases of executions."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from control_plane.adapters.inbound import task_messages as messages
from control_plane.adapters.inbound.grpc_task_bulk import BulkTaskCalls, rerun_mode
from control_plane.adapters.inbound.grpc_task_callbacks import CallbackCalls
from control_plane.adapters.inbound.grpc_task_operations import OperationCalls
from control_plane.adapters.inbound.messages import outcome
from control_plane.adapters.inbound.pages import next_page, page_of
from control_plane.core.callbacks.redelivery import Callbacks
from control_plane.core.engine.reuse import Reuse
from control_plane.core.executions.bulk import BulkTasks
from control_plane.core.executions.control import TaskControl
from control_plane.core.executions.domain import StepKey, StepRef
from control_plane.core.executions.filters import parse_filter
from control_plane.core.executions.intake import CreateTask, TaskIntake
from control_plane.core.executions.operations import ExecutionOperations
from control_plane.core.executions.queries import ExecutionQueries, owner_of_list
from control_plane.core.executions.watching import WatchHub, watch
from control_plane.core.paging import page_position, page_size
from control_plane.core.scheduling.explaining import Explanations
from control_plane.limits import PARTS_PAGE_SIZE_DEFAULT
from foundation.errors import InvalidArgumentError
from foundation.grpc.context import ServicerContext as Context
from foundation.ids import parse_id
from foundation.principals import current_principal
from tdp.control.v1 import task_service_pb2 as pb
from tdp.control.v1 import task_service_pb2_grpc as pb_grpc


@dataclass(frozen=True, slots=True)
class TaskUseCases:
    """What TaskService stands on."""

    intake: TaskIntake
    queries: ExecutionQueries
    control: TaskControl
    bulk: BulkTasks
    operations: ExecutionOperations
    callbacks: Callbacks
    hub: WatchHub
    explanations: Explanations


class TaskServicer(BulkTaskCalls, CallbackCalls, OperationCalls, pb_grpc.TaskServiceServicer):
    """Serves tdp.control.v1.TaskService; RPCs that are not here answer UNIMPLEMENTED."""

    def __init__(self, use_cases: TaskUseCases) -> None:
        self._intake = use_cases.intake
        self._queries = use_cases.queries
        self._control = use_cases.control
        self._bulk = use_cases.bulk
        self._operations = use_cases.operations
        self._callbacks = use_cases.callbacks
        self._hub = use_cases.hub
        self._explanations = use_cases.explanations

    async def CreateTask(
        self, request: pb.CreateTaskRequest, context: Context
    ) -> pb.CreateTaskResponse:
        accepted = await self._intake.create(
            current_principal(),
            CreateTask(
                idempotency_key=request.idempotency_key,
                application_id=request.application_id,
                name=request.name,
                external_ref=request.external_ref,
                workflow_name=request.workflow_name,
                workflow_version=request.workflow_version,
                input_json=request.input_json,
                priority=request.priority,
                callback_url=request.callback_url,
                step_constraints_json=request.step_constraints_json,
                labels=dict(request.labels),
                traceparent=request.traceparent,
            ),
        )
        return pb.CreateTaskResponse(
            task_id=accepted.task_id,
            execution_id=accepted.execution_id,
            workflow_version=accepted.workflow_version,
            outcome=outcome(created=accepted.created),
            warnings=accepted.warnings,
        )

    async def GetTask(self, request: pb.GetTaskRequest, context: Context) -> pb.GetTaskResponse:
        task = await self._queries.task(current_principal(), request.task_id)
        return pb.GetTaskResponse(task=messages.task(task))

    async def ListTasks(
        self, request: pb.ListTasksRequest, context: Context
    ) -> pb.ListTasksResponse:
        owner = owner_of_list(current_principal(), request.application_id)
        scope = f"tasks:{owner}:{request.filter}"
        position = page_position(request.page_token, scope, str)
        before = None if position is None else parse_id(str(position[0]), "page_token")
        size = page_size(request.page_size)
        wanted = parse_filter(request.filter)
        found = await self._queries.reader.tasks(owner, wanted, before, size + 1)
        page, last = page_of(found, size, messages.task)
        return pb.ListTasksResponse(
            tasks=page, next_page_token=next_page(scope, *(one.task_id for one in last))
        )

    async def CancelTask(
        self, request: pb.CancelTaskRequest, context: Context
    ) -> pb.CancelTaskResponse:
        execution, created = await self._control.cancel(
            current_principal(),
            request.idempotency_key,
            request.task_id,
            request.run,
            request.reason,
        )
        return pb.CancelTaskResponse(
            execution=messages.execution(execution), outcome=outcome(created=created)
        )

    async def RerunTask(
        self, request: pb.RerunTaskRequest, context: Context
    ) -> pb.RerunTaskResponse:
        execution, created = await self._control.rerun(
            current_principal(),
            request.idempotency_key,
            request.task_id,
            request.run,
            request.reason,
            Reuse(rerun_mode(request.mode), request.step_key),
        )
        return pb.RerunTaskResponse(
            execution=messages.execution(execution), outcome=outcome(created=created)
        )

    async def GetExecution(
        self, request: pb.GetExecutionRequest, context: Context
    ) -> pb.GetExecutionResponse:
        execution = await self._queries.execution(current_principal(), request.execution_id)
        return pb.GetExecutionResponse(execution=messages.execution(execution))

    async def ListExecutions(
        self, request: pb.ListExecutionsRequest, context: Context
    ) -> pb.ListExecutionsResponse:
        task = await self._queries.task(current_principal(), request.task_id)
        scope = f"executions:{task.task_id}"
        position = page_position(request.page_token, scope, int)
        before = None if position is None else int(position[0])
        size = page_size(request.page_size)
        found = await self._queries.reader.executions_of(task.task_id, before, size + 1)
        page, last = page_of(found, size, messages.execution)
        return pb.ListExecutionsResponse(
            executions=page, next_page_token=next_page(scope, *(one.run for one in last))
        )

    async def WatchExecution(
        self, request: pb.WatchExecutionRequest, context: Context
    ) -> AsyncIterator[pb.WatchExecutionResponse]:
        async for event, execution in watch(
            self._hub,
            self._queries,
            current_principal(),
            request.execution_id,
            request.after_sequence,
        ):
            yield pb.WatchExecutionResponse(
                event=messages.event(event), execution=messages.execution(execution)
            )

    async def ListExecutionEvents(
        self, request: pb.ListExecutionEventsRequest, context: Context
    ) -> pb.ListExecutionEventsResponse:
        execution = await self._queries.execution(current_principal(), request.execution_id)
        if request.after_sequence < 0:
            raise InvalidArgumentError.of_field("after_sequence", "is negative: send 0 or more")
        size = page_size(request.page_size, PARTS_PAGE_SIZE_DEFAULT)
        found = await self._queries.reader.events(
            execution.execution_id, request.after_sequence, size
        )
        page, _ = page_of(found, size, messages.event)
        return pb.ListExecutionEventsResponse(events=page, last_sequence=execution.last_sequence)

    async def ListSteps(
        self, request: pb.ListStepsRequest, context: Context
    ) -> pb.ListStepsResponse:
        execution = await self._queries.execution(current_principal(), request.execution_id)
        scope = f"steps:{execution.execution_id}"
        position = page_position(request.page_token, scope, int, int)
        after = None if position is None else (int(position[0]), int(position[1]))
        size = page_size(request.page_size, PARTS_PAGE_SIZE_DEFAULT)
        found = await self._queries.reader.steps(execution.execution_id, after, size + 1)
        page, last = page_of(found, size, messages.step)
        return pb.ListStepsResponse(
            steps=page,
            next_page_token=next_page(scope, *((one.position, one.item_index) for one in last)),
        )

    async def ListAttempts(
        self, request: pb.ListAttemptsRequest, context: Context
    ) -> pb.ListAttemptsResponse:
        execution = await self._queries.execution(current_principal(), request.execution_id)
        scope = f"attempts:{execution.execution_id}:{request.step_key}"
        position = page_position(request.page_token, scope, str)
        after = None if position is None else parse_id(str(position[0]), "page_token")
        size = page_size(request.page_size, PARTS_PAGE_SIZE_DEFAULT)
        found = await self._queries.reader.attempts(
            execution.execution_id, request.step_key, after, size + 1
        )
        page, last = page_of(found, size, messages.attempt)
        return pb.ListAttemptsResponse(
            attempts=page, next_page_token=next_page(scope, *(one.attempt_id for one in last))
        )

    async def ListTimeline(
        self, request: pb.ListTimelineRequest, context: Context
    ) -> pb.ListTimelineResponse:
        execution = await self._queries.execution(current_principal(), request.execution_id)
        scope = f"timeline:{execution.execution_id}"
        position = page_position(request.page_token, scope, int)
        after = 0 if position is None else int(position[0])
        size = page_size(request.page_size, PARTS_PAGE_SIZE_DEFAULT)
        found = await self._queries.reader.timeline(execution.execution_id, after, size + 1)
        page, last = page_of(found, size, messages.timeline_entry)
        return pb.ListTimelineResponse(
            entries=page, next_page_token=next_page(scope, *(one.entry_id for one in last))
        )

    async def ExplainScheduling(
        self, request: pb.ExplainSchedulingRequest, context: Context
    ) -> pb.ExplainSchedulingResponse:
        execution = await self._queries.execution(current_principal(), request.execution_id)
        ref = StepRef(StepKey(request.step_key), request.item_index)
        return messages.explanation(await self._explanations.explain(execution.execution_id, ref))
