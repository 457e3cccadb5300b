"""The control plane over gRPC, as the gateway's core sees it."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import grpc
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from business_gateway.core.callbacks.commands import RunCommand, Submission
from business_gateway.core.callbacks.domain import Acceptance
from business_gateway.core.callbacks.ports import CurrentRun, EventPage
from business_gateway.core.orders.domain import RerunMode
from business_gateway.core.orders.evidence import (
    Disturbance,
    PlatformEvidence,
    Rung,
    RungState,
)
from foundation.errors import NotFoundError, UnavailableError
from foundation.grpc.channel import (
    ChannelConfig,
    ClientTls,
    bearer_metadata,
    call_unary,
    open_channel,
)
from tdp.control.v1 import system_service_pb2, system_service_pb2_grpc
from tdp.control.v1 import task_service_pb2 as pb
from tdp.control.v1 import task_service_pb2_grpc as pb_grpc

LABELS: Final = {"source": "business-gateway"}
EVENTS_PER_PAGE: Final = 200
_MODES: Final = {
    RerunMode.FROM_SCRATCH: pb.RERUN_MODE_FROM_SCRATCH,
}
_RUNG_STATES: Final = {
    system_service_pb2.RUNG_STATE_DURABLE: RungState.DURABLE,
    system_service_pb2.RUNG_STATE_CURRENT: RungState.CURRENT,
    system_service_pb2.RUNG_STATE_AHEAD: RungState.AHEAD,
    system_service_pb2.RUNG_STATE_NOT_APPLICABLE: RungState.NOT_APPLICABLE,
}


_RequestT = TypeVar("_RequestT", bound=Message)
_ResponseT = TypeVar("_ResponseT", bound=Message)


@dataclass(frozen=True, slots=True)
class ControlPlaneConfig:
    """Where it is, and the API key of our application there; a call may take `timeout_s`."""

    address: str
    api_key: str = field(repr=False)
    tls: bool = False
    ca_path: Path | None = None
    timeout_s: float = 15.0


class ControlPlaneClient:
    """Implements PlatformCommands, PlatformHistory and EvidenceSource; a Service.

    Each method raises what the control plane answered, as the TdpError that it is;
    UnavailableError also before `start` and after `stop`.
    """

    name = "control-plane-client"

    def __init__(self, config: ControlPlaneConfig) -> None:
        self._config = config
        self.metadata = bearer_metadata(config.api_key)
        self.timeout_s = config.timeout_s
        self._channel: grpc.aio.Channel | None = None
        self._stopped = asyncio.Event()

    async def start(self) -> None:
        """Open the channel; nothing is dialled before the first call."""
        tls = ClientTls(ca_path=self._config.ca_path) if self._config.tls else None
        self._channel = open_channel(ChannelConfig(self._config.address, tls))

    async def run(self) -> None:
        """Return once stopped."""
        await self._stopped.wait()

    async def stop(self) -> None:
        """Close the channel; idempotent."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()
        self._stopped.set()

    async def submit(self, key: str, submission: Submission) -> Acceptance:
        """See PlatformCommands."""
        request = pb.CreateTaskRequest(
            idempotency_key=key,
            name=submission.name,
            external_ref=submission.order_id,
            workflow_name=submission.workflow_name,
            workflow_version=submission.workflow_version,
            input_json=submission.input_json,
            labels=LABELS,
        )
        response = await self._call(self._tasks.CreateTask, request)
        return Acceptance(response.task_id, response.execution_id, run=1)

    async def cancel(self, key: str, task_id: str, command: RunCommand) -> None:
        """See PlatformCommands."""
        request = pb.CancelTaskRequest(
            idempotency_key=key, task_id=task_id, run=command.run, reason=command.reason
        )
        await self._call(self._tasks.CancelTask, request)

    async def rerun(self, key: str, task_id: str, command: RunCommand) -> Acceptance:
        """See PlatformCommands."""
        request = pb.RerunTaskRequest(
            idempotency_key=key,
            task_id=task_id,
            run=command.run,
            mode=_MODES[command.mode],
            reason=command.reason,
        )
        execution = (await self._call(self._tasks.RerunTask, request)).execution
        return Acceptance(task_id, execution.execution_id, execution.run)

    async def current_run(self, task_id: str) -> CurrentRun:
        """See PlatformHistory."""
        response = await self._call(self._tasks.GetTask, pb.GetTaskRequest(task_id=task_id))
        current = response.task.current_execution
        return CurrentRun(current.execution_id, current.run, current.last_sequence)

    async def events_after(self, execution_id: str, sequence: int) -> EventPage:
        """See PlatformHistory."""
        request = pb.ListExecutionEventsRequest(
            execution_id=execution_id, after_sequence=sequence, page_size=EVENTS_PER_PAGE
        )
        response = await self._call(self._tasks.ListExecutionEvents, request)
        return EventPage([one.envelope_json for one in response.events], response.last_sequence)

    async def get_evidence(self, order_id: str) -> PlatformEvidence | None:
        """See EvidenceSource."""
        stub = system_service_pb2_grpc.SystemServiceStub(self.channel)
        request = system_service_pb2.GetEvidenceRequest(external_ref=order_id)
        try:
            response = await self._call(stub.GetEvidence, request)
        except NotFoundError:
            return None
        return PlatformEvidence(tuple(_rung(one) for one in response.rungs), response.verdict)

    @property
    def _tasks(self) -> pb_grpc.TaskServiceStub:
        return pb_grpc.TaskServiceStub(self.channel)

    @property
    def channel(self) -> grpc.aio.Channel:
        """The open channel, for other adapters of this process; UnavailableError without one."""
        if self._channel is None:
            raise UnavailableError("the client of the control plane is not open: start it first")
        return self._channel

    async def _call(
        self,
        method: "grpc.aio.UnaryUnaryMultiCallable[_RequestT, _ResponseT]",
        request: _RequestT,
    ) -> _ResponseT:
        return await call_unary(method, request, timeout_s=self.timeout_s, metadata=self.metadata)


def _rung(rung: system_service_pb2.EvidenceRung) -> Rung:
    return Rung(
        hop=rung.hop,
        title=rung.title,
        state=_RUNG_STATES.get(rung.state, RungState.UNKNOWN),
        store=rung.store,
        location=rung.location,
        identity=rung.identity,
        record=rung.record,
        durable_at=_moment(rung.durable_time) if rung.HasField("durable_time") else None,
        actor=rung.actor,
        summary=rung.summary,
        disturbances=tuple(_disturbance(one) for one in rung.disturbances),
    )


def _disturbance(disturbance: system_service_pb2.Disturbance) -> Disturbance:
    told = disturbance.HasField("occur_time")
    return Disturbance(
        kind=disturbance.kind,
        description=disturbance.description,
        occurred_at=_moment(disturbance.occur_time) if told else None,
    )


def _moment(timestamp: Timestamp) -> datetime:
    return timestamp.ToDatetime(tzinfo=UTC)
