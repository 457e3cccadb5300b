"""A control plane in this process: a real gRPC server whose answers a test scripts."""

import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from business_gateway.adapters.outbound.control_plane import ControlPlaneClient, ControlPlaneConfig
from foundation.clock import SystemClock
from foundation.errors import (
    FailedPreconditionError,
    NotFoundError,
    TdpError,
    UnauthenticatedError,
)
from foundation.grpc.context import ServicerContext
from foundation.grpc.interceptors import server_interceptors
from foundation.grpc.server import GrpcServer, GrpcService, ServerConfig
from foundation.ids import SystemIds
from tdp.control.v1 import (
    system_service_pb2,
    system_service_pb2_grpc,
    task_pb2,
    task_service_pb2_grpc,
)
from tdp.control.v1 import task_service_pb2 as pb

API_KEY = "tdp_key_of-the-gateway"
APPLICATION_ID = "0190a000-0000-7000-8000-00000000a001"
_ENDED = {"SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELED"}


@dataclass
class Execution:
    """One run, with the envelopes of its events."""

    execution_id: str
    task_id: str
    external_ref: str
    run: int
    status: str = "CREATED"
    progress: int = 0
    envelopes: list[str] = field(default_factory=list)

    def message(self) -> task_pb2.Execution:
        return task_pb2.Execution(
            execution_id=self.execution_id,
            task_id=self.task_id,
            run=self.run,
            status=task_pb2.ExecutionStatus.Value(f"EXECUTION_STATUS_{self.status}"),
            last_sequence=len(self.envelopes),
        )


class Platform(
    task_service_pb2_grpc.TaskServiceServicer, system_service_pb2_grpc.SystemServiceServicer
):
    """Tasks in memory; `refusals` are raised first, one a call, before anything is done."""

    def __init__(self) -> None:
        self.ids = SystemIds(SystemClock())
        self.requests: list[Any] = []
        self.refusals: defaultdict[str, deque[TdpError]] = defaultdict(deque)
        self.submitted: dict[str, pb.CreateTaskResponse] = {}
        self.rerun: dict[str, pb.RerunTaskResponse] = {}
        self.runs: dict[str, list[Execution]] = {}
        self.evidence: system_service_pb2.GetEvidenceResponse | None = None
        self.page_size_max = 1_000

    # -- what the platform does by itself

    def begin(self, external_ref: str, task_id: str = "") -> Execution:
        """Begin a task, or the next run of one, with its first event."""
        task_id = task_id or self.ids.new_id()
        runs = self.runs.setdefault(task_id, [])
        execution = Execution(self.ids.new_id(), task_id, external_ref, len(runs) + 1)
        runs.append(execution)
        self.tell(execution, "CREATED")
        return execution

    def tell(self, execution: Execution, status: str, progress: int = 0, **data: object) -> str:
        """Move an execution and return the envelope of its new event."""
        execution.status, execution.progress = status, progress
        kind = {"CREATED": "created", "RUNNING": "started"}.get(status, status.lower())
        document = {
            "specversion": "1.0",
            "id": self.ids.new_id(),
            "source": "tdp://control-plane",
            "type": f"execution.{kind}",
            "data": {
                "application_id": APPLICATION_ID,
                "task_id": execution.task_id,
                "execution_id": execution.execution_id,
                "external_ref": execution.external_ref,
                "sequence": len(execution.envelopes) + 1,
                "run": execution.run,
                "status": status,
                "progress": progress,
                "output": None,
                "failure": None,
                **data,
            },
        }
        execution.envelopes.append(json.dumps(document))
        return execution.envelopes[-1]

    def asked(self, kind: type) -> list[Any]:
        return [one for one in self.requests if isinstance(one, kind)]

    # -- what it answers

    async def CreateTask(
        self, request: pb.CreateTaskRequest, context: ServicerContext
    ) -> pb.CreateTaskResponse:
        self._note("CreateTask", request, context)
        if request.idempotency_key not in self.submitted:
            execution = self.begin(request.external_ref)
            self.submitted[request.idempotency_key] = pb.CreateTaskResponse(
                task_id=execution.task_id, execution_id=execution.execution_id
            )
        return self.submitted[request.idempotency_key]

    async def CancelTask(
        self, request: pb.CancelTaskRequest, context: ServicerContext
    ) -> pb.CancelTaskResponse:
        self._note("CancelTask", request, context)
        current = self._runs(request.task_id)[-1]
        if request.run in (0, current.run) and current.status not in _ENDED:
            self.tell(current, "CANCELING", current.progress)
        return pb.CancelTaskResponse(execution=current.message())

    async def RerunTask(
        self, request: pb.RerunTaskRequest, context: ServicerContext
    ) -> pb.RerunTaskResponse:
        self._note("RerunTask", request, context)
        if request.idempotency_key not in self.rerun:
            current = self._runs(request.task_id)[-1]
            if current.status not in _ENDED:
                raise FailedPreconditionError(f"run {current.run} is {current.status}")
            begun = self.begin(current.external_ref, request.task_id)
            self.rerun[request.idempotency_key] = pb.RerunTaskResponse(execution=begun.message())
        return self.rerun[request.idempotency_key]

    async def GetTask(
        self, request: pb.GetTaskRequest, context: ServicerContext
    ) -> pb.GetTaskResponse:
        self._note("GetTask", request, context)
        current = self._runs(request.task_id)[-1].message()
        task = task_pb2.Task(task_id=request.task_id, current_execution=current)
        return pb.GetTaskResponse(task=task)

    async def ListExecutionEvents(
        self, request: pb.ListExecutionEventsRequest, context: ServicerContext
    ) -> pb.ListExecutionEventsResponse:
        self._note("ListExecutionEvents", request, context)
        found = [one for runs in self.runs.values() for one in runs
                 if one.execution_id == request.execution_id]  # fmt: skip
        if not found:
            raise NotFoundError(f"there is no execution {request.execution_id}")
        start = request.after_sequence
        size = min(request.page_size, self.page_size_max)
        return pb.ListExecutionEventsResponse(
            events=[
                task_pb2.ExecutionEvent(envelope_json=one)
                for one in found[0].envelopes[start : start + size]
            ],
            last_sequence=len(found[0].envelopes),
        )

    async def GetEvidence(
        self, request: system_service_pb2.GetEvidenceRequest, context: ServicerContext
    ) -> system_service_pb2.GetEvidenceResponse:
        self._note("GetEvidence", request, context)
        if self.evidence is None:
            raise NotFoundError(f"no task goes by {request.external_ref}")
        return self.evidence

    def _note(self, method: str, request: Message, context: ServicerContext) -> None:
        if ("authorization", f"Bearer {API_KEY}") not in tuple(context.invocation_metadata() or ()):
            raise UnauthenticatedError("the key is not the gateway's")
        self.requests.append(request)
        if self.refusals[method]:
            raise self.refusals[method].popleft()

    def _runs(self, task_id: str) -> list[Execution]:
        if task_id not in self.runs:
            raise NotFoundError(f"there is no task {task_id}")
        return self.runs[task_id]


@asynccontextmanager
async def served(platform: Platform, port: int = 0) -> AsyncIterator[int]:
    """Serve it until the end of the block; yields the port."""
    server = GrpcServer(
        ServerConfig(port=port, stop_grace_s=0.0),
        [
            GrpcService(
                "tdp.control.v1.TaskService",
                lambda one: task_service_pb2_grpc.add_TaskServiceServicer_to_server(platform, one),
            ),
            GrpcService(
                "tdp.control.v1.SystemService",
                lambda one: system_service_pb2_grpc.add_SystemServiceServicer_to_server(
                    platform, one
                ),
            ),
        ],
        server_interceptors(ids=platform.ids, clock=SystemClock(), authenticator=None),
    )
    await server.start()
    try:
        yield server.port
    finally:
        await server.stop()


@asynccontextmanager
async def client_of(port: int, api_key: str = API_KEY) -> AsyncIterator[ControlPlaneClient]:
    client = ControlPlaneClient(ControlPlaneConfig(f"127.0.0.1:{port}", api_key, timeout_s=10.0))
    await client.start()
    try:
        yield client
    finally:
        await client.stop()
