"""Servers end with the process that started them, whoever it runs as, and can be started again."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from tools.dev_stack.identity import CAP_DAC_READ_SEARCH, UNPRIVILEGED_ACCOUNT, Identity
from tools.dev_stack.processes import Launch, launcher_command, run_to_end, wait_for_end

REPOSITORY = Path(__file__).parents[3]
ENDED_WITHIN_S = 20.0
DESCRIBED_WITHIN_S = 60.0


def identities() -> dict[str, Identity]:
    """The users that this test can be: itself, another user, the only user of a container."""
    found = {"itself": Identity()}
    if namespaces_allowed():
        found["only_root"] = Identity("namespace", 0, 0)
    if os.geteuid() == 0:
        account = pwd.getpwnam(UNPRIVILEGED_ACCOUNT)
        # The right to pass folders stands for an interpreter that this user could reach.
        capability = CAP_DAC_READ_SEARCH
        found["ordinary"] = Identity("switch", account.pw_uid, account.pw_gid, capability)
    return found


def namespaces_allowed() -> bool:
    attempt = ["/usr/bin/unshare", "--user", "--map-root-user", "/bin/true"]
    return subprocess.run(attempt, check=False, capture_output=True).returncode == 0


IDENTITIES = identities()


class Runner:
    """A process that runs `python -m tools.dev_stack` on a folder."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, folder: Path, identity: Identity) -> Runner:
        command = (sys.executable, "-m", "tools.dev_stack", str(folder))
        launch = Launch(command, folder / "unused.log", identity=identity)
        environment = {"PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"}
        process = await asyncio.create_subprocess_exec(
            *launcher_command(launch),
            env={**os.environ, **environment},
            cwd="/",
            stdout=asyncio.subprocess.PIPE,
        )
        return cls(process)

    async def description(self) -> dict[str, Any]:
        """What it prints once all servers are ready."""
        assert self.process.stdout is not None
        async with asyncio.timeout(DESCRIBED_WITHIN_S):
            line = await self.process.stdout.readline()
        described: dict[str, Any] = json.loads(line)
        return described

    def descendants(self) -> set[int]:
        return {one.pid for one in psutil.Process(self.process.pid).children(recursive=True)}


@pytest.fixture(params=list(IDENTITIES))
def identity(request: pytest.FixtureRequest) -> Identity:
    return IDENTITIES[request.param]


@pytest.fixture
def folder(tmp_path: Path, identity: Identity) -> Path:
    """A folder of that user below one that only its owner may pass, like a home."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    place = home / "stack"
    place.mkdir(mode=0o711)
    if identity.file_owner is not None:
        os.chown(home, *identity.file_owner)
        os.chown(place, *identity.file_owner)
    return place


@pytest.fixture
async def runners() -> AsyncIterator[list[Runner]]:
    started: list[Runner] = []
    yield started
    for runner in started:
        if runner.process.returncode is None:
            runner.process.kill()
        await runner.process.communicate()


async def all_end(pids: set[int]) -> None:
    async with asyncio.timeout(ENDED_WITHIN_S):
        await asyncio.gather(*(wait_for_end(pid) for pid in pids))


async def execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def test_kill_9_of_the_parent_ends_all_and_loses_nothing(
    folder: Path, identity: Identity, runners: list[Runner]
) -> None:
    """Every process dies with a killed parent, and an immediate second start has the data."""
    first = await Runner.start(folder, identity)
    runners.append(first)
    described = await first.description()
    await execute(described["postgres_dsn"], "CREATE TABLE kept ()")
    started = first.descendants()
    assert set(described["pids"].values()) < started
    first.process.kill()
    second = await Runner.start(folder, identity)
    runners.append(second)
    await all_end(started)
    described_again = await second.description()
    assert described_again["postgres_dsn"] == described["postgres_dsn"]
    await execute(described_again["postgres_dsn"], "SELECT FROM kept")


async def test_sigterm_stops_in_order(
    folder: Path, identity: Identity, runners: list[Runner]
) -> None:
    """Asked to end, the parent stops its servers, then answers 0."""
    runner = await Runner.start(folder, identity)
    runners.append(runner)
    await runner.description()
    started = runner.descendants()
    runner.process.terminate()
    assert await runner.process.wait() == 0
    assert not started & set(psutil.pids()) or all(_is_zombie(pid) for pid in started)
    assert "database system is shut down" in (folder / "logs" / "postgres.log").read_text()


def _is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_a_child_started_by_a_dead_parent_never_runs(tmp_path: Path) -> None:
    """If the parent died before the child could ask to be told, the child ends at once."""
    launcher = REPOSITORY / "tools" / "dev_stack" / "launch.py"
    # Its parent is not the process 1 that the order names.
    order = json.dumps({"parent_pid": 1, "death_signal": 9, "identity": {"way": "keep"}})
    mark = tmp_path / "it_ran"
    command = (sys.executable, str(launcher), order, "/bin/touch", str(mark))
    status, _ = await run_to_end(Launch(command, tmp_path / "log"), timeout_s=30)
    assert status == 1
    assert not mark.exists()
