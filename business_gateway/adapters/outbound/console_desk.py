"""The control plane as the page sees it: RPCs by name, with bodies and answers as JSON."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from business_gateway.adapters.outbound.control_plane import ControlPlaneClient
from business_gateway.core.console.errors import OperatorKeyRefusedError, RpcNotOfferedError
from business_gateway.core.console.ports import Document
from foundation.errors import (
    InvalidArgumentError,
    PermissionDeniedError,
    TdpError,
    UnauthenticatedError,
)
from foundation.grpc.channel import Metadata, bearer_metadata, call_unary
from tdp.control.v1 import (
    application_service_pb2,
    node_admin_service_pb2,
    schedule_service_pb2,
    system_service_pb2,
    task_service_pb2,
    workflow_service_pb2,
)

OFFERED: Final[Mapping[str, frozenset[str]]] = {
    "ApplicationService": frozenset({"ListApplications"}),
    "NodeAdminService": frozenset({"CordonNode", "DrainNode", "ListNodes", "UncordonNode"}),
    "ScheduleService": frozenset(
        {"ListSchedules", "PauseSchedule", "ResumeSchedule", "TriggerSchedule"}
    ),
    "SystemService": frozenset({"GetConservation"}),
    "TaskService": frozenset(
        {
            "ExplainScheduling",
            "ListCallbacks",
            "PauseExecution",
            "RedeliverCallbacks",
            "RerunTask",
            "ResumeExecution",
            "SignalStep",
            "SkipStep",
        }
    ),
    "WorkflowService": frozenset({"GetWorkflow", "ListWorkflows"}),
}
"""What the page uses. Nothing that carries or answers a secret is in it."""

_SERVICES: Final[Mapping[str, ServiceDescriptor]] = {
    service.name: service
    for module in (
        application_service_pb2,
        node_admin_service_pb2,
        schedule_service_pb2,
        system_service_pb2,
        task_service_pb2,
        workflow_service_pb2,
    )
    for service in module.DESCRIPTOR.services_by_name.values()
}
_DETAIL_ROWS: Final = 500
_WAITING_AT_ONCE: Final = 8
_WORKFLOWS_KEPT: Final = 64
_CALL_TIMEOUT_S: Final = 10.0


class ConsoleDesk:
    """Implements PlatformDesk over the gateway's channel to the control plane."""

    def __init__(self, client: ControlPlaneClient) -> None:
        self._client = client
        # Published versions never change, so that reading one twice would be waste.
        self._workflows: dict[tuple[str, str], Document] = {}

    async def is_operator(self, key: str) -> bool:
        """See PlatformDesk."""
        try:
            await self._call("NodeAdminService/ListNodes", {"page_size": 1}, bearer_metadata(key))
        except (UnauthenticatedError, PermissionDeniedError):
            return False
        return True

    async def call(self, method: str, body: Mapping[str, Any], operator_key: str) -> Document:
        """See PlatformDesk."""
        service, _, name = method.partition("/")
        if name not in OFFERED.get(service, ()):
            raise RpcNotOfferedError(f"the page does not call {method[:100]!r}")
        try:
            return await self._call(method, body, bearer_metadata(operator_key))
        except UnauthenticatedError as error:
            raise OperatorKeyRefusedError(
                f"the control plane refused the operator's key of this session: {error.message}"
            ) from error

    async def task_details(self, task_id: str) -> Document:
        """See PlatformDesk."""
        task = (await self._own("TaskService/GetTask", {"task_id": task_id}))["task"]
        page = {
            "execution_id": task["current_execution"]["execution_id"],
            "page_size": _DETAIL_ROWS,
        }
        events = {**page, "page_size": 200}
        steps, attempts, timeline, history, workflow = await asyncio.gather(
            self._own("TaskService/ListSteps", page),
            self._own("TaskService/ListAttempts", page),
            self._own("TaskService/ListTimeline", page),
            self._own("TaskService/ListExecutionEvents", events),
            self._workflow(task["workflow_name"], task["workflow_version"]),
        )
        for event in history["events"]:
            del event["envelope_json"]
        return {
            "task": task,
            "steps": steps["steps"],
            "attempts": attempts["attempts"],
            "timeline": timeline["entries"],
            "events": history["events"],
            "workflow": workflow,
            "truncated": any(one["next_page_token"] for one in (steps, attempts, timeline)),
        }

    async def waiting(self, task_ids: Sequence[str]) -> Mapping[str, Document]:
        """See PlatformDesk."""
        turns = asyncio.Semaphore(_WAITING_AT_ONCE)

        async def one(task_id: str) -> tuple[str, Document | None]:
            async with turns:
                return task_id, await _answered(
                    self._own("TaskService/GetTask", {"task_id": task_id})
                )

        found = await asyncio.gather(*(one(task_id) for task_id in task_ids))
        return {
            task_id: {
                "waiting_for": answer["task"]["current_execution"]["waiting_for"],
                "paused": answer["task"]["current_execution"]["paused"],
            }
            for task_id, answer in found
            if answer is not None
        }

    async def _workflow(self, name: str, version: str) -> Document:
        known = self._workflows.get((name, version))
        if known is None:
            body = {"name": name, "version": version}
            known = (await self._own("WorkflowService/GetWorkflow", body))["workflow"]
            if len(self._workflows) >= _WORKFLOWS_KEPT:
                self._workflows.clear()
            self._workflows[name, version] = known
        return known

    async def _own(self, method: str, body: Mapping[str, Any]) -> Document:
        """Call as our own application, which sees its own tasks only."""
        return await self._call(method, body, self._client.metadata)

    async def _call(self, method: str, body: Mapping[str, Any], metadata: Metadata) -> Document:
        service, _, name = method.partition("/")
        descriptor = _SERVICES[service].methods_by_name[name]
        response = await call_unary(
            _callable(self._client.channel, descriptor),
            _request(descriptor, body),
            timeout_s=_CALL_TIMEOUT_S,
            metadata=metadata,
        )
        document: Document = json_format.MessageToDict(
            response, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        return document


async def _answered(call: Awaitable[Document]) -> Document | None:
    """Await; None for what the platform refuses or cannot answer now."""
    try:
        return await call
    except TdpError:
        return None


def _callable(
    channel: grpc.aio.Channel, method: MethodDescriptor
) -> "grpc.aio.UnaryUnaryMultiCallable[Message, Message]":
    response_class = message_factory.GetMessageClass(method.output_type)
    return channel.unary_unary(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=response_class.FromString,
    )


def _request(method: MethodDescriptor, body: Mapping[str, Any]) -> Message:
    request = message_factory.GetMessageClass(method.input_type)()
    try:
        json_format.ParseDict(dict(body), request)
    except json_format.ParseError as error:
        raise InvalidArgumentError(
            f"the body is not a {method.input_type.full_name}: {error}"
        ) from error
    return request
