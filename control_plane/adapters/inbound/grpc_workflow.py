"""WorkflowService: translates between the contract and the use cases of workflows."""

from control_plane.adapters.inbound.pages import next_page, page_of
from control_plane.core.paging import page_position, page_size
from control_plane.core.workflows.application import Workflows
from control_plane.core.workflows.ports import PublishedWorkflow
from foundation.grpc.context import ServicerContext as Context
from foundation.grpc.times import timestamp
from foundation.principals import current_principal
from tdp.control.v1 import workflow_service_pb2 as pb
from tdp.control.v1 import workflow_service_pb2_grpc as pb_grpc


class WorkflowServicer(pb_grpc.WorkflowServiceServicer):
    """Serves tdp.control.v1.WorkflowService."""

    def __init__(self, workflows: Workflows) -> None:
        self._workflows = workflows

    async def PublishWorkflow(
        self, request: pb.PublishWorkflowRequest, context: Context
    ) -> pb.PublishWorkflowResponse:
        workflow, changed, warnings = await self._workflows.publish(
            current_principal(), request.definition, validate_only=request.validate_only
        )
        return pb.PublishWorkflowResponse(
            workflow=_message(workflow), changed=changed, warnings=warnings
        )

    async def GetWorkflow(
        self, request: pb.GetWorkflowRequest, context: Context
    ) -> pb.GetWorkflowResponse:
        workflow = await self._workflows.get(current_principal(), request.name, request.version)
        return pb.GetWorkflowResponse(workflow=_message(workflow))

    async def ListWorkflows(
        self, request: pb.ListWorkflowsRequest, context: Context
    ) -> pb.ListWorkflowsResponse:
        size = page_size(request.page_size)
        scope = f"workflows:{request.name}"
        position = page_position(request.page_token, scope, str, str)
        after = None if position is None else (str(position[0]), str(position[1]))
        found = await self._workflows.list(current_principal(), request.name, after, size + 1)
        page, last = page_of(found, size, _message)
        return pb.ListWorkflowsResponse(
            workflows=page,
            next_page_token=next_page(scope, *((one.name, one.version) for one in last)),
        )

    async def DeprecateWorkflow(
        self, request: pb.DeprecateWorkflowRequest, context: Context
    ) -> pb.DeprecateWorkflowResponse:
        workflow = await self._workflows.deprecate(
            current_principal(), request.name, request.version
        )
        return pb.DeprecateWorkflowResponse(workflow=_message(workflow))


def _message(workflow: PublishedWorkflow) -> pb.Workflow:
    return pb.Workflow(
        name=workflow.name,
        version=workflow.version,
        digest=workflow.digest,
        definition_json=workflow.definition_json,
        publish_time=timestamp(workflow.published_at),
        deprecate_time=timestamp(workflow.deprecated_at),
    )
