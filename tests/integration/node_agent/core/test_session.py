"""The session against a scripted control plane: order of work, repeats, losses, endings."""

import psutil
import pytest

from foundation.errors import AbortedError, FailedPreconditionError, UnauthenticatedError
from node_agent.errors import SessionRefusedError
from tdp.node.v1 import node_service_pb2 as pb
from tests.integration.node_agent.core.conftest import StartAgent
from tests.integration.node_agent.core.control_plane import (
    FakeControlPlane,
    cancel_command,
    drain_command,
    run_command,
    undrain_command,
)
from tests.integration.node_agent.core.harness import FakeHost


async def test_a_command_is_acked_run_and_told(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """The plain path: Hello, Welcome, RUN, ack, result, credit, and nothing left in the journal."""
    agent = await start_agent()
    session = await plane.session()
    assert session.hello.slot_count == 6
    assert session.hello.job_credits == 6
    assert session.hello.ready
    assert session.hello.inventory.memory_bytes > 0
    assert (session.hello.slot_count, session.hello.process_slot_count) == (6, 2)
    declared = {one.name: one.inline for one in session.hello.capabilities}
    assert declared == {"test.work": False, "test.echo": True}
    session.welcome()
    command = run_command(1, capability="test.echo", input_json='{"text":"é"}')
    session.commands(command)
    ack = await session.expect("command_ack")
    assert ack.command_ack.sequence == 1
    event = await session.final(command.run.attempt_id)
    assert event.succeeded.output_json == '{"text":"é"}'
    assert event.lease_version == 1
    assert event.incarnation_id == session.hello.incarnation_id
    assert event.boot_id == session.hello.boot_id
    await agent.agent.events.wait_empty()
    assert agent.agent.runner.held() == ()
    assert (await session.expect("job_credit")).job_credit.credit_count == 1


async def test_the_first_heartbeat_follows_welcome_at_once(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """It proves to the server that Welcome arrived; later ones count up."""
    await start_agent()
    session = await plane.session()
    session.welcome(beat_s=3600.0, ttl_s=3600.0 * 12)
    first = (await session.expect("heartbeat")).heartbeat
    assert first.number == 1
    assert first.ready
    assert first.disk_bytes > 0
    session.end()
    second = await plane.session()
    second.welcome(beat_s=0.02)
    await second.until(lambda: len(second.heartbeats) >= 3)
    assert [one.number for one in second.heartbeats[:3]] == [1, 2, 3]


async def test_a_heartbeat_tells_how_busy_the_machine_is(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """Cores in use since the last one, memory and disk that are left: for people and scheduling."""
    await start_agent()
    session = await plane.session()
    session.welcome()
    await session.until(lambda: bool(session.heartbeats))
    heartbeat = session.heartbeats[-1]
    cores = psutil.cpu_count() or 1
    assert 0 <= heartbeat.cpu_used_millis <= cores * 1_000
    assert 0 < heartbeat.memory_available_bytes <= session.hello.inventory.memory_bytes
    assert heartbeat.disk_bytes > 0


async def test_one_ack_answers_a_whole_batch(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """Commands are stored in one transaction and acknowledged by the highest sequence alone."""
    await start_agent()
    session = await plane.session()
    session.welcome()
    session.commands(*(run_command(number, capability="test.echo") for number in (3, 5, 9)))
    assert (await session.expect("command_ack")).command_ack.sequence == 9
    await session.until(lambda: len(session.events) == 3)
    assert not [one for one in session.received if one.WhichOneof("message") == "command_ack"]


async def test_repeated_commands_change_nothing_and_are_acked_again(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """F04: the same batch four times runs its attempt once."""
    host = FakeHost()
    agent = await start_agent(host)
    session = await plane.session()
    session.welcome()
    command = run_command(4)
    for _ in range(4):
        session.commands(command)
    run = await host.running(command.run.attempt_id)
    session.commands(command)
    assert (await session.expect("command_ack")).command_ack.sequence == 4
    run.succeed()
    await session.final(command.run.attempt_id)
    await agent.agent.events.wait_empty()
    later = run_command(5)
    session.commands(command)
    session.commands(later)
    await host.running(later.run.attempt_id)
    assert host.run_count == 2, "one that is over and forgotten is not run again either"


async def test_unacked_commands_come_again_in_the_next_session(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """A lost ack: Hello names the watermark and the attempt, and a repeat is only acked."""
    host = FakeHost()
    await start_agent(host)
    session = await plane.session()
    session.welcome()
    command = run_command(7)
    session.commands(command)
    run = await host.running(command.run.attempt_id)
    session.end()
    second = await plane.session()
    assert second.hello.last_command_sequence == 7
    assert second.hello.job_credits == 5
    (held,) = second.hello.held_attempts
    assert (held.attempt_id, held.lease_version) == (command.run.attempt_id, 1)
    assert not held.finished
    second.welcome(*second.verdict("KEEP"))
    second.commands(command)
    assert (await second.expect("command_ack")).command_ack.sequence == 7
    run.succeed()
    await second.final(command.run.attempt_id)
    assert host.run_count == 1


async def test_unacked_events_are_sent_again_under_their_ids(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """F02: an event whose ack is lost is repeated in the next session, and held until then."""
    agent = await start_agent()
    session = await plane.session()
    session.welcome()
    session.acks_events = False
    command = run_command(1, capability="test.echo")
    session.commands(command)
    event = await session.final(command.run.attempt_id)
    session.end()
    second = await plane.session()
    (held,) = second.hello.held_attempts
    assert held.finished
    assert second.hello.job_credits == 6, "a finished attempt takes no room"
    second.welcome(*second.verdict("FORGET"))
    again = await second.final(command.run.attempt_id)
    assert again.event_id == event.event_id
    await agent.agent.events.wait_empty()
    assert agent.agent.runner.held() == ()


async def test_an_event_that_the_server_leaves_out_is_sent_again(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """What could not be stored is missing in the ack; the rest is delivered."""
    agent = await start_agent()
    session = await plane.session()
    session.welcome()
    session.acks_events = False
    one, other = (run_command(number, capability="test.echo") for number in (1, 2))
    session.commands(one, other)
    await session.until(lambda: len({event.attempt_id for event in session.events}) == 2)
    left_out = session.events[0]
    session.ack([event for event in session.events if event.event_id != left_out.event_id])
    session.acks_events = True
    await session.until(
        lambda: [event.event_id for event in session.events].count(left_out.event_id) == 2
    )
    await agent.agent.events.wait_empty()


async def test_an_event_without_effect_is_delivered_all_the_same(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """F06: a fenced result is stored at the server, so the agent lets go of it."""
    agent = await start_agent()
    session = await plane.session()
    session.welcome()
    session.acks_events = False
    command = run_command(1, capability="test.echo")
    session.commands(command)
    event = await session.final(command.run.attempt_id)
    result = pb.EventResult(event_id=event.event_id, accepted=False, reason="LEASE_LOST")
    session.send(event_ack=pb.EventAck(results=[result]))
    await agent.agent.events.wait_empty()
    assert agent.agent.runner.held() == ()


@pytest.mark.parametrize("reason", ["SESSION_REPLACED", "STALE_GENERATION"])
async def test_a_replaced_session_is_followed_by_another(
    plane: FakeControlPlane, start_agent: StartAgent, reason: str
) -> None:
    """Neither ending is fatal: the agent says Hello again with what it holds."""
    host = FakeHost()
    await start_agent(host)
    session = await plane.session()
    session.welcome()
    command = run_command(1)
    session.commands(command)
    run = await host.running(command.run.attempt_id)
    error: AbortedError | FailedPreconditionError = AbortedError("replaced", reason=reason)
    if reason == "STALE_GENERATION":
        error = FailedPreconditionError("stale", reason=reason)
    session.end(error)
    second = await plane.session()
    assert [one.attempt_id for one in second.hello.held_attempts] == [command.run.attempt_id]
    second.welcome(*second.verdict("KEEP"))
    assert not run.stop.is_set()
    run.succeed()
    await second.final(command.run.attempt_id)


async def test_a_refused_credential_ends_the_process(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """UNAUTHENTICATED is fatal, and says what to do."""
    plane.refusal = UnauthenticatedError("no such credential")
    agent = await start_agent()
    with pytest.raises(ExceptionGroup) as caught:
        await agent.ended()
    (error,) = caught.value.exceptions
    assert isinstance(error, SessionRefusedError)
    assert "enrol again" in error.message


async def test_go_away_moves_the_agent_and_keeps_its_work(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """F21: it leaves in order within the time, and no attempt fails."""
    host = FakeHost()
    await start_agent(host)
    session = await plane.session()
    session.welcome()
    command = run_command(1)
    session.commands(command)
    run = await host.running(command.run.attempt_id)
    away = pb.GoAway(reason="the server is about to stop")
    away.reconnect_within.FromMilliseconds(50)
    session.send(go_away=away)
    second = await plane.session()
    await session.left.wait()
    second.welcome(*second.verdict("KEEP"))
    assert not run.stop.is_set()
    run.succeed()
    await second.final(command.run.attempt_id)


async def test_a_server_that_answers_no_heartbeat_is_left(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """F20: after a third of the lease the agent tries elsewhere, with lease time left."""
    await start_agent()
    session = await plane.session()
    session.answers_heartbeats = False
    session.welcome(ttl_s=0.6, beat_s=0.05)
    second = await plane.session()
    assert second.generation == 2
    await session.left.wait()


async def test_an_oversized_event_is_not_written_and_the_stream_survives(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """F23: over the server's limit nothing is written; other events pass."""
    plane.message_bytes_max = 2_000
    host = FakeHost()
    await start_agent(host)
    session = await plane.session()
    session.welcome()
    big, small = run_command(1), run_command(2)
    session.commands(big, small)
    (await host.running(big.run.attempt_id)).succeed('"' + "x" * 3_000 + '"')
    (await host.running(small.run.attempt_id)).succeed()
    await session.final(small.run.attempt_id)
    await session.until(lambda: session.heartbeats[-1].outbox_depth == 1)
    assert {one.attempt_id for one in session.events} == {small.run.attempt_id}


async def test_drain_refuses_new_work_over_restarts_until_undrain(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """The mark is durable; a RUN that comes all the same is refused with a failed event."""
    host = FakeHost()
    agent = await start_agent(host)
    session = await plane.session()
    session.welcome()
    first, late = run_command(1), run_command(3)
    session.commands(first, drain_command(2), late)
    ack = await session.expect("command_ack")
    assert list(ack.command_ack.refused_command_ids) == [late.command_id]
    refused = await session.final(late.run.attempt_id)
    assert refused.failed.failure.reason == "AGENT_DRAINING"
    assert refused.failed.failure.infrastructure
    await session.until(lambda: session.heartbeats[-1].not_ready_reason == "DRAINING")
    (await host.running(first.run.attempt_id)).succeed()
    await session.final(first.run.attempt_id)
    await agent.stop()
    await start_agent()
    second = await plane.session()
    assert not second.hello.ready
    assert second.hello.not_ready_reason == "DRAINING"
    second.welcome()
    second.commands(undrain_command(4))
    await second.until(lambda: bool(second.heartbeats) and second.heartbeats[-1].ready)


async def test_an_unknown_capability_is_refused(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """It is stored as refused, told as innocent and retryable, and its credit comes back."""
    await start_agent()
    session = await plane.session()
    session.welcome()
    command = run_command(1, capability="test.unknown")
    session.commands(command)
    event = await session.final(command.run.attempt_id)
    assert event.failed.failure.reason == "CAPABILITY_UNKNOWN"
    assert event.failed.failure.retryable
    assert (await session.expect("job_credit")).job_credit.credit_count == 1


async def test_orders_about_strangers_are_acked_and_ignored(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """F05: a CANCEL of an attempt that is not held, or over, moves the watermark and no more."""
    await start_agent()
    session = await plane.session()
    session.welcome()
    stranger = run_command(1).run.attempt_id
    session.commands(cancel_command(1, stranger), pb.Command(sequence=2, command_id=stranger))
    assert (await session.expect("command_ack")).command_ack.sequence == 2
    assert not session.events


async def test_progress_is_told_once_a_second_at_most(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """Many reports in a moment become one message, and none goes back."""
    host = FakeHost()
    await start_agent(host)
    session = await plane.session()
    session.welcome()
    command = run_command(1)
    session.commands(command)
    run = await host.running(command.run.attempt_id)
    await run.services.progress(10, "ten")
    first = (await session.expect("progress")).progress.attempts[0]
    assert (first.progress_percent, first.message) == (10, "ten")
    for percent in (20, 40, 30):
        await run.services.progress(percent, f"{percent} of 100")
    second = (await session.expect("progress")).progress.attempts[0]
    assert second.progress_percent == 40
    run.succeed()
    await session.final(command.run.attempt_id)
