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
from tools.dev_stack.processes import ChildProcess, Launch, run_to_end, wait_for_end

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

    def __init__(self, folder: Path, identity: Identity) -> None:
        self.folder = folder
        self.log_file = folder.parent / "runner.log"
        self.log_file.unlink(missing_ok=True)
        self.process = ChildProcess(
            Launch(
                (sys.executable, "-m", "tools.dev_stack", str(folder)),
                self.log_file,
                environment={"PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"},
                identity=identity,
            )
        )

    async def description(self) -> dict[str, Any]:
        """What it prints once all servers are ready."""
        async with asyncio.timeout(DESCRIBED_WITHIN_S):
            while b"\n" not in self.log_file.read_bytes():
                assert self.process.exit_status is None, self.process.log_tail()
                await asyncio.sleep(0.02)
        described: dict[str, Any] = json.loads(self.log_file.read_text())
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
        await runner.process.end()


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
    first = Runner(folder, identity)
    runners.append(first)
    described = await first.description()
    await execute(described["postgres_dsn"], "CREATE TABLE kept ()")
    started = first.descendants()
    assert set(described["pids"].values()) < started
    first.process.send(9)  # type: ignore[arg-type] # a plain number is what the system takes
    second = Runner(folder, identity)
    runners.append(second)
    await all_end(started)
    described_again = await second.description()
    assert described_again["postgres_dsn"] == described["postgres_dsn"]
    await execute(described_again["postgres_dsn"], "SELECT FROM kept")


async def test_sigterm_stops_in_order(
    folder: Path, identity: Identity, runners: list[Runner]
) -> None:
    """Asked to end, the parent stops its servers, then answers 0."""
    runner = Runner(folder, identity)
    runners.append(runner)
    await runner.description()
    started = runner.descendants()
    psutil.Process(runner.process.pid).terminate()
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
