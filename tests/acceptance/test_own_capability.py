"""The guide's capability on a real stack: with `tdp capability dev`, then installed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.acceptance.platform import PATIENCE_S, ROOT, World
from tests.unit.docs.documents import snippets, text_of
from tools.cli import journey
from tools.cli.journey import Document

# For machines that do much else; alone it takes a fraction.
pytestmark = pytest.mark.timeout(300)

EXAMPLE: Final = ROOT / "examples" / "archive-statistics"
GUIDE: Final = ROOT / "docs" / "guides" / "write-a-capability.md"
TABLE: Final = "statistics/files.csv"


class Dev:
    """A running `tdp capability dev --json`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def event(self, kind: str, words: str = "") -> dict[str, Any]:
        """Wait for the next event of a kind, with these words in it."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            async for line in self.process.stdout:
                told: dict[str, Any] = json.loads(line)
                if told["event"] == kind and words in line.decode():
                    return told
        raise AssertionError(f"it ended before an event {kind}")


@asynccontextmanager
async def running(command: str, environment: Mapping[str, str]) -> AsyncIterator[Dev]:
    """Run the guide's `tdp capability dev`, and end it as Ctrl-C does."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from tools.cli.main import main; main()",
        *command.split()[1:],
        "--json",
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'protos/gen'}", **environment},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Dev(process)
    finally:
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE_S):
            await process.communicate()
    assert process.returncode == 0


def commands(folder: Path) -> list[str]:
    """The guide's lines for a stack, with the project in `folder`."""
    blocks = snippets(text_of(GUIDE), "sh")
    return [line.replace("archive-statistics", str(folder)) for line in blocks[1].splitlines()]


async def tried(world: World, order: str) -> Document:
    """Place the guide's order; answer it with its artifacts, once it is complete."""
    done = await world.tdp(*order.split()[1:], "--json")
    assert done.status == 0, done.stderr
    assert done.document["status"] == "COMPLETED"
    async with world.gateway() as client:
        artifacts = await journey.list_artifacts(client, done.document["order_id"])
        assert TABLE in [one["relative_path"] for one in artifacts]
        ladder = await journey.settled_evidence(client, done.document["order_id"], PATIENCE_S)
    assert {rung["state"] for rung in ladder["rungs"]} == {"DURABLE"}, ladder
    return done.document


async def test_it_runs_in_development_and_installed(world: World, tmp_path: Path) -> None:
    """Reloaded on change, broken with its line, then found by an agent that it is installed for."""
    project = tmp_path / "project"
    shutil.copytree(EXAMPLE, project)
    dev, publish, order = commands(project)
    chosen = re.search(r"--set gateway\.(\w+)=(\S+)", text_of(GUIDE))
    assert chosen is not None
    gateway, agent = world.platform.gateways[0], world.platform.agents[0]
    await gateway.restart({chosen[1]: chosen[2]})
    try:
        assert (await world.tdp(*publish.split()[1:])).status == 0
        async with running(dev, world.client_environment) as developed:
            (declared,) = (await developed.event("declared"))["capabilities"]
            assert (declared["name"], declared["version"]) == ("archive.statistics", "1")
            assert (await developed.event("ready"))["refused"] == []
            await tried(world, order)
            assert (await developed.event("attempt_started"))["attempt_number"] == 1
            assert (await developed.event("capability_output", "files=26"))["attempt_id"]
            ended = await developed.event("attempt_ended")
            assert (ended["outcome"], ended["artifact_count"]) == ("SUCCEEDED", 1)
            assert ended["memory_bytes_max"] > 0
            await check_reload(developed, project / "archive_statistics" / "capability.py")
        await install(tmp_path / "installed")
        paths = (tmp_path / "installed", ROOT, ROOT / "protos/gen")
        await agent.restart({"PYTHONPATH": os.pathsep.join(map(str, paths))})
        await tried(world, order)
    finally:
        # The agent may keep one capability more; orders have to run what others expect.
        await gateway.restart()


async def check_reload(developed: Dev, file: Path) -> None:
    """A mistake is told with its line; another model is refused under the same version."""
    sound = await asyncio.to_thread(file.read_text)
    await asyncio.to_thread(file.write_text, f"{sound}\nno_such_name\n")
    broken = await developed.event("broken")
    assert f"{file}:{len(sound.splitlines()) + 2}" in broken["message"]
    assert broken["old_agent_goes_on"] is True
    other = sound.replace("word_count: int = Field(ge=0,", "word_count: int = Field(ge=1,")
    assert other != sound
    await asyncio.to_thread(file.write_text, other)
    (refused,) = (await developed.event("ready"))["refused"]
    assert "publish a new version" in refused["refusal"]


async def install(target: Path) -> None:
    """Build the example as a package of its own and install it, without any network."""
    options = ("--no-deps", "--no-build-isolation", "--offline", "--quiet")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable),
        *("--target", str(target), *options, str(EXAMPLE)),
    )
    assert await process.wait() == 0
