"""What the end of an attempt writes: attempt, step, request, node, execution, commands."""

import json

from control_plane.core.executions.attempt_state import StopReason
from control_plane.core.executions.domain import AttemptId, ExecutionId, StepKey, StepRef
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.outcomes import Aftermath, Settlement, StopOrder
from control_plane.core.nodes.domain import (
    CommandDemand,
    SessionRef,
    WorkSucceeded,
)
from tests.integration.control_plane.nodes.world import (
    IDS,
    Attempt,
    World,
    event,
    failure,
    reported,
    stop_report,
    success,
)


async def test_success_ends_attempt_and_step_and_frees_the_node(world: World) -> None:
    """A success moves attempt and step, frees slot and resources, and wakes the engine."""
    node_id = await world.add_node()
    attempt = await world.new_attempt(node_id)
    (fate,), aftermath = await world.accept([success(attempt)])
    assert (fate.accepted, fate.reason) == (True, "")
    assert aftermath.execution_ids == {attempt.execution_id}
    assert aftermath.frees_capacity
    row, step, node = (
        await world.fetch_attempt(attempt),
        await world.fetch_step(attempt),
        await world.fetch_node(node_id),
    )
    assert (row["status"], row["lease_expires_at"]) == ("SUCCEEDED", None)
    assert row["usage"] == '{"duration_ms":5}'
    assert (step["status"], step["output"], step["progress_percent"]) == (
        "SUCCEEDED",
        '{"ok":true}',
        100,
    )
    assert node["running_count"] == node["process_running_count"] == 0
    assert node["reserved_cpu_millis"] == 0
    due = await world.value("select next_due_at <= tdp_now() from executions")
    assert due is True


async def test_a_failure_asks_for_another_attempt_and_then_ends_the_step(world: World) -> None:
    """The retry policy decides: one repetition with its own request, then the step is FAILED."""
    node_id = await world.add_node()
    first = await world.new_attempt(node_id)
    _, aftermath = await world.accept([failure(first)])
    assert aftermath.asks_again
    step = await world.fetch_step(first)
    assert (step["status"], step["attempt_number"], step["failure_count"]) == ("READY", 2, 1)
    assert step["not_before"] is not None
    assert step["deadline_at"] is not None
    request = await world.rows(
        "select priority, requirement, status, available_at > created_at from scheduling_requests"
        " where attempt_number = 2"
    )
    assert request == [(7, '{"r":1}', "PENDING", True)]
    assert await world.rows("select type from timeline") == [("step.retry",)]
    second = await world.dispatch(first.execution_id, node_id)
    await world.accept([failure(second)])
    step = await world.fetch_step(first)
    assert (step["status"], step["failure_count"]) == ("FAILED", 2)
    assert json.loads(step["failure"])["reason"] == "BROKE"
    assert (await world.fetch_node(node_id))["running_count"] == 0


async def test_a_final_failure_is_not_repeated(world: World) -> None:
    """A failure that no retry can help ends the step at once."""
    attempt = await world.new_attempt(await world.add_node())
    await world.accept([failure(attempt, retryable=False)])
    assert (await world.fetch_step(attempt))["status"] == "FAILED"


async def test_nothing_is_tried_again_for_an_execution_that_is_ending(world: World) -> None:
    """A closing execution gets no further attempts."""
    attempt = await world.new_attempt(await world.add_node())
    await world.database.fetch("update executions set closing_as = 'FAILED'")
    await world.accept([failure(attempt)])
    assert (await world.fetch_step(attempt))["status"] == "FAILED"


async def test_the_failure_step_is_tried_again_while_its_execution_closes(world: World) -> None:
    """It runs because the execution fails; a cancel alone keeps it from being repeated."""
    node_id = await world.add_node()
    first, second = [await world.new_attempt(node_id, "clean") for _ in range(2)]
    await world.database.fetch("update executions set closing_as = 'FAILED'")
    await world.database.fetch(
        "update executions set status = 'CANCELING' where execution_id = $1", second.execution_id
    )
    await world.accept([failure(first), failure(second)])
    assert (await world.fetch_step(first))["status"] == "READY"
    assert (await world.fetch_step(second))["status"] == "FAILED"


async def test_output_that_breaks_the_schema_fails_the_attempt(world: World) -> None:
    """The registered output schema is checked when a result is accepted."""
    node_id = await world.add_node()
    await world.open(node_id)
    attempt = await world.new_attempt(node_id)
    (fate,), _ = await world.accept([success(attempt, "[1]")])
    assert (fate.accepted, fate.reason) == (False, "OUTPUT_INVALID")
    assert (await world.fetch_attempt(attempt))["status"] == "FAILED"
    assert (await world.fetch_step(attempt))["status"] == "FAILED"


async def test_a_success_with_artifacts_waits_for_their_commit(world: World) -> None:
    """The result is pending: capacity free, no lease, one commit row; settling it ends it."""
    node_id = await world.add_node()
    attempt = await world.new_attempt(node_id)
    await world.allocate(attempt, "a", "b")
    done = event(attempt, WorkSucceeded('{"n":2}', 2, "coll"))
    fates, aftermath = await world.accept([event(attempt, reported("a", "b")), done])
    assert [fate.accepted for fate in fates] == [True, True]
    assert aftermath.commits_artifacts
    row = await world.fetch_attempt(attempt)
    assert (row["status"], row["lease_expires_at"], row["run_deadline_at"]) == (
        "RUNNING",
        None,
        None,
    )
    assert (await world.fetch_step(attempt))["status"] == "RUNNING"
    assert (await world.fetch_node(node_id))["running_count"] == 0
    ((outbox_id, destination, payload),) = await world.rows(
        "select outbox_id, destination, payload from artifact_commits"
    )
    assert str(outbox_id) == attempt.attempt_id
    assert destination == world.application_id
    assert json.loads(payload)["artifact_count"] == 2
    # The same result again is a duplicate; another one is refused.
    (again, other), _ = await world.accept([done, success(attempt)])
    assert again.accepted
    assert (other.accepted, other.reason) == (False, "RESULT_PENDING")
    settled = await world.inbox.settle([Settlement(AttemptId(attempt.attempt_id))])
    assert settled.execution_ids == {attempt.execution_id}
    assert not settled.frees_capacity
    step = await world.fetch_step(attempt)
    assert (step["status"], step["output"]) == ("SUCCEEDED", '{"n":2}')
    assert await world.rows("select distinct status from artifacts") == [("COMMITTED",)]
    assert (await world.fetch_node(node_id))["running_count"] == 0
    assert not (await world.inbox.settle([Settlement(AttemptId(attempt.attempt_id))])).execution_ids


async def test_a_refused_commit_is_repeated_as_a_failure(world: World) -> None:
    """A mismatch found by the provider fails the attempt retryably."""
    node_id = await world.add_node()
    attempt = await world.new_attempt(node_id)
    await world.allocate(attempt, "a")
    await world.accept([event(attempt, reported("a"))])
    await world.accept([event(attempt, WorkSucceeded("{}", 1, "coll"))])
    wrong = Failure("ARTIFACT_MISMATCH", "other bytes", retryable=True)
    await world.inbox.settle([Settlement(AttemptId(attempt.attempt_id), wrong)])
    assert (await world.fetch_attempt(attempt))["status"] == "FAILED"
    assert (await world.fetch_step(attempt))["status"] == "READY"
    assert await world.rows("select distinct status from artifacts") == [("ABANDONED",)]
    assert (await world.fetch_node(node_id))["running_count"] == 0


async def test_a_result_that_names_other_artifacts_is_refused(world: World) -> None:
    """A differing count ends the attempt, to be done again."""
    attempt = await world.new_attempt(await world.add_node())
    (fate,), _ = await world.accept([event(attempt, WorkSucceeded("{}", 3, "c"))])
    assert (fate.accepted, fate.reason) == (False, "ARTIFACT_COUNT_MISMATCH")
    assert (await world.fetch_step(attempt))["status"] == "READY"


async def test_events_that_do_not_fit_change_nothing_and_are_kept(world: World) -> None:
    """Wrong node, lease or attempt: recorded with the reason and the payload, nothing moves."""
    attempt = await world.new_attempt(await world.add_node())
    other = await world.add_node("node-2")
    before = await world.dump()
    fates, aftermath = await world.accept(
        [
            success(attempt, node_id=other),
            success(attempt, lease_version=2),
            success(attempt, attempt_id=IDS.new_id()),
        ]
    )
    assert [fate.reason for fate in fates] == ["NODE_MISMATCH", "LEASE_LOST", "ATTEMPT_UNKNOWN"]
    assert not any(fate.accepted for fate in fates)
    assert not aftermath.execution_ids
    after = await world.dump()
    assert len(after.pop("inbox")) == 3
    before.pop("inbox")
    assert after == before
    payloads = await world.rows("select payload from attempt_inbox")
    assert {json.loads(text)["output_json"] for (text,) in payloads} == {'{"ok":true}'}


async def _stop(
    world: World, attempt: Attempt, reason: StopReason = StopReason.CANCEL
) -> Aftermath:
    async with world.database.transaction() as connection:
        await connection.execute(
            "select 1 from executions where execution_id = $1 for update", attempt.execution_id
        )
        order = StopOrder(
            ExecutionId(attempt.execution_id),
            StepRef(StepKey(attempt.step_key)),
            attempt.number,
            reason,
        )
        return await world.outcomes.stop(connection, [order])


async def test_stopping_what_was_never_sent_ends_it_at_once(world: World) -> None:
    """Its RUN is voided, no CANCEL is made, and capacity is free."""
    node_id = await world.add_node()
    attempt = await world.new_attempt(node_id)
    aftermath = await _stop(world, attempt)
    assert not aftermath.node_ids
    assert aftermath.execution_ids == {attempt.execution_id}
    assert (await world.fetch_attempt(attempt))["status"] == "CANCELED"
    assert (await world.fetch_step(attempt))["status"] == "CANCELED"
    assert await world.rows("select kind, status from node_commands") == [("RUN", "VOIDED")]
    assert (await world.fetch_node(node_id))["running_count"] == 0


async def test_stopping_what_was_sent_waits_for_the_node(world: World) -> None:
    """A CANCEL is added once; the attempt keeps its slot until the node reports."""
    node_id = await world.add_node()
    session = SessionRef(node_id, (await world.open(node_id)).generation)
    attempt = await world.new_attempt(node_id)
    await world.commands.take([CommandDemand(session, 8, 8)])
    aftermath = await _stop(world, attempt)
    assert aftermath.node_ids == {node_id}
    assert not (await _stop(world, attempt)).node_ids
    row = await world.fetch_attempt(attempt)
    assert (row["status"], row["stop_reason"]) == ("DISPATCHED", "CANCEL")
    assert (await world.fetch_node(node_id))["running_count"] == 1
    commands = await world.rows("select sequence, kind, payload from node_commands order by 1")
    assert [kind for _, kind, _ in commands] == ["RUN", "CANCEL"]
    assert json.loads(commands[1][2])["stop_reason"] == "CANCEL"
    await world.accept([stop_report(attempt, StopReason.CANCEL)])
    assert (await world.fetch_attempt(attempt))["status"] == "CANCELED"
    assert (await world.fetch_step(attempt))["status"] == "CANCELED"
    assert (await world.fetch_node(node_id))["running_count"] == 0


async def test_success_counts_under_a_cancel_and_not_under_a_timeout(world: World) -> None:
    """A success that crosses an order to stop is accepted under a cancel only."""
    node_id = await world.add_node()
    session = SessionRef(node_id, (await world.open(node_id)).generation)
    canceled, late = await world.new_attempt(node_id), await world.new_attempt(node_id)
    await world.commands.take([CommandDemand(session, 8, 8)])
    await _stop(world, canceled)
    await _stop(world, late, StopReason.TIMEOUT)
    fates, _ = await world.accept([success(canceled), success(late)])
    assert [(fate.accepted, fate.reason) for fate in fates] == [
        (True, ""),
        (False, "TIMED_OUT_BEFORE"),
    ]
    assert (await world.fetch_step(canceled))["status"] == "SUCCEEDED"
    assert (await world.fetch_attempt(late))["status"] == "TIMED_OUT"
    # Its policy allows another attempt.
    assert (await world.fetch_step(late))["status"] == "READY"


async def test_what_must_run_once_is_not_repeated_after_a_loss(world: World) -> None:
    """A node's stop without an order loses the work: an at_most_once step fails."""
    node_id = await world.add_node()
    repeated, once = await world.new_attempt(node_id), await world.new_attempt(node_id, "once")
    await world.accept([stop_report(repeated, None), stop_report(once, None)])
    assert (await world.fetch_attempt(repeated))["status"] == "LOST"
    step = await world.fetch_step(repeated)
    assert (step["status"], step["loss_count"], step["failure_count"]) == ("READY", 1, 0)
    assert (await world.fetch_step(once))["status"] == "FAILED"
