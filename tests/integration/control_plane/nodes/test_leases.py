"""Leases in the database: renewal, expiry, the guard, run time-outs, progress."""

import asyncio

from control_plane.core.nodes.domain import (
    CommandDemand,
    HeartbeatList,
    NodeState,
    ProgressMark,
    SessionRef,
    lease,
)
from control_plane.core.scheduling.domain import Runtime
from foundation.postgres.pool import Database
from tests.integration.control_plane.nodes.world import IDS, Attempt, World


async def _session(world: World, name: str = "node-1") -> SessionRef:
    node_id = await world.add_node(name)
    return SessionRef(node_id, (await world.open(node_id)).generation)


async def _left(world: World, attempt: Attempt, seconds: float) -> None:
    await world.database.fetch(
        "update attempts set lease_expires_at = tdp_now() + make_interval(secs => $2)"
        " where attempt_id = $1",
        attempt.attempt_id,
        seconds,
    )


async def _seconds_left(world: World, attempt: Attempt) -> float:
    left: float = await world.value(
        "select extract(epoch from lease_expires_at - tdp_now())::float8 from attempts"
        " where attempt_id = $1",
        attempt.attempt_id,
    )
    return left


async def _stamp(world: World) -> None:
    await world.database.fetch(
        "update lease_guard set stamped_at = tdp_now(), hold_until = tdp_now()"
    )


async def test_a_tick_renews_what_is_due_and_names_what_is_lost(world: World) -> None:
    """Due leases are renewed, fresh ones not named, ended, foreign and expired ones lost."""
    session = await _session(world)
    other = await _session(world, "other")
    due, fresh, expired = [await world.new_attempt(session.node_id) for _ in range(3)]
    foreign = await world.new_attempt(other.node_id)
    await _left(world, due, 1.0)
    await _left(world, expired, -1.0)
    unknown = lease(IDS.new_id(), 1)
    moved = lease(fresh.attempt_id, 2)
    await _stamp(world)
    listed = [due.lease, expired.lease, foreign.lease, unknown]
    result = await world.leases.tick(
        [session, other], [HeartbeatList(session, [*listed, due.lease])]
    )
    assert result.renewed == {session.node_id: [due.lease]}
    assert set(result.lost[session.node_id]) == {expired.lease, foreign.lease, unknown}
    assert not result.replaced
    assert await _seconds_left(world, due) > 2.5
    result = await world.leases.tick([session], [HeartbeatList(session, [fresh.lease])])
    assert not result.renewed
    assert not result.lost
    result = await world.leases.tick([session], [HeartbeatList(session, [moved])])
    assert result.lost == {session.node_id: [moved]}
    assert await world.value(
        "select count(*) from replicas where replica_id = $1", world.replica_id
    )


async def test_a_replaced_sessions_leases_are_neither_renewed_nor_lost(world: World) -> None:
    """Only the newest generation's heartbeats count, and no lease is named lost for that."""
    old = await _session(world)
    attempt = await world.new_attempt(old.node_id)
    await _left(world, attempt, 1.0)
    new = SessionRef(old.node_id, (await world.open(old.node_id, attempt)).generation)
    await _left(world, attempt, 1.0)
    result = await world.leases.tick([old], [HeartbeatList(old, [attempt.lease])])
    assert not result.renewed
    assert not result.lost
    assert result.replaced == {old.node_id}
    assert await _seconds_left(world, attempt) < 1.1
    result = await world.leases.tick([new], [HeartbeatList(new, [attempt.lease])])
    assert result.renewed == {new.node_id: [attempt.lease]}


async def test_a_locked_lease_is_skipped_and_a_starved_one_holds_expiry(world: World) -> None:
    """A tick never waits for a row; if the row's lease grows short, nothing expires for a TTL."""
    session = await _session(world)
    attempt = await world.new_attempt(session.node_id)
    await _left(world, attempt, 0.7)
    async with world.database.transaction() as other:
        await other.execute("select 1 from attempts for update")
        async with asyncio.timeout(5):
            result = await world.leases.tick([session], [HeartbeatList(session, [attempt.lease])])
    assert (result.renewed, result.lost) == ({}, {})
    await _left(world, attempt, -0.1)
    done, _ = await world.leases.expire()
    assert done.expired_count == 0
    assert (await world.fetch_attempt(attempt))["status"] == "DISPATCHED"


async def test_expiry_makes_the_next_attempt_and_tells_the_node_to_stop(world: World) -> None:
    """The next attempt is asked for; what was sent gets a CANCEL, what was not is voided."""
    session = await _session(world)
    sent = await world.new_attempt(session.node_id)
    await world.commands.take([CommandDemand(session, 8, 8)])
    unsent = await world.new_attempt(session.node_id)
    alive = await world.new_attempt(session.node_id)
    await _left(world, sent, -0.1)
    await _left(world, unsent, -0.1)
    await _stamp(world)
    done, aftermath = await world.leases.expire()
    assert done.expired_count == 2
    assert aftermath.execution_ids == {sent.execution_id, unsent.execution_id}
    assert aftermath.node_ids == {session.node_id}
    assert aftermath.asks_again
    for attempt in (sent, unsent):
        assert (await world.fetch_attempt(attempt))["status"] == "LOST"
        step = await world.fetch_step(attempt)
        assert (step["status"], step["attempt_number"], step["loss_count"]) == ("READY", 2, 1)
    assert (await world.fetch_attempt(alive))["status"] == "DISPATCHED"
    assert (await world.fetch_node(session.node_id))["running_count"] == 1
    assert await world.rows("select kind, status from node_commands order by sequence") == [
        ("RUN", "SENT"),
        ("RUN", "VOIDED"),
        ("RUN", "PENDING"),
        ("CANCEL", "PENDING"),
    ]
    again, _ = await world.leases.expire()
    assert again.expired_count == 0
    assert again.next_due_in_s is not None


async def test_an_expired_lease_under_an_order_to_stop_is_not_lost(world: World) -> None:
    """A cancelled or timed-out attempt ends as that, never LOST."""
    node_id = await world.add_node()
    canceled, late = await world.new_attempt(node_id), await world.new_attempt(node_id)
    for attempt, reason in ((canceled, "CANCEL"), (late, "TIMEOUT")):
        await _left(world, attempt, -0.1)
        await world.database.fetch(
            "update attempts set stop_reason = $2 where attempt_id = $1",
            attempt.attempt_id,
            reason,
        )
    await _stamp(world)
    await world.leases.expire()
    assert (await world.fetch_attempt(canceled))["status"] == "CANCELED"
    assert (await world.fetch_step(canceled))["status"] == "CANCELED"
    assert (await world.fetch_attempt(late))["status"] == "TIMED_OUT"


async def test_a_stall_of_the_servers_expires_nothing(world: World) -> None:
    """A guard older than half a TTL holds expiry for a TTL; a tick does not end the hold."""
    session = await _session(world)
    attempt = await world.new_attempt(session.node_id)
    await _left(world, attempt, -0.1)
    await world.database.fetch(
        "update lease_guard set stamped_at = tdp_now() - interval '1 minute',"
        " hold_until = tdp_now() - interval '1 hour'"
    )
    done, _ = await world.leases.expire()
    assert done.expired_count == 0
    assert done.next_due_in_s is not None
    assert done.next_due_in_s > 2.5
    result = await world.leases.tick([session], [HeartbeatList(session, [attempt.lease])])
    assert result.renewed == {session.node_id: [attempt.lease]}
    stamped, held = (
        await world.rows(
            "select tdp_now() - stamped_at < interval '1 second', hold_until > tdp_now()"
            " from lease_guard"
        )
    )[0]
    assert stamped
    assert held


async def test_expiry_repeats_its_predicate_under_the_lock(
    world: World, control_database: Database
) -> None:
    """A lease that is renewed between the look and the lock is not given away."""
    session = await _session(world)
    attempt = await world.new_attempt(session.node_id)
    await _left(world, attempt, -0.1)
    await _stamp(world)
    rows = await world.database.fetch(
        "select attempt_id, execution_id, tdp_now() as now from attempts"
    )
    await _left(world, attempt, 3.0)
    async with control_database.transaction() as connection:
        count, aftermath = await world.leases._expire_in(connection, rows, rows[0]["now"])
    assert count == 0
    assert not aftermath.execution_ids
    assert (await world.fetch_attempt(attempt))["status"] == "DISPATCHED"


async def test_an_attempt_that_cannot_be_ended_does_not_keep_others(world: World) -> None:
    """A definition that cannot be read strikes its own execution only."""
    node_id = await world.add_node()
    broken, sound = await world.new_attempt(node_id), await world.new_attempt(node_id)
    await world.database.fetch(
        "update executions set snapshot_digest = 'none' where execution_id = $1",
        broken.execution_id,
    )
    for attempt in (broken, sound):
        await _left(world, attempt, -0.1)
    await _stamp(world)
    done, aftermath = await world.leases.expire()
    assert done.expired_count == 1
    assert aftermath.execution_ids == {sound.execution_id}
    assert (await world.fetch_attempt(broken))["status"] == "DISPATCHED"


async def test_a_lease_left_too_long_by_a_clock_gone_back_is_pulled_in(world: World) -> None:
    """No lease outlasts a TTL and a twelfth from now."""
    attempt = await world.new_attempt(await world.add_node())
    await _left(world, attempt, 3600.0)
    await world.leases.expire()
    assert await _seconds_left(world, attempt) <= 3.0


async def test_a_run_timeout_orders_the_stop_once(world: World) -> None:
    """Past its deadline the attempt is told to stop; node or lease end it."""
    session = await _session(world)
    execution_id = await world.add_execution("work")
    attempt = await world.dispatch(execution_id, session.node_id, run_timeout_s=-1.0)
    await world.commands.take([CommandDemand(session, 8, 8)])
    done, aftermath = await world.leases.stop_overdue()
    assert done.expired_count == 1
    assert aftermath.node_ids == {session.node_id}
    row = await world.fetch_attempt(attempt)
    assert (row["status"], row["stop_reason"]) == ("DISPATCHED", "TIMEOUT")
    assert row["lease_expires_at"] is not None
    done, aftermath = await world.leases.stop_overdue()
    assert (done.expired_count, done.next_due_in_s) == (0, None)
    assert await world.value("select count(*) from node_commands where kind = 'CANCEL'") == 1


async def test_progress_only_rises_and_only_under_the_right_lease(world: World) -> None:
    """Lower, foreign and stale reports are ignored; repeats in a batch count once."""
    node_id, other = await world.add_node(), await world.add_node("other")
    attempt = await world.new_attempt(node_id)
    marks = [
        ProgressMark(node_id, attempt.attempt_id, 1, 20),
        ProgressMark(node_id, attempt.attempt_id, 1, 50),
        ProgressMark(other, attempt.attempt_id, 1, 90),
        ProgressMark(node_id, attempt.attempt_id, 2, 95),
    ]
    assert await world.leases.write_progress(marks) == {attempt.execution_id}
    assert (await world.fetch_step(attempt))["progress_percent"] == 50
    assert await world.leases.write_progress(marks[:1]) == frozenset()
    assert (await world.fetch_attempt(attempt))["progress_percent"] == 50


async def test_states_are_written_for_current_sessions_only(world: World) -> None:
    """What an older session shows of its node is not written."""
    session = await _session(world)
    old = SessionRef(session.node_id, session.generation - 1)
    assert await world.nodes.write_states([NodeState(old, Runtime.SILENT)]) == frozenset()
    state = NodeState(session, Runtime.NOT_READY, "disk full", 5, 1_500, 7)
    assert await world.nodes.write_states([state]) == {session.node_id}
    row = await world.fetch_node(session.node_id)
    assert (row["runtime"], row["not_ready_reason"], row["disk_bytes"]) == (
        "NOT_READY",
        "disk full",
        5,
    )
    assert (row["cpu_used_millis"], row["memory_available_bytes"]) == (1_500, 7)
    await world.nodes.close_sessions([old])
    assert (await world.fetch_node(session.node_id))["runtime"] == "NOT_READY"
    await world.nodes.close_sessions([session])
    assert (await world.fetch_node(session.node_id))["runtime"] == "SILENT"
