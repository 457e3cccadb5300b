"""The session protocol on a real gRPC server, with a node that says what the test says."""

import asyncio

import pytest

from control_plane.core.nodes.domain import EventFate
from control_plane.core.nodes.session import EventsStored
from control_plane.failpoints import CONTROL_PLANE_FAILPOINTS
from control_plane.limits import OUTGOING_COUNT_MAX
from foundation.errors import ErrorCode, TdpError
from foundation.failpoints import install_failpoints, uninstall_failpoints
from tdp.node.v1 import node_service_pb2 as pb
from tests.integration.control_plane.nodes.replica import (
    PATIENCE_S,
    Replica,
    node_of,
    running,
    success_message,
)
from tests.integration.control_plane.nodes.world import IDS, World


async def test_hello_is_answered_and_shown(world: World) -> None:
    """Welcome carries generation, figures and window; the node's row shows the session."""
    node_id = await world.add_node()
    async with running(world) as replica, node_of(replica, node_id) as node:
        declared = [
            pb.CapabilityDeclaration(name="noop", version="1", inline=True),
            pb.CapabilityDeclaration(name="work", version="1"),
        ]
        welcome = await node.hello(slot_count=3, process_slot_count=2, capabilities=declared)
        assert (welcome.generation, welcome.command_window) == (1, 32)
        assert welcome.lease_ttl.ToNanoseconds() == int(world.figures.lease_ttl_s * 1e9)
        row = await world.fetch_node(node_id)
        assert (row["runtime"], row["slot_count"], row["generation"]) == ("READY", 3, 1)
        assert row["process_slot_count"] == 2
        kinds = await world.rows("select capability, inline from node_capabilities order by 1")
        assert kinds == [("noop", True), ("work", False)]
        assert str(row["replica_id"]) == world.replica_id
        await node.heartbeat(1)
        assert (await node.hear_of("heartbeat_reply")).number == 1
    row = await world.fetch_node(node_id)
    assert (row["runtime"], row["replica_id"]) == ("SILENT", None)


async def test_a_run_is_sent_acked_done_and_its_event_acked_by_id(world: World) -> None:
    """The whole way of one attempt over the stream; a repeated event gets the same answer."""
    node_id = await world.add_node()
    async with running(world) as replica, node_of(replica, node_id) as node:
        await node.hello()
        attempt = await world.new_attempt(node_id)
        replica.hints.nodes.add([node_id])
        (command,) = (await node.hear_of("commands")).commands
        assert command.run.attempt_id == attempt.attempt_id
        assert command.run.input_json == '{"a":1}'
        assert 0 < command.run.lease_remaining.ToNanoseconds() <= 3e9
        assert command.run.last_heartbeat_number == 0
        await node.say(command_ack=pb.CommandAck(sequence=command.sequence))
        done = success_message(attempt)
        await node.report(done, done)
        results = (await node.hear_of("event_ack")).results
        assert [(one.event_id, one.accepted) for one in results] == [(done.event_id, True)] * 2
        await node.report(done)
        (again,) = (await node.hear_of("event_ack")).results
        assert again.accepted
    assert (await world.fetch_attempt(attempt))["accepted_at"] is not None
    assert (await world.fetch_step(attempt))["status"] == "SUCCEEDED"
    assert await world.rows("select status from node_commands") == [("ACKED",)]
    assert await world.value("select duplicate_count from attempt_inbox") == 2


async def test_a_newer_session_replaces_an_older_one(world: World) -> None:
    """The older stream ends with ABORTED and SESSION_REPLACED; the newer one goes on."""
    node_id = await world.add_node()
    async with (
        running(world) as replica,
        node_of(replica, node_id) as old,
        node_of(replica, node_id) as new,
    ):
        await old.hello()
        assert (await new.hello()).generation == 2
        error = await old.ended_with()
        assert (error.code, error.reason) == (ErrorCode.ABORTED, "SESSION_REPLACED")
        await new.heartbeat(1)
        assert (await new.hear_of("heartbeat_reply")).number == 1


async def test_a_session_replaced_on_another_replica_ends_with_the_next_tick(
    world: World,
) -> None:
    """Another replica's newer session is noticed by the renewal statement; nothing is lost."""
    node_id = await world.add_node()
    async with running(world) as replica, node_of(replica, node_id) as old:
        await old.hello()
        attempt = await world.new_attempt(node_id)
        await World(world.database).open(node_id)
        await old.heartbeat(1, attempt)
        error = await old.ended_with()
        assert error.reason == "SESSION_REPLACED"
        assert not any(one.HasField("heartbeat_reply") for one in old.received)


@pytest.mark.parametrize("generation", [0, 7])
async def test_a_message_of_another_generation_ends_the_stream(
    world: World, generation: int
) -> None:
    """A stale or missing generation is refused with STALE_GENERATION."""
    node_id = await world.add_node()
    async with running(world) as replica, node_of(replica, node_id) as node:
        await node.hello()
        node.generation = generation
        await node.heartbeat(1)
        error = await node.ended_with()
        assert (error.code, error.reason) == (ErrorCode.FAILED_PRECONDITION, "STALE_GENERATION")


async def test_a_credential_speaks_for_its_own_node_only(world: World) -> None:
    """Hello of another node is refused, and so are events about another node's attempts."""
    mine, other = await world.add_node("mine"), await world.add_node("other")
    attempt = await world.new_attempt(other)
    async with running(world) as replica:
        async with node_of(replica, other, token_of=mine) as node:
            with pytest.raises(TdpError) as caught:
                await node.hello()
            assert (caught.value.code, caught.value.reason) == (
                ErrorCode.PERMISSION_DENIED,
                "NODE_MISMATCH",
            )
        async with node_of(replica, mine) as node:
            await node.hello()
            await node.report(success_message(attempt))
            (result,) = (await node.hear_of("event_ack")).results
            assert (result.accepted, result.reason) == (False, "NODE_MISMATCH")
            await node.heartbeat(1, attempt)
            reply = await node.hear_of("heartbeat_reply")
            assert [one.attempt_id for one in reply.lost] == [attempt.attempt_id]


async def test_a_stream_without_hello_is_ended(world: World) -> None:
    """Hello has to come first and in time."""
    node_id = await world.add_node()
    async with running(world, hello_timeout_s=0.05) as replica:
        async with node_of(replica, node_id) as silent:
            assert (await silent.ended_with()).reason == "HELLO_MISSING"
        async with node_of(replica, node_id) as rude:
            await rude.heartbeat(1)
            assert (await rude.ended_with()).reason == "HELLO_MISSING"


async def test_credits_and_window_hold_runs_back_in_order(world: World) -> None:
    """No RUN beyond the credits; each new credit lets the next one through, in sequence."""
    node_id = await world.add_node()
    async with running(world) as replica, node_of(replica, node_id) as node:
        await node.hello(job_credits=1)
        attempts = [await world.new_attempt(node_id) for _ in range(3)]
        replica.hints.nodes.add([node_id])
        seen = list((await node.hear_of("commands")).commands)
        assert [one.sequence for one in seen] == [1]
        await node.say(command_ack=pb.CommandAck(sequence=1))
        await node.say(job_credit=pb.JobCredit(credit_count=2))
        while len(seen) < 3:
            seen += (await node.hear_of("commands")).commands
        assert [one.run.attempt_id for one in seen] == [one.attempt_id for one in attempts]


async def test_unacked_commands_are_sent_again_after_a_reconnect(world: World) -> None:
    """What the node's journal lacks comes again with the same id; what it has is not sent."""
    node_id = await world.add_node()
    first = await world.new_attempt(node_id)
    second = await world.new_attempt(node_id)
    async with running(world) as replica:
        async with node_of(replica, node_id) as node:
            await node.hello()
            sent = list((await node.hear_of("commands")).commands)
            assert len(sent) == 2
        async with node_of(replica, node_id) as node:
            # The first was stored, but its ack was lost.
            await node.hello(first, last_command_sequence=1)
            (again,) = (await node.hear_of("commands")).commands
            assert again.command_id == sent[1].command_id
            assert again.run.attempt_id == second.attempt_id
    assert (await world.fetch_attempt(first))["status"] == "ACCEPTED"


async def test_verdicts_keep_cancel_and_forget(world: World) -> None:
    """Welcome tells what to do with each attempt that the node holds."""
    node_id, other = await world.add_node(), await world.add_node("other")
    kept, canceled, ended = [await world.new_attempt(node_id) for _ in range(3)]
    foreign = await world.new_attempt(other)
    await world.database.fetch(
        "update attempts set stop_reason = 'CANCEL' where attempt_id = $1", canceled.attempt_id
    )
    async with running(world) as replica, node_of(replica, node_id) as node:
        await node.hello(ended)
        await node.report(success_message(ended))
        await node.hear_of("event_ack")
        async with node_of(replica, node_id) as newer:
            welcome = await newer.hello(kept, canceled, ended, foreign, last_command_sequence=3)
            verdicts = {one.attempt_id: one.verdict for one in welcome.verdicts}
    assert verdicts == {
        kept.attempt_id: pb.VERDICT_KEEP,
        canceled.attempt_id: pb.VERDICT_CANCEL,
        ended.attempt_id: pb.VERDICT_FORGET,
        foreign.attempt_id: pb.VERDICT_FORGET,
    }


async def test_work_that_a_restarted_agent_goes_on_with_is_recorded(world: World) -> None:
    """A new boot that keeps an attempt leaves a mark on the timeline; a reconnect leaves none."""
    node_id = await world.add_node()
    attempt = await world.new_attempt(node_id)
    boots = [IDS.new_id(), IDS.new_id()]
    async with running(world) as replica:
        for boot_id in (boots[0], boots[0], boots[1]):
            async with node_of(replica, node_id) as node:
                await node.hello(attempt, last_command_sequence=1, boot_id=boot_id)
    marks = await world.database.fetch(
        "select attempt_id::text, detail from timeline where type = 'attempt.resumed'"
    )
    assert [one["attempt_id"] for one in marks] == [attempt.attempt_id]
    assert boots[1] in marks[0]["detail"]


async def test_an_accepted_attempt_that_hello_omits_is_lost_once_confirmed(
    world: World,
) -> None:
    """Not at Hello, which may be old, but with the first heartbeat of its session."""
    node_id = await world.add_node()
    async with running(world) as replica:
        attempt = await world.new_attempt(node_id)
        async with node_of(replica, node_id) as node:
            await node.hello()
            (command,) = (await node.hear_of("commands")).commands
            await node.say(command_ack=pb.CommandAck(sequence=command.sequence))
            await node.heartbeat(1, attempt)
            await node.hear_of("heartbeat_reply")
        async with node_of(replica, node_id) as node:
            # A new journal: it knows no command and no attempt.
            await node.hello(incarnation_id=IDS.new_id())
            assert (await world.fetch_attempt(attempt))["status"] == "ACCEPTED"
            await node.heartbeat(1)
            await node.hear_of("heartbeat_reply")
            assert (await world.fetch_attempt(attempt))["status"] == "LOST"
    step = await world.fetch_step(attempt)
    assert (step["status"], step["attempt_number"], step["loss_count"]) == ("READY", 2, 1)
    assert (await world.fetch_node(node_id))["running_count"] == 0


async def _expire_now(world: World, *attempts: str) -> None:
    await world.database.fetch(
        "update attempts set lease_expires_at = tdp_now() - interval '1 second'"
        " where attempt_id = any($1::uuid[])",
        list(attempts),
    )


async def _until(replica: Replica, world: World, statement: str, *arguments: object) -> None:
    """Wait for hints to the engine until the statement says true."""
    async with asyncio.timeout(PATIENCE_S):
        while not await world.value(statement, *arguments):
            await replica.hints.engine.wait(0.2)


async def test_a_zombies_late_result_is_fenced_and_kept(world: World) -> None:
    """F06: the lease expires, attempt 2 runs, and attempt 1's late success changes nothing."""
    node_id = await world.add_node()
    async with running(world, expiry=True) as replica, node_of(replica, node_id) as node:
        attempt = await world.new_attempt(node_id)
        await node.hello()
        await node.hear_of("commands")
        await _expire_now(world, attempt.attempt_id)
        await _until(replica, world, "select status = 'LOST' from attempts where number = 1")
        step = await world.fetch_step(attempt)
        assert (step["status"], step["attempt_number"]) == ("READY", 2)
        # The node is told to stop what it still runs.
        replica.hints.nodes.add([node_id])
        (cancel,) = (await node.hear_of("commands")).commands
        assert cancel.cancel.attempt_id == attempt.attempt_id
        second = await world.dispatch(attempt.execution_id, node_id)
        await node.report(success_message(attempt))
        (result,) = (await node.hear_of("event_ack")).results
        assert (result.accepted, result.reason) == (False, "LEASE_LOST")
        await node.report(success_message(second))
        (result,) = (await node.hear_of("event_ack")).results
        assert result.accepted
    assert await world.rows("select number, status from attempts order by 1") == [
        (1, "LOST"),
        (2, "SUCCEEDED"),
    ]
    kept = await world.value("select payload from attempt_inbox where not accepted")
    assert '{\\"ok\\":true}' in kept


async def test_a_lost_reply_is_made_up_for_by_the_retry(world: World) -> None:
    """F02: the event is stored, its ack is lost, the node sends it again and is answered."""
    node_id = await world.add_node()
    attempt = await world.new_attempt(node_id)
    done = success_message(attempt)
    install_failpoints(
        CONTROL_PLANE_FAILPOINTS, {"TDP_FAILPOINTS": "accept.reply.before=drop_reply@1"}
    )
    try:
        async with running(world) as replica:
            async with node_of(replica, node_id) as node:
                await node.hello()
                await node.report(done)
                assert (await node.ended_with()).code is ErrorCode.UNAVAILABLE
            async with node_of(replica, node_id) as node:
                await node.hello(attempt)
                await node.report(done)
                (result,) = (await node.hear_of("event_ack")).results
                assert result.accepted
    finally:
        uninstall_failpoints()
    assert await world.value("select count(*) from attempt_inbox") == 1


async def test_progress_is_folded_and_reaches_the_step(world: World) -> None:
    """The highest report counts, of the right node only, and wakes the engine."""
    node_id = await world.add_node()
    attempt = await world.new_attempt(node_id)
    async with running(world) as replica, node_of(replica, node_id) as node:
        await node.hello()
        for percent in (10, 40, 30):
            await node.say(
                progress=pb.ProgressReport(
                    attempts=[
                        pb.AttemptProgress(
                            attempt_id=attempt.attempt_id,
                            lease_version=1,
                            progress_percent=percent,
                        )
                    ]
                )
            )
        await _until(replica, world, "select progress_percent = 40 from steps")
    row = await world.fetch_attempt(attempt)
    assert (row["status"], row["progress_percent"]) == ("RUNNING", 40)


async def test_a_silent_node_is_marked_and_comes_back(world: World) -> None:
    """Without heartbeats for the scheduling TTL the row says SILENT, with the next one READY."""
    node_id = await world.add_node()
    async with running(world) as replica, node_of(replica, node_id) as node:
        await node.hello()
        async with asyncio.timeout(PATIENCE_S):
            while (await world.fetch_node(node_id))["runtime"] != "SILENT":
                await replica.hints.capacity.wait(0.2)
        await node.heartbeat(1)
        await node.hear_of("heartbeat_reply")
        async with asyncio.timeout(PATIENCE_S):
            while (await world.fetch_node(node_id))["runtime"] != "READY":
                await replica.hints.capacity.wait(0.2)


async def test_draining_says_go_away_and_refuses_new_sessions(world: World) -> None:
    """Nodes are asked to move before the server stops, and new ones are sent elsewhere."""
    node_id = await world.add_node()
    async with (
        running(world) as replica,
        node_of(replica, node_id) as node,
        node_of(replica, node_id) as late,
    ):
        await node.hello()
        await replica.sessions.go_away()
        assert (await node.hear_of("go_away")).reconnect_within.ToNanoseconds() > 0
        with pytest.raises(TdpError) as caught:
            await late.hello()
        assert (caught.value.code, caught.value.reason) == (
            ErrorCode.UNAVAILABLE,
            "REPLICA_DRAINING",
        )
        await node.call.done_writing()


async def test_hints_for_nodes_elsewhere_are_passed_on(world: World) -> None:
    """A node that is not in session here is woken on the replica that has it."""
    async with running(world) as replica:
        stranger = IDS.new_id()
        replica.hints.nodes.add([stranger])
        async with asyncio.timeout(PATIENCE_S):
            while not replica.remote.woken:
                await replica.hints.capacity.wait(0.05)
        assert replica.remote.woken == [stranger]
        replica.live.wake([stranger])
        assert replica.hints.nodes.take(10) == []


async def test_a_node_that_does_not_read_is_cut_off_and_others_go_on(world: World) -> None:
    """F22: what waits for it is bounded; its session ends, another node's is answered."""
    deaf_id, other_id = await world.add_node("deaf"), await world.add_node("other")
    async with (
        running(world, write_stall_s=0.3) as replica,
        node_of(replica, deaf_id) as deaf,
        node_of(replica, other_id) as other,
    ):
        await deaf.hello()
        await other.hello()
        session = replica.live.get(deaf_id)
        assert session is not None
        big = "x" * 200_000
        fates = EventsStored([EventFate(IDS.new_id(), accepted=False, reason=big)])
        number = 0
        while not session.is_ended:
            session.offer(fates)
            number += 1
            await other.heartbeat(number)
            assert (await other.hear_of("heartbeat_reply")).number == number
        error = await session.wait_ended()
        assert number <= OUTGOING_COUNT_MAX + 100
        assert session.outgoing_count == 0
        assert error is None or error.reason == "NODE_NOT_READING"
        await deaf.close()


async def test_an_oversized_message_is_not_written_and_the_stream_lives(world: World) -> None:
    """F23: what no peer would take is dropped before it is written."""
    node_id = await world.add_node()
    async with running(world) as replica, node_of(replica, node_id) as node:
        await node.hello()
        # The session is live once its first heartbeat is answered.
        await node.heartbeat(1)
        await node.hear_of("heartbeat_reply")
        session = replica.live.get(node_id)
        assert session is not None
        session.offer(
            EventsStored([EventFate(IDS.new_id(), accepted=False, reason="x" * 5_000_000)])
        )
        await node.heartbeat(2)
        assert (await node.hear_of("heartbeat_reply")).number == 2
        assert not any(one.HasField("event_ack") for one in node.received)


async def test_an_event_that_postgresql_refuses_is_stored_as_rejected(world: World) -> None:
    """A NUL in a path strikes that event only, which is acked as rejected, once and for all."""
    node_id = await world.add_node()
    attempt = await world.new_attempt(node_id)
    async with running(world) as replica, node_of(replica, node_id) as node:
        await node.hello(attempt)
        wrong = success_message(attempt)
        wrong.artifacts_reported.artifacts.add(
            relative_path="a\x00b", resource_ref="r", sha256=b"h" * 32
        )
        for _ in range(2):
            await node.report(wrong, success_message(attempt))
            results = (await node.hear_of("event_ack")).results
            assert (results[0].accepted, results[0].reason) == (False, "EVENT_REJECTED")
    assert (await world.fetch_attempt(attempt))["status"] == "SUCCEEDED"
    assert await world.value("select count(*) from attempt_inbox where not accepted") == 2
