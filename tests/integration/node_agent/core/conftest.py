"""A scripted control plane and agents that talk to it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import structlog

from tests.integration.node_agent.core.control_plane import FakeControlPlane
from tests.integration.node_agent.core.harness import FakeHost, RunningAgent

StartAgent = Callable[..., Awaitable[RunningAgent]]


@pytest.fixture(autouse=True)
def plain_logs() -> Iterator[None]:
    """Unconfigured, structlog draws tracebacks with all locals, which takes seconds."""
    structlog.configure(
        processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    yield
    structlog.reset_defaults()


@pytest.fixture
async def plane() -> AsyncIterator[FakeControlPlane]:
    plane = FakeControlPlane()
    await plane.start()
    yield plane
    await plane.stop()


@pytest.fixture
async def start_agent(tmp_path: Path, plane: FakeControlPlane) -> AsyncIterator[StartAgent]:
    agents: list[RunningAgent] = []

    async def start(host: FakeHost | None = None) -> RunningAgent:
        agent = RunningAgent(tmp_path, plane.target, plane.node_id, host or FakeHost())
        agents.append(agent)
        return await agent.start()

    yield start
    for agent in agents:
        await agent.stop()
