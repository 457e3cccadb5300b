"""Attempts under their leases: stops, verdicts, restarts, checkpoints, artifacts, the end."""

import asyncio

from node_agent.core.execution.ports import (
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
    cancel_command,
    extend_command,
    run_command,
)
from tests.integration.node_agent.core.harness import FakeHost, begun


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
