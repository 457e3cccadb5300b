"""Attempts under their leases: stops, verdicts, restarts, checkpoints, artifacts, the end."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from foundation.errors import FailedPreconditionError, UnavailableError
from foundation.sqlite.errors import LocalDatabaseCorruptError
from node_agent.core.execution.ports import (
    ArtifactRequest,
    Failed,
    Succeeded,
    UploadedArtifact,
    Usage,
    WorkFailure,
)
from node_agent.core.session.lease_clock import AttemptId
from tdp.node.v1 import node_service_pb2 as pb
from tests.integration.node_agent.core.conftest import StartAgent
from tests.integration.node_agent.core.control_plane import (
    FakeControlPlane,
    FakeSession,
    cancel_command,
    drain_command,
    extend_command,
    run_command,
)
from tests.integration.node_agent.core.harness import FakeHost, Run, RunningAgent


async def begun(
    plane: FakeControlPlane, host: FakeHost, command: pb.Command, **welcome: float
) -> tuple[FakeSession, Run]:
    """A session with one attempt at work."""
    session = await plane.session()
    session.welcome(**welcome)
    session.commands(command)
    return session, await host.running(command.run.attempt_id)


async def test_process_attempts_are_bounded_by_slots(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """Two slots: the third waits, with its lease renewed, until one is free."""
    host = FakeHost()
    await start_agent(host)
    session = await plane.session()
    session.welcome()
    commands = [run_command(number) for number in (1, 2, 3)]
    session.commands(*commands)
    first = await host.running(commands[0].run.attempt_id)
    await host.running(commands[1].run.attempt_id)
    third = commands[2].run.attempt_id
    await session.until(
        lambda: (
            third in {one.attempt_id for one in session.heartbeats[-1].leases}
            if session.heartbeats
            else False
        )
    )
    assert third not in host.runs
    first.succeed()
    await host.running(third)


async def test_a_cancel_stops_the_work_and_tells_the_reason(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """The order is stored; the end names CANCEL or TIMEOUT as ordered."""
    host = FakeHost()
    await start_agent(host)
    command = run_command(1)
    session, _ = await begun(plane, host, command)
    session.commands(cancel_command(2, command.run.attempt_id, "TIMEOUT"))
    event = await session.final(command.run.attempt_id)
    assert event.stopped.stop_reason == "TIMEOUT"
    assert (await session.expect("job_credit")).job_credit.credit_count == 1


async def test_work_that_is_done_when_the_cancel_comes_is_told_as_done(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """What happened is told, and the server decides."""
    host = FakeHost()
    await start_agent(host)
    command = run_command(1)
    session, run = await begun(plane, host, command)
    run.succeed('{"done":true}')
    session.commands(cancel_command(2, command.run.attempt_id))
    event = await session.final(command.run.attempt_id)
    assert event.succeeded.output_json == '{"done":true}'


async def test_a_queued_attempt_is_cancelled_without_running(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """One that waits for a slot never begins."""
    host = FakeHost()
    await start_agent(host)
    session = await plane.session()
    session.welcome()
    commands = [run_command(number) for number in (1, 2, 3)]
    session.commands(*commands, cancel_command(4, commands[2].run.attempt_id))
    event = await session.final(commands[2].run.attempt_id)
    assert event.stopped.stop_reason == "CANCEL"
    await host.running(commands[0].run.attempt_id)
    assert commands[2].run.attempt_id not in host.runs


async def test_the_run_time_out_stops_the_work(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """The agent keeps it by its own clock."""
    host = FakeHost()
    await start_agent(host)
    command = run_command(1, run_timeout_s=0.1)
    session, run = await begun(plane, host, command)
    assert run.order.run_timeout_s is None, "the host must not keep it too: EXTEND moves it"
    event = await session.final(command.run.attempt_id)
    assert event.stopped.stop_reason == "TIMEOUT"


async def test_an_extension_moves_the_run_time_out(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """Extended by an hour, the work outlives what was its time-out."""
    host = FakeHost()
    agent = await start_agent(host)
    command = run_command(1, run_timeout_s=60.0)
    session, _ = await begun(plane, host, command)
    before_s = agent.agent.runner._runs._timers[AttemptId(command.run.attempt_id)].when()
    session.commands(extend_command(2, command.run.attempt_id, 3600.0))
    assert (await session.expect("command_ack")).command_ack.sequence == 1
    assert (await session.expect("command_ack")).command_ack.sequence == 2
    await session.until(lambda: True)
    after_s = agent.agent.runner._runs._timers[AttemptId(command.run.attempt_id)].when()
    assert 3599.0 < after_s - before_s < 3601.0


async def test_a_lease_that_is_not_renewed_stops_the_work_in_time(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """F07: by its own clock the agent stops before the server may give the lease away."""
    host = FakeHost()
    await start_agent(host)
    command = run_command(1, remaining_s=0.6)
    session = await plane.session()
    session.renews = False
    session.welcome(ttl_s=0.6, beat_s=0.05)
    sent_at_s = asyncio.get_running_loop().time()
    session.commands(command)
    await host.running(command.run.attempt_id)
    await host.until_ended(command.run.attempt_id)
    assert asyncio.get_running_loop().time() - sent_at_s < 0.6
    assert not session.events, "it waits: nothing is told yet"
    session.renews = True
    event = await session.final(command.run.attempt_id)
    assert event.failed.failure.reason == "LEASE_PASSED"
    assert event.failed.failure.infrastructure


async def test_work_with_a_passed_lease_resumes_when_it_is_renewed(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """A capability that can resume goes on from its checkpoint."""
    host = FakeHost(resumable=True)
    await start_agent(host)
    command = run_command(1, remaining_s=0.6)
    session = await plane.session()
    session.renews = False
    session.welcome(ttl_s=0.6, beat_s=0.05)
    session.commands(command)
    run = await host.running(command.run.attempt_id)
    await run.services.save_checkpoint('{"page":3}')
    await host.until_ended(command.run.attempt_id)
    session.renews = True
    again = await host.running(command.run.attempt_id)
    assert again.order.checkpoint_json == '{"page":3}'
    again.succeed()
    assert (await session.final(command.run.attempt_id)).HasField("succeeded")
    assert host.run_count == 2


async def test_a_lost_lease_stops_the_work_without_a_report(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """The attempt is somebody else's: stopped, forgotten, its room free."""
    host = FakeHost()
    agent = await start_agent(host)
    command = run_command(1)
    session, run = await begun(plane, host, command)
    folder = run.order.work_folder
    assert folder.is_dir()
    session.answers_heartbeats = False
    await session.until(lambda: bool(session.heartbeats))
    lease = pb.LeaseReference(attempt_id=command.run.attempt_id, lease_version=1)
    number = session.heartbeats[-1].number
    session.send(heartbeat_reply=pb.HeartbeatReply(number=number, lost=[lease]))
    session.answers_heartbeats = True
    await host.until_ended(command.run.attempt_id)
    assert (await session.expect("job_credit")).job_credit.credit_count == 1
    assert agent.agent.runner.held() == ()
    assert not session.events
    await session.until(lambda: not folder.exists())


async def test_a_run_without_lease_time_waits_for_a_renewal(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """With TTL/6 or less left the work does not begin until a heartbeat renews it."""
    host = FakeHost()
    await start_agent(host)
    session = await plane.session()
    session.renews = False
    session.welcome(ttl_s=3.0, beat_s=0.05)
    command = run_command(1, remaining_s=0.5)
    session.commands(command)
    await session.until(lambda: bool(session.heartbeats) and bool(session.heartbeats[-1].leases))
    assert host.run_count == 0
    session.renews = True
    (await host.running(command.run.attempt_id)).succeed()
    await session.final(command.run.attempt_id)


async def test_after_a_restart_work_waits_for_keep_and_resumes(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """F01: with the checkpoint that was durable, in the same folder, once Welcome says KEEP."""
    agent = await start_agent(FakeHost(resumable=True))
    command = run_command(1)
    session, run = await begun(plane, agent.host, command)
    await run.services.save_checkpoint('{"page":7}')
    (run.order.work_folder / "kept").write_text("x")
    await agent.crash()
    host = FakeHost(resumable=True)
    await start_agent(host)
    second = await plane.session()
    assert second.hello.incarnation_id == session.hello.incarnation_id
    assert second.hello.boot_id != session.hello.boot_id
    assert [one.attempt_id for one in second.hello.held_attempts] == [command.run.attempt_id]
    assert host.run_count == 0
    second.welcome(*second.verdict("KEEP"))
    again = await host.running(command.run.attempt_id)
    assert again.order.checkpoint_json == '{"page":7}'
    assert (again.order.work_folder / "kept").exists()
    again.succeed()
    event = await second.final(command.run.attempt_id)
    assert event.boot_id == second.hello.boot_id


async def test_after_a_restart_work_that_cannot_resume_is_told_as_failed(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """Innocent and retryable: the server runs it again."""
    agent = await start_agent()
    command = run_command(1)
    await begun(plane, agent.host, command)
    await agent.crash()
    host = FakeHost()
    await start_agent(host)
    second = await plane.session()
    second.welcome(*second.verdict("KEEP"))
    event = await second.final(command.run.attempt_id)
    assert event.failed.failure.reason == "AGENT_RESTARTED"
    assert event.failed.failure.infrastructure
    assert event.failed.failure.retryable
    assert host.run_count == 0


async def test_after_a_restart_work_that_had_not_begun_just_begins(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """Waiting for a slot is no beginning: nothing is lost, nothing is run twice."""
    agent = await start_agent()
    commands = [run_command(number) for number in (1, 2, 3)]
    session = await plane.session()
    session.welcome()
    session.commands(*commands)
    await agent.host.running(commands[1].run.attempt_id)
    await agent.crash()
    host = FakeHost()
    await start_agent(host)
    second = await plane.session()
    second.welcome(*second.verdict("KEEP"))
    (await host.running(commands[2].run.attempt_id)).succeed()
    assert (await second.final(commands[2].run.attempt_id)).HasField("succeeded")


async def test_after_a_restart_cancelled_and_forgotten_work_never_runs(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """CANCEL is reported as stopped; FORGET is dropped without a word, with its folder."""
    agent = await start_agent(FakeHost(resumable=True))
    session = await plane.session()
    session.welcome()
    cancelled, forgotten = run_command(1), run_command(2)
    session.commands(cancelled, forgotten)
    await agent.host.running(cancelled.run.attempt_id)
    run = await agent.host.running(forgotten.run.attempt_id)
    await agent.crash()
    host = FakeHost(resumable=True)
    agent = await start_agent(host)
    second = await plane.session()
    verdicts = {one.attempt_id: one for one in second.verdict("CANCEL")}
    verdicts[forgotten.run.attempt_id].verdict = pb.VERDICT_FORGET
    second.welcome(*verdicts.values())
    event = await second.final(cancelled.run.attempt_id)
    assert event.stopped.stop_reason == "CANCEL"
    await agent.agent.events.wait_empty()
    await second.until(lambda: agent.agent.runner.held() == ())
    assert not run.order.work_folder.exists()
    assert host.run_count == 0
    assert {one.attempt_id for one in second.events} == {cancelled.run.attempt_id}


async def test_artifacts_are_told_ahead_of_the_result_and_counted_once(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """1,001 uploads, one of them twice: lists of 500 at most, then a success that counts 1,001."""
    host = FakeHost()
    await start_agent(host)
    command = run_command(1)
    session, run = await begun(plane, host, command)
    listed = [
        UploadedArtifact(f"page-{number}.png", f"ref-{number}", 5, bytes(32), "image/png")
        for number in range(1_001)
    ]
    await run.services.uploaded(listed)
    await run.services.uploaded(listed[:1])
    run.outcome.set_result(Succeeded("{}", "collection", 1_001, Usage(5, 6, 7)))
    event = await session.final(command.run.attempt_id)
    assert event.succeeded.artifact_count == 1_001
    assert event.succeeded.collection_ref == "collection"
    assert event.succeeded.usage.memory_bytes_max == 6
    kinds = [one.WhichOneof("fact") for one in session.events]
    assert kinds == [*["artifacts_reported"] * 4, "succeeded"]
    sizes = [len(one.artifacts_reported.artifacts) for one in session.events[:4]]
    assert sizes == [500, 500, 1, 1]


async def test_a_result_with_unreported_artifacts_is_a_failure(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """A success never names more than was listed."""
    host = FakeHost()
    await start_agent(host)
    command = run_command(1)
    session, run = await begun(plane, host, command)
    run.succeed(artifact_count=2)
    event = await session.final(command.run.attempt_id)
    assert event.failed.failure.reason == "ARTIFACT_COUNT_MISMATCH"


async def test_failures_are_cut_to_what_the_contract_takes(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """Long messages and text that is no UTF-8 never break the stream."""
    host = FakeHost()
    await start_agent(host)
    command = run_command(1)
    session, run = await begun(plane, host, command)
    failure = WorkFailure(
        "BROKEN",
        "m" * 9_000 + "\ud800",
        retryable=False,
        next_retry_delay_s=2.5,
        log_tail="a" + "l" * 9_000,
    )
    run.outcome.set_result(Failed(failure, Usage()))
    told = (await session.final(command.run.attempt_id)).failed.failure
    assert (told.reason, len(told.message), len(told.log_tail)) == ("BROKEN", 4_096, 8_192)
    assert told.next_retry_delay.ToNanoseconds() == 2_500_000_000


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
