"""NodeAdminService: translates between the contract and the use cases of operators."""

from typing import Any, Final

import grpc.aio

from control_plane.adapters.inbound.messages import outcome
from control_plane.adapters.inbound.pages import next_page, page_of
from control_plane.core.nodes.administration import NodeAdministration
from control_plane.core.nodes.domain import NodePlacement, NodeView
from control_plane.core.paging import page_position, page_size
from control_plane.core.scheduling.domain import Management, Runtime
from control_plane.core.workflows.domain import Resources
from foundation.grpc.times import timestamp
from foundation.principals import current_principal
from tdp.control.v1 import node_admin_service_pb2 as pb
from tdp.control.v1 import node_admin_service_pb2_grpc as pb_grpc

Context = grpc.aio.ServicerContext[Any, Any]
_MANAGEMENT: Final = {
    Management.ACTIVE: pb.NODE_MANAGEMENT_ACTIVE,
    Management.CORDONED: pb.NODE_MANAGEMENT_CORDONED,
    Management.DRAINING: pb.NODE_MANAGEMENT_DRAINING,
}
_RUNTIME: Final = {
    Runtime.READY: pb.NODE_RUNTIME_READY,
    Runtime.NOT_READY: pb.NODE_RUNTIME_NOT_READY,
    Runtime.SILENT: pb.NODE_RUNTIME_SILENT,
}


class NodeAdminServicer(pb_grpc.NodeAdminServiceServicer):
    """Serves tdp.control.v1.NodeAdminService."""

    def __init__(self, administration: NodeAdministration) -> None:
        self._administration = administration

    async def ListNodes(
        self, request: pb.ListNodesRequest, context: Context
    ) -> pb.ListNodesResponse:
        size = page_size(request.page_size)
        position = page_position(request.page_token, "nodes", str)
        after = "" if position is None else str(position[0])
        found = await self._administration.list(current_principal(), after, size + 1)
        page, last = page_of(found, size, _message)
        more = next_page("nodes", *(one.name for one in last))
        return pb.ListNodesResponse(nodes=page, next_page_token=more)

    async def GetNode(self, request: pb.GetNodeRequest, context: Context) -> pb.GetNodeResponse:
        node = await self._administration.get(current_principal(), request.node_id)
        return pb.GetNodeResponse(node=_message(node))

    async def CordonNode(
        self, request: pb.CordonNodeRequest, context: Context
    ) -> pb.CordonNodeResponse:
        node, created = await self._administration.set_management(
            current_principal(),
            request.idempotency_key,
            request.node_id,
            request.reason,
            Management.CORDONED,
        )
        return pb.CordonNodeResponse(node=_message(node), outcome=outcome(created=created))

    async def UncordonNode(
        self, request: pb.UncordonNodeRequest, context: Context
    ) -> pb.UncordonNodeResponse:
        node, created = await self._administration.set_management(
            current_principal(),
            request.idempotency_key,
            request.node_id,
            request.reason,
            Management.ACTIVE,
        )
        return pb.UncordonNodeResponse(node=_message(node), outcome=outcome(created=created))

    async def DrainNode(
        self, request: pb.DrainNodeRequest, context: Context
    ) -> pb.DrainNodeResponse:
        node, created = await self._administration.drain(
            current_principal(),
            request.idempotency_key,
            request.node_id,
            request.reason,
            request.grace_period.ToTimedelta(),
        )
        return pb.DrainNodeResponse(node=_message(node), outcome=outcome(created=created))

    async def SetNodePlacement(
        self, request: pb.SetNodePlacementRequest, context: Context
    ) -> pb.SetNodePlacementResponse:
        node, created = await self._administration.place(
            current_principal(),
            request.idempotency_key,
            request.node_id,
            NodePlacement(dict(request.labels), request.weight, request.group),
        )
        return pb.SetNodePlacementResponse(node=_message(node), outcome=outcome(created=created))

    async def RemoveNode(
        self, request: pb.RemoveNodeRequest, context: Context
    ) -> pb.RemoveNodeResponse:
        created = await self._administration.remove(
            current_principal(),
            request.idempotency_key,
            request.node_id,
            loses_attempts=request.loses_attempts,
        )
        return pb.RemoveNodeResponse(outcome=outcome(created=created))

    async def CreateJoinToken(
        self, request: pb.CreateJoinTokenRequest, context: Context
    ) -> pb.CreateJoinTokenResponse:
        token, created = await self._administration.create_join_token(
            current_principal(),
            request.idempotency_key,
            request.token_sha256,
            request.ttl.ToTimedelta(),
            request.use_count_max,
            request.group,
        )
        return pb.CreateJoinTokenResponse(
            join_token_id=token.join_token_id,
            expire_time=timestamp(token.expires_at),
            outcome=outcome(created=created),
        )

    async def RevokeJoinToken(
        self, request: pb.RevokeJoinTokenRequest, context: Context
    ) -> pb.RevokeJoinTokenResponse:
        created = await self._administration.revoke_join_token(
            current_principal(), request.idempotency_key, request.join_token_id
        )
        return pb.RevokeJoinTokenResponse(outcome=outcome(created=created))


def _message(node: NodeView) -> pb.Node:
    return pb.Node(
        node_id=node.node_id,
        name=node.name,
        group=node.group,
        management=_MANAGEMENT[node.management],
        runtime=_RUNTIME[node.runtime],
        generation=node.generation,
        labels=node.labels,
        weight=node.weight,
        capabilities=[
            pb.NodeCapability(name=name, version=version, refusal=refusal)
            for name, version, refusal in node.capabilities
        ],
        slot_count=node.slot_count,
        running_count=node.running_count,
        resources=_resources(node.resources),
        reserved=_resources(node.reserved),
        unacked_command_count=node.unacked_command_count,
        last_seen_time=timestamp(node.last_seen_at),
        enroll_time=timestamp(node.enrolled_at),
        agent_version=node.agent_version,
        managed_by=node.managed_by,
        management_reason=node.management_reason,
        drain_deadline_time=timestamp(node.drain_deadline_at),
        process_slot_count=node.process_slot_count,
        process_running_count=node.process_running_count,
        cpu_used_millis=node.cpu_used_millis,
        memory_available_bytes=node.memory_available_bytes,
    )


def _resources(one: Resources) -> pb.NodeResources:
    return pb.NodeResources(
        cpu_millis=one.cpu_millis,
        memory_bytes=one.memory_bytes,
        disk_bytes=one.disk_bytes,
        gpu_count=one.gpu_count,
    )
