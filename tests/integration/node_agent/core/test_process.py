"""The real process: enrolment, kill -9 at every durable step, SIGTERM, clear refusals."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from foundation.errors import FailedPreconditionError, UnauthenticatedError
from foundation.failpoints import FAILPOINTS_VARIABLE
from node_agent.failpoints import AGENT_FAILPOINTS
from tests.integration.node_agent.core import capability
from tests.integration.node_agent.core.control_plane import (
    FakeControlPlane,
    FakeSession,
    cancel_command,
    run_command,
)

ROOT = Path(__file__).parents[4]
JOIN_TOKEN = "tdp_join_" + "j" * 43
# Reached with artifacts only, which need an object store.
ELSEWHERE = {"agent.artifacts.before", "agent.artifacts.after"}
Launch = Callable[..., Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
async def launch(tmp_path: Path, plane: FakeControlPlane) -> AsyncIterator[Launch]:
    """Starts agents on one state folder; what still runs at the end is killed."""
    started: list[asyncio.subprocess.Process] = []

    async def start(command: str = "serve", **variables: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "node_agent",
            command,
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT}:{ROOT}/protos/gen",
                "TDP_AGENT_CONTROL_PLANE": plane.target,
                "TDP_AGENT_STATE_FOLDER": str(tmp_path / "state"),
                "TDP_AGENT_NODE_NAME": "node",
                "TDP_AGENT_JOIN_TOKEN": JOIN_TOKEN,
                "TDP_AGENT_CAPABILITIES": json.dumps([f"{capability.__name__}:steps"]),
                "TDP_AGENT_RECONNECT_BASE_S": "0.05",
                "TDP_AGENT_RECONNECT_CAP_S": "0.2",
                **variables,
            },
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def next_session(plane: FakeControlPlane, verdict: str = "KEEP") -> FakeSession:
    session = await plane.session()
    session.welcome(*session.verdict(verdict), ttl_s=30.0)
    return session


async def test_an_agent_enrols_once_and_keeps_its_identity(
    plane: FakeControlPlane, launch: Launch, tmp_path: Path
) -> None:
    """The credential is the agent's own; only its hash travels, and later starts ask no more."""
    process = await launch("enroll")
    output, _ = await process.communicate()
    assert process.returncode == 0
    assert output.decode().strip() == plane.node_id
    (request,) = plane.enrolments
    assert request.node_name == "node"
    assert len(request.credential_sha256) == 32
    assert plane.tokens == [JOIN_TOKEN]
    file = tmp_path / "state" / "credential.json"
    assert file.stat().st_mode & 0o777 == 0o600
    await launch(TDP_AGENT_JOIN_TOKEN="")
    session = await next_session(plane)
    assert session.hello.node_id == plane.node_id
    assert plane.tokens[1] == json.loads(file.read_text())["credential"]
    assert len(plane.enrolments) == 1


@pytest.mark.parametrize("point", ["agent.enrol.before", "agent.enrol.after"])
async def test_a_crash_while_enrolling_repeats_the_very_same_call(
    plane: FakeControlPlane, launch: Launch, point: str
) -> None:
    """Key and credential are stored before the call."""
    first = await launch("enroll", **{FAILPOINTS_VARIABLE: f"{point}=kill"})
    await first.communicate()
    assert first.returncode == -signal.SIGKILL
    second = await launch("enroll")
    await second.communicate()
    assert second.returncode == 0
    assert len({request.SerializeToString() for request in plane.enrolments}) == 1


async def test_a_refused_enrolment_ends_with_a_clear_message(
    plane: FakeControlPlane, launch: Launch
) -> None:
    """No retry can help a spent token."""
    plane.refusal = FailedPreconditionError("join token 7 is used up", reason="TOKEN_SPENT")
    process = await launch("enroll")
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"TOKEN_SPENT" in errors
    assert b"join token 7 is used up" in errors


async def test_a_refused_credential_ends_the_process(
    plane: FakeControlPlane, launch: Launch
) -> None:
    """UNAUTHENTICATED on Session is fatal: the exit status says so."""
    await (await launch("enroll")).communicate()
    plane.refusal = UnauthenticatedError("unknown credential")
    process = await launch()
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"SESSION_REFUSED" in errors or b"enrol again" in errors


@pytest.mark.parametrize(
    "point", sorted(AGENT_FAILPOINTS - ELSEWHERE - {"agent.enrol.before", "agent.enrol.after"})
)
async def test_kill_nine_at_each_step_loses_nothing_and_doubles_nothing(
    plane: FakeControlPlane, launch: Launch, point: str
) -> None:
    """F01: whatever the step, the attempt ends once, under one event id, after a restart."""
    # The first claim finds an empty outbox, before there is a session.
    hit = "@2" if ".claim." in point else ""
    first = await launch(**{FAILPOINTS_VARIABLE: f"{point}=kill{hit}"})
    command = run_command(1, capability="test.steps", input_json='{"text":"x"}', remaining_s=30.0)
    attempt_id = command.run.attempt_id
    events = []
    if point != "agent.hello.before":
        session = await next_session(plane)
        session.commands(command)
        await first.wait()
        await session.left.wait()
        events = [*session.events]
    await first.communicate()
    assert first.returncode == -signal.SIGKILL
    second = await launch()
    session = await next_session(plane)
    held = {one.attempt_id for one in session.hello.held_attempts}
    if session.hello.last_command_sequence < 1:
        assert not held
        session.commands(command)
    if held or not events:
        await session.final(attempt_id)
    finals = {one.event_id for one in [*events, *session.events]}
    assert len(finals) == 1
    second.send_signal(signal.SIGTERM)
    await second.communicate()
    assert second.returncode == 0


async def test_after_a_kill_the_work_goes_on_from_its_checkpoint(
    plane: FakeControlPlane, launch: Launch
) -> None:
    """Durable when it returned: the second process finds it."""
    first = await launch(**{FAILPOINTS_VARIABLE: "agent.checkpoint.after=kill"})
    session = await next_session(plane)
    command = run_command(1, capability="test.steps", input_json='{"text":"x"}', remaining_s=30.0)
    session.commands(command)
    await first.communicate()
    await launch()
    second = await next_session(plane)
    event = await second.final(command.run.attempt_id)
    assert json.loads(event.succeeded.output_json) == {"text": "x", "was_resumed": True}


async def test_children_end_with_their_agent_and_work_is_resumed_in_a_new_one(
    plane: FakeControlPlane, launch: Launch, tmp_path: Path
) -> None:
    """The child of a killed agent is gone; the next agent runs the attempt, and can cancel it."""
    variables = {
        "TDP_AGENT_CAPABILITIES": json.dumps([f"{capability.__name__}:endless"]),
        "TDP_AGENT_SLOTS": "1",
        "TDP_AGENT_INLINE_SLOTS": "1",
    }
    first = await launch(**variables)
    session = await next_session(plane)
    command = run_command(1, capability="test.endless", remaining_s=30.0)
    session.commands(command)
    child = psutil.Process(await process_of_checkpoint(tmp_path / "state", session))
    first.kill()
    await first.communicate()
    await asyncio.to_thread(psutil.wait_procs, [child], 10)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    await launch(**variables)
    second = await next_session(plane)
    await process_of_checkpoint(tmp_path / "state", second, other_than=child.pid)
    second.commands(cancel_command(2, command.run.attempt_id))
    event = await second.final(command.run.attempt_id)
    assert event.stopped.stop_reason == "CANCEL"


async def process_of_checkpoint(folder: Path, session: FakeSession, other_than: int = 0) -> int:
    """The process id that the attempt's checkpoint names, looked at with each heartbeat."""

    def read() -> int:
        with contextlib.closing(sqlite3.connect(folder / "journal.db")) as connection:
            row = connection.execute("select document from checkpoints").fetchone()
        return 0 if row is None else int(json.loads(row[0])["process_id"])

    while (found := read()) in (0, other_than):
        await session.expect("heartbeat")
    return found


async def test_a_lost_journal_is_a_new_incarnation_of_the_same_node(
    plane: FakeControlPlane, launch: Launch, tmp_path: Path
) -> None:
    """F17: the credential has a file of its own, so the node comes back as itself."""
    first = await launch()
    session = await next_session(plane)
    first.send_signal(signal.SIGTERM)
    await first.communicate()
    for file in (tmp_path / "state").glob("journal.db*"):
        file.unlink()
    await launch(TDP_AGENT_JOIN_TOKEN="")
    second = await next_session(plane)
    assert second.hello.node_id == session.hello.node_id
    assert second.hello.incarnation_id != session.hello.incarnation_id
    assert second.hello.last_command_sequence == 0


async def test_systemd_is_told_of_the_first_handshake_and_of_the_end(
    plane: FakeControlPlane, launch: Launch, tmp_path: Path
) -> None:
    """READY after Welcome and not before, signs of life from then on, STOPPING at the end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(0.0)
        variables = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}
        agent = await launch(**variables)
        told: list[bytes] = []

        async def until(state: bytes) -> None:
            while state not in told:
                told.append(await asyncio.get_running_loop().sock_recv(systemd, 100))

        session = await plane.session()
        await until(b"WATCHDOG=1")
        assert b"READY=1" not in told
        session.welcome()
        await until(b"READY=1")
        told.clear()
        await until(b"WATCHDOG=1")
        agent.send_signal(signal.SIGTERM)
        await until(b"STOPPING=1")
        await agent.communicate()
        assert agent.returncode == 0


async def test_check_config_names_what_is_wrong(launch: Launch) -> None:
    """Each wrong variable is named, with what it should be."""
    process = await launch("check-config", TDP_AGENT_CONTROL_PLANE="nowhere", TDP_AGENT_SLOTS="0")
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert b"TDP_AGENT_CONTROL_PLANE" in errors
    assert b"TDP_AGENT_SLOTS" in errors
