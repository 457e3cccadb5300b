"""Children do not outlive their agent, however it ends."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from tools.dev_stack.processes import wait_for_end

ROOT = Path(__file__).parents[4]


async def test_a_killed_agent_takes_its_children_along(tmp_path: Path) -> None:
    """SIGKILL of the agent, which can clean nothing up, ends its idle child too."""
    told = tmp_path / "child"
    agent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.integration.node_agent.host.agent_process",
        str(told),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "protos/gen")))},
    )
    assert agent.stdout is not None
    assert await agent.stdout.readline() == b"ready\n"
    child = int(told.read_text(encoding="ascii"))
    os.kill(child, 0)
    agent.send_signal(signal.SIGKILL)
    await agent.wait()
    async with asyncio.timeout(10):
        await wait_for_end(child)
