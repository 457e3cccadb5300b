"""What surrounds attempts: grants, drains, the state folder, a full disk, a damaged journal."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from foundation.errors import FailedPreconditionError, UnavailableError
from foundation.sqlite.errors import LocalDatabaseCorruptError, LocalDatabaseMissingError
from node_agent.core.execution.ports import (
    ArtifactRequest,
)
from tdp.node.v1 import node_service_pb2 as pb
from tests.integration.node_agent.core.conftest import StartAgent
from tests.integration.node_agent.core.control_plane import (
    FakeControlPlane,
    drain_command,
    run_command,
)
from tests.integration.node_agent.core.harness import FakeHost, RunningAgent, begun


def _grant(reference: str, seconds: float, method: "pb.GrantMethod.ValueType") -> pb.AccessGrant:
    grant = pb.AccessGrant(
        grant_id=f"grant-{reference}", resource_ref=reference, method=method, url="https://x/y"
    )
    grant.expire_time.GetCurrentTime()
    grant.expire_time.FromNanoseconds(grant.expire_time.ToNanoseconds() + int(seconds * 1e9))
    return grant


async def test_grants_are_asked_for_with_keys_kept_and_renewed(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """A fresh one is used again, one near its end renewed; a lost reply repeats the key."""
    host = FakeHost()
    await start_agent(host)
    command = run_command(1)
    calls: list[tuple[str, str]] = []

    def answer(name: str, request: object) -> object:
        assert isinstance(
            request,
            pb.AuthorizeResourceRequest | pb.RenewGrantRequest | pb.AllocateArtifactsRequest,
        )
        assert (request.attempt_id, request.lease_version) == (command.run.attempt_id, 1)
        calls.append((name, request.idempotency_key))
        if len(calls) == 1:
            raise UnavailableError("the reply is lost")
        if isinstance(request, pb.AuthorizeResourceRequest):
            grant = _grant(request.resource_ref, 0.0, pb.GRANT_METHOD_GET)
            return pb.AuthorizeResourceResponse(grant=grant)
        if isinstance(request, pb.RenewGrantRequest):
            assert request.grant_id == "grant-a"
            return pb.RenewGrantResponse(grant=_grant("a", 900.0, pb.GRANT_METHOD_GET))
        return pb.AllocateArtifactsResponse(
            artifacts=[
                pb.AllocatedArtifact(
                    relative_path=one.relative_path,
                    resource_ref=f"ref-{one.relative_path}",
                    grant=_grant(one.relative_path, 900.0, pb.GRANT_METHOD_PUT),
                )
                for one in request.artifacts
            ]
        )

    plane.on_call = answer
    _, run = await begun(plane, host, command)
    assert (await run.services.authorize("a")).method == "GET"
    assert [name for name, _ in calls] == ["AuthorizeResource"] * 2
    assert calls[0][1] == calls[1][1], "a repeat has the same key"
    await run.services.authorize("a")
    await run.services.authorize("a")
    assert [name for name, _ in calls[2:]] == ["RenewGrant"], "the renewed one is used again"
    requests = [ArtifactRequest(f"p{number}", "image", "image/png", 9) for number in range(450)]
    places = await run.services.allocate("collection", requests)
    assert [one.relative_path for one in places] == [one.relative_path for one in requests]
    assert [name for name, _ in calls[3:]] == ["AllocateArtifacts"] * 3


async def test_a_refused_grant_reaches_the_work_alone(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """LEASE_LOST on a grant call is the attempt's affair; the session goes on."""
    host = FakeHost()
    await start_agent(host)
    command = run_command(1)

    def answer(name: str, request: object) -> object:
        raise FailedPreconditionError("the lease is lost", reason="LEASE_LOST")

    plane.on_call = answer
    session, run = await begun(plane, host, command)
    try:
        await run.services.authorize("a")
        reason = "none"
    except FailedPreconditionError as error:
        reason = error.reason
    assert reason == "LEASE_LOST"
    run.succeed()
    await session.final(command.run.attempt_id)


async def test_stopping_gives_running_work_its_grace_and_flushes(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """SIGTERM: not ready at once, what ends in time is told as done, the rest as drained."""
    host = FakeHost()
    agent = await start_agent(host)
    session = await plane.session()
    session.welcome()
    commands = [run_command(number) for number in (1, 2, 3)]
    session.commands(*commands)
    quick = await host.running(commands[0].run.attempt_id)
    await host.running(commands[1].run.attempt_id)
    stopping = asyncio.create_task(agent.stop(), name="stopping")
    await session.until(lambda: session.heartbeats[-1].not_ready_reason == "SHUTTING_DOWN")
    quick.succeed()
    ends = [await session.final(one.run.attempt_id) for one in commands]
    assert ends[0].HasField("succeeded")
    assert ends[1].stopped.stop_reason == "DRAIN"
    assert ends[2].failed.failure.reason == "AGENT_DRAINING"
    await stopping
    assert agent.agent.events.depth == 0


async def test_the_grace_of_a_drain_ends_running_work(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """A drain with a grace stops what has not ended by then."""
    host = FakeHost()
    await start_agent(host)
    command = run_command(1)
    session, _ = await begun(plane, host, command)
    session.commands(drain_command(2, grace_s=0.05))
    event = await session.final(command.run.attempt_id)
    assert event.stopped.stop_reason == "DRAIN"


async def test_leftover_folders_are_removed_at_start(
    plane: FakeControlPlane, start_agent: StartAgent, tmp_path: Path
) -> None:
    """Only held attempts keep theirs."""
    (tmp_path / "work" / "stranger").mkdir(parents=True)
    (tmp_path / "work" / "stranger" / "file").write_text("x")
    await start_agent()
    await plane.session()
    assert not (tmp_path / "work" / "stranger").exists()


async def test_a_second_agent_on_the_folder_is_refused(
    plane: FakeControlPlane, start_agent: StartAgent, tmp_path: Path
) -> None:
    """One agent per state folder, and the message names the other."""
    await start_agent()
    second = RunningAgent(tmp_path, plane.target, plane.node_id, FakeHost())
    try:
        await second.start()
        text = ""
    except FailedPreconditionError as error:
        text = f"{error.reason}: {error}"
    assert text.startswith("STATE_FOLDER_LOCKED")


async def test_a_full_disk_takes_no_command_and_says_so(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """F17: nothing is acknowledged that is not stored; with room again the command is run."""
    host = FakeHost()
    agent = await start_agent(host)
    session = await plane.session()
    session.welcome()
    database = agent.agent._database
    assert database is not None
    used = await database.read(lambda c: c.execute("pragma page_count").fetchone()[0])
    await database.read(lambda c: c.execute(f"pragma max_page_count = {used}").fetchone())
    command = run_command(1, input_json='"' + "x" * 200_000 + '"', remaining_s=3.0)
    session.commands(command)
    await session.until(
        lambda: bool(session.heartbeats) and session.heartbeats[-1].not_ready_reason == "DISK_FULL"
    )
    assert not [one for one in session.received if one.WhichOneof("message") == "command_ack"]
    assert host.run_count == 0
    await database.read(lambda c: c.execute("pragma max_page_count = 1000000").fetchone())
    assert (await session.expect("command_ack")).command_ack.sequence == 1
    await host.running(command.run.attempt_id)
    await session.until(lambda: session.heartbeats[-1].ready)


async def test_a_damaged_journal_ends_the_agent_loudly(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """A failure of the file is no network error: it is never retried in silence."""
    agent = await start_agent()
    session = await plane.session()
    session.welcome()
    await session.until(lambda: bool(session.heartbeats))
    database = agent.agent._database
    assert database is not None

    def settle(connection: sqlite3.Connection) -> None:
        connection.execute("pragma wal_checkpoint(truncate)")

    def damage() -> None:
        raw = database.path.read_bytes()
        database.path.write_bytes(raw[:4096] + b"\xa5" * (len(raw) - 4096))

    def forget_pages(connection: sqlite3.Connection) -> None:
        # What the cache holds is read again, from the damaged file.
        connection.execute("pragma shrink_memory")

    await database._call(settle)
    await asyncio.to_thread(damage)
    await database._call(forget_pages)
    session.commands(*(run_command(number, capability="test.echo") for number in range(1, 9)))
    with pytest.raises(ExceptionGroup) as caught:
        await agent.ended()
    assert any(isinstance(one, LocalDatabaseCorruptError) for one in flat(caught.value))


async def test_a_journal_that_is_deleted_ends_the_agent_and_acks_nothing(
    plane: FakeControlPlane, start_agent: StartAgent, tmp_path: Path
) -> None:
    """F17: what is written to a deleted file is lost, so no command in it may be acknowledged."""
    agent = await start_agent()
    session = await plane.session()
    session.welcome()
    await session.until(lambda: bool(session.heartbeats))
    (tmp_path / "journal.db").unlink()
    session.commands(run_command(1, capability="test.echo"))
    with pytest.raises(ExceptionGroup) as caught:
        await agent.ended()
    assert any(isinstance(one, LocalDatabaseMissingError) for one in flat(caught.value))
    assert not [one for one in session.received if one.WhichOneof("message") == "command_ack"]


def flat(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for one in group.exceptions:
        found += flat(one) if isinstance(one, BaseExceptionGroup) else [one]
    return found


async def test_work_goes_on_while_the_control_plane_is_away(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """Its result waits in the journal, and leaves when there is somebody to take it."""
    host = FakeHost()
    agent = await start_agent(host)
    command = run_command(1)
    session, run = await begun(plane, host, command, ttl_s=30.0)
    await plane.stop()
    await session.left.wait()
    run.succeed()
    await host.until_ended(command.run.attempt_id)
    await plane.start()
    second = await plane.session()
    second.welcome(*second.verdict("KEEP"), ttl_s=30.0)
    await second.final(command.run.attempt_id)
    await agent.agent.events.wait_empty()
