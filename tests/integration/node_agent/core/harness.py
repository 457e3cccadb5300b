"""An agent in this process: everything real but the host, which does as the test says."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from foundation.clock import SystemClock
from foundation.lifecycle import StopRequest, Supervision, run_services
from node_agent.adapters.outbound.state_folder import StateFolder
from node_agent.bootstrap import Agent, Surroundings
from node_agent.core.execution.ports import (
    AttemptServices,
    CapabilityDeclaration,
    Outcome,
    RunOrder,
    Stopped,
    Succeeded,
    Usage,
)
from node_agent.core.session.enrolment import SavedCredential
from node_agent.settings import AgentSettings
from tdp.node.v1 import node_service_pb2 as pb
from tests.integration.node_agent.core.control_plane import FakeControlPlane, FakeSession

PATIENCE_S = 10.0


@dataclass(eq=False)
class Run:
    """One run in the fake host; ends with the outcome, or as Stopped once it is stopped."""

    order: RunOrder
    services: AttemptServices
    stop: asyncio.Event
    outcome: "asyncio.Future[Outcome]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def succeed(self, output_json: str = "{}", artifact_count: int = 0) -> None:
        self.outcome.set_result(Succeeded(output_json, "", artifact_count, Usage(duration_ms=1)))


class FakeHost:
    """Offers test.work (a slot each) and test.echo (inline, done at once)."""

    def __init__(self, *, resumable: bool = False) -> None:
        self.resumable = resumable
        self.runs: dict[str, Run] = {}
        self.run_count = 0
        self.inline_count = 0
        self._began = asyncio.Event()

    def declarations(self) -> Sequence[CapabilityDeclaration]:
        return [
            CapabilityDeclaration("test.work", "1", "{}", "{}", inline=False),
            CapabilityDeclaration("test.echo", "1", "{}", "{}", inline=True),
        ]

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def run(self, order: RunOrder, services: AttemptServices, stop: asyncio.Event) -> Outcome:
        if order.capability == "test.echo":
            self.inline_count += 1
            return Succeeded(order.input_json, "", 0, Usage())
        run = Run(order, services, stop)
        self.runs[order.attempt_id] = run
        self.run_count += 1
        self._began.set()
        stopping = asyncio.create_task(stop.wait(), name="fake-work-stop")
        waited: list[asyncio.Future[Any]] = [run.outcome, stopping]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            return run.outcome.result() if run.outcome.done() else Stopped(Usage())
        finally:
            stopping.cancel()
            if self.runs.get(order.attempt_id) is run:
                del self.runs[order.attempt_id]
            self._began.set()

    async def running(self, attempt_id: str) -> Run:
        """The run of an attempt, once it has begun."""
        await self.until(lambda: attempt_id in self.runs)
        return self.runs[attempt_id]

    async def until_ended(self, attempt_id: str) -> None:
        await self.until(lambda: attempt_id not in self.runs)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self._began.clear()
                await self._began.wait()


class RunningAgent:
    """An agent that serves until it is stopped or crashed."""

    def __init__(self, folder: Path, target: str, node_id: str, host: FakeHost) -> None:
        self.settings = AgentSettings(
            control_plane=target,
            state_folder=folder,
            node_name="node",
            slots=2,
            inline_slots=4,
            capabilities=(),
            disk_bytes_min=0,
            reconnect_base_s=0.05,
            reconnect_cap_s=0.1,
            drain_grace_s=0.2,
            stop_grace_s=0.5,
            flush_s=2.0,
        )
        self.host = host
        self.folder = StateFolder(folder)
        self.stop_request = StopRequest()
        self._credential = SavedCredential("node", "key", "tdp_node_" + "x" * 43, node_id)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> "RunningAgent":
        self.folder.open()
        surroundings = Surroundings(SystemClock(), Random(1), {})
        self.agent = Agent(self.settings, self.folder, self._credential, surroundings, self.host)
        self.agent._supports_resume = lambda *_: self.host.resumable  # type: ignore[method-assign]
        await self.agent.open()
        self._task = asyncio.create_task(self._serve(), name="agent")
        return self

    async def _serve(self) -> None:
        supervision = Supervision(shutdown_grace_s=10.0)
        await run_services(self.agent.services(), self.stop_request, supervision)

    async def stop(self) -> None:
        """An ordered end; raises what the agent died of. Idempotent."""
        self.stop_request.make("the test is over")
        await self.ended()

    async def ended(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await task
            finally:
                await self.agent.close()
                self.folder.close()

    async def crash(self) -> None:
        """An end without any of the orderly steps: nothing more is stored or sent."""
        await self.agent.close()
        self.folder.close()
        task, self._task = self._task, None
        assert task is not None
        self.agent.final_drain._done.set()
        self.stop_request.make("crash")
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()


async def begun(
    plane: FakeControlPlane, host: FakeHost, command: pb.Command, **welcome: float
) -> tuple[FakeSession, Run]:
    """A session with one attempt at work."""
    session = await plane.session()
    session.welcome(**welcome)
    session.commands(command)
    return session, await host.running(command.run.attempt_id)
