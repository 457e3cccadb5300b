"""Hot reload: an agent with the project's code as it is, and everything that happens told."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from foundation.errors import TdpError
from tools.cli.capability.dev_agent import (
    AgentSetup,
    BrokenProjectError,
    DevAgent,
    Document,
    declarations,
)
from tools.cli.capability.sources import State, changed, state_of

LOOK_PERIOD_S: Final = 0.3
_TOLD: Final = frozenset({"attempt_started", "attempt_ended", "capability_output"})
_READY: Final = "node_agent_ready"

Tell = Callable[[Document], None]
"""Told each event, a document with `event`."""
Refusals = Callable[[], Awaitable[list[Document]]]
"""Asks which of the agent's capabilities the control plane refuses, and why."""


@dataclass(frozen=True, slots=True)
class DevLoop:
    """Runs until it is cancelled; the agent has ended on return."""

    setup: AgentSetup
    tell: Tell
    refusals: Refusals

    async def run(self) -> None:
        """Load, serve, and begin again whenever a file of the project has changed.

        A project that cannot be loaded is told, and the agent before goes on.
        """
        folder = self.setup.project.folder
        agent: _Serving | None = None
        async with asyncio.TaskGroup() as group:
            try:
                while True:
                    seen = await asyncio.to_thread(state_of, folder)
                    agent = await self._renewed(agent, group)
                    paths = await self._next_change(folder, seen)
                    self.tell({"event": "changed", "paths": paths})
            finally:
                if agent is not None:
                    await agent.stop()

    async def _renewed(
        self, agent: "_Serving | None", group: asyncio.TaskGroup
    ) -> "_Serving | None":
        try:
            declared = await declarations(self.setup.project)
        except BrokenProjectError as error:
            goes_on = agent is not None
            self.tell({"event": "broken", "message": str(error), "old_agent_goes_on": goes_on})
            return agent
        self.tell({"event": "declared", "capabilities": declared})
        if agent is not None:
            await agent.stop()
        return await _Serving.begin(self, group)

    @staticmethod
    async def _next_change(folder: Path, seen: State) -> list[str]:
        while True:
            await asyncio.sleep(LOOK_PERIOD_S)
            paths = changed(seen, await asyncio.to_thread(state_of, folder))
            if paths:
                return paths

    async def ready(self) -> None:
        """Tell that the agent takes work, or what the control plane refuses of it."""
        try:
            refused = await self.refusals()
        except TdpError as error:
            refused = [{"name": "", "version": "", "refusal": error.message}]
        self.tell({"event": "ready", "node": self.setup.node_name, "refused": refused})


class _Serving:
    """An agent and the task that listens to it."""

    def __init__(self, loop: DevLoop, agent: DevAgent) -> None:
        self._loop = loop
        self._agent = agent
        self._stopping = False

    @classmethod
    async def begin(cls, loop: DevLoop, group: asyncio.TaskGroup) -> "_Serving":
        serving = cls(loop, await DevAgent.start(loop.setup))
        group.create_task(serving._listen(), name="dev agent's events")
        return serving

    async def stop(self) -> None:
        self._stopping = True
        await self._agent.stop()

    async def _listen(self) -> None:
        async for event in self._agent.events():
            if event.get("event") == _READY:
                await self._loop.ready()
            elif event.get("event") in _TOLD:
                self._loop.tell(_without_frame(event))
        if not self._stopping:
            self._loop.tell({"event": "agent_ended", "message": await self._agent.ended()})


def _without_frame(event: dict[str, Any]) -> Document:
    """The event without what every log line has."""
    left_out = {"level", "timestamp", "process"}
    return {name: value for name, value in event.items() if name not in left_out}
