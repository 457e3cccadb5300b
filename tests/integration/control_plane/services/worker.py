"""A node in session with a replica that answers each RUN as the test says, or holds it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc.aio

from foundation.secrets import TokenKind, hash_token, new_token
from tdp.node.v1 import node_service_pb2 as pb
from tests.fixtures.eventually import eventually
from tests.integration.control_plane.replica import Replica, metadata_of

_HEARTBEAT_S: Final = 0.2

Fact = pb.AttemptSucceeded | pb.AttemptFailed | pb.AttemptStopped
Work = Callable[[pb.RunCommand], Fact | None]
"""What becomes of a run; None leaves it running until the test ends it."""


def done(output_json: str = "{}") -> pb.AttemptSucceeded:
    """Return a success."""
    return pb.AttemptSucceeded(output_json=output_json)


def broken(reason: str = "BROKEN", *, retryable: bool = True, delay_s: float | None = None) -> Fact:
    """Return a failure of the work."""
    failure = pb.NodeFailure(
        log_tail=f"{reason} as printed\0", reason=reason, message="it broke", retryable=retryable
    )
    if delay_s is not None:
        failure.next_retry_delay.FromNanoseconds(int(delay_s * 1e9))
    return pb.AttemptFailed(failure=failure)


def echo(run: pb.RunCommand) -> Fact:
    """Succeed with the input as output."""
    return done(run.input_json)


@dataclass(slots=True)
class Worker:
    """What the node was told, and what it says."""

    replica: Replica
    work: Work
    node_id: str
    credential: str
    runs: list[pb.RunCommand] = field(default_factory=list)
    others: list[pb.Command] = field(default_factory=list)
    live: dict[str, pb.RunCommand] = field(default_factory=dict)
    live_max: int = 0
    _generation: int = 0
    _call: Any = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def ran(self) -> list[str]:
        """The step instances that were run, in the order of their commands."""
        return [name_of(run) for run in self.runs]

    async def held(self, name: str) -> pb.RunCommand:
        """Wait until the step instance runs here, and return its command."""

        async def found() -> pb.RunCommand | None:
            return next((run for run in self.live.values() if name_of(run) == name), None)

        run = await eventually(found)
        assert run is not None
        return run

    async def told(self, order: str) -> pb.Command:
        """Wait for a command of this kind other than RUN."""

        async def found() -> pb.Command | None:
            return next((one for one in self.others if one.WhichOneof("order") == order), None)

        command = await eventually(found)
        assert command is not None
        return command

    async def read(self, run: pb.RunCommand, resource_ref: str) -> pb.AuthorizeResourceResponse:
        """Ask for access to read a resource, on behalf of a run."""
        request = pb.AuthorizeResourceRequest(
            idempotency_key=f"{run.attempt_id} {resource_ref}",
            attempt_id=run.attempt_id,
            lease_version=run.lease_version,
            resource_ref=resource_ref,
            method=pb.GRANT_METHOD_GET,
        )
        return await self.replica.nodes.AuthorizeResource(
            request, metadata=metadata_of(self.credential)
        )

    async def end(self, run: pb.RunCommand, fact: Fact) -> None:
        """Report the end of a run that was held."""
        self.live.pop(run.attempt_id, None)
        event = pb.NodeEvent(
            event_id=self.replica.plane.ids.new_id(),
            attempt_id=run.attempt_id,
            lease_version=run.lease_version,
            incarnation_id=self.node_id,
            boot_id=self.node_id,
        )
        name = type(fact).__name__.removeprefix("Attempt").lower()
        getattr(event, name).CopyFrom(fact)
        await self._say(events=pb.EventBatch(events=[event]))

    async def _say(self, **message: Any) -> None:
        async with self._lock:
            await self._call.write(pb.SessionRequest(generation=self._generation, **message))

    async def _open(self, capabilities: tuple[str, ...], slots: int) -> None:
        self._call = self.replica.nodes.Session(metadata=metadata_of(self.credential))
        declared = [
            pb.CapabilityDeclaration(
                name=name, version="1", input_schema_json="{}", output_schema_json="{}"
            )
            for name in capabilities
        ]
        hello = pb.Hello(
            protocol_version=1,
            node_id=self.node_id,
            boot_id=self.node_id,
            incarnation_id=self.node_id,
            capabilities=declared,
            slot_count=slots,
            job_credits=10_000,
            ready=True,
        )
        await self._say(hello=hello)
        self._generation = (await self._call.read()).welcome.generation

    async def _read(self) -> None:
        while True:
            try:
                response = await self._call.read()
            except grpc.aio.AioRpcError:
                return
            if response is grpc.aio.EOF:
                return
            if response.HasField("commands"):
                await self._take(response.commands.commands)

    async def _take(self, commands: Any) -> None:  # noqa: ANN401 - a repeated field
        ended: list[tuple[pb.RunCommand, Fact]] = []
        for command in commands:
            if command.WhichOneof("order") != "run":
                self.others.append(command)
                continue
            self.runs.append(command.run)
            self.live[command.run.attempt_id] = command.run
            fact = self.work(command.run)
            if fact is not None:
                ended.append((command.run, fact))
        self.live_max = max(self.live_max, len(self.live))
        await self._say(command_ack=pb.CommandAck(sequence=commands[-1].sequence))
        for run, fact in ended:
            await self.end(run, fact)

    async def _beat(self) -> None:
        number = 0
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            number += 1
            leases = [
                pb.LeaseReference(attempt_id=run.attempt_id, lease_version=run.lease_version)
                for run in self.live.values()
            ]
            await self._say(heartbeat=pb.Heartbeat(number=number, leases=leases, ready=True))


def name_of(run: pb.RunCommand) -> str:
    """Return the step instance as `key` or `key[index]`."""
    return run.step_key if run.item_index < 0 else f"{run.step_key}[{run.item_index}]"


@asynccontextmanager
async def working(
    replica: Replica,
    work: Work = echo,
    *,
    capabilities: tuple[str, ...] = ("noop",),
    slots: int = 16,
) -> AsyncIterator[Worker]:
    """Have a node in session until the end of the block."""
    credential = new_token(TokenKind.NODE)
    worker = Worker(replica, work, replica.plane.ids.new_id(), credential)
    await replica.plane.database.fetch(
        "insert into nodes (node_id, name, credential_sha256) values ($1, $2, $3)",
        worker.node_id,
        f"worker-{worker.node_id}",
        hash_token(credential),
    )
    await worker._open(capabilities, slots)
    tasks = [asyncio.create_task(one) for one in (worker._read(), worker._beat())]
    try:
        yield worker
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        worker._call.cancel()
