"""Skip, pause, resume and extend over a whole replica with a node that works."""

import asyncio
from datetime import timedelta

import grpc
from google.protobuf.duration_pb2 import Duration

from tdp.control.v1 import mutation_pb2, task_pb2
from tdp.control.v1 import task_service_pb2 as pb
from tdp.node.v1 import node_service_pb2 as node_pb
from tests.fixtures.eventually import eventually
from tests.integration.control_plane.replica import Replica
from tests.integration.control_plane.services.errors import refused
from tests.integration.control_plane.services.following import (
    create,
    ended,
    statuses_of,
    told,
    until,
)
from tests.integration.control_plane.services.worker import (
    Fact,
    broken,
    done,
    echo,
    name_of,
    working,
)

CREATED = mutation_pb2.MUTATION_OUTCOME_CREATED
REPLAYED = mutation_pb2.MUTATION_OUTCOME_REPLAYED
FLOW = """
name: flow
version: "1"
steps:
  - {key: a, capability: noop, capability_version: "1"}
  - key: b
    capability: noop
    capability_version: "1"
    depends_on: [a]
    retry: {max_attempts: 2, initial_delay: "1h"}
  - key: each
    capability: noop
    capability_version: "1"
    depends_on: [a]
    for_each: "[1, 2]"
    max_parallel: 1
  - {key: c, capability: noop, capability_version: "1", depends_on: [b, each]}
output: "${[steps.b.status, steps.each.output]}"
"""
QUEUED = """
name: queued
version: "1"
steps:
  - {key: a, capability: noop, capability_version: "1", timeouts: {queue: "1h", total: "3h"}}
"""


def _skip(key: str, execution_id: str, step: str, item: int = -1) -> pb.SkipStepRequest:
    return pb.SkipStepRequest(
        idempotency_key=key,
        execution_id=execution_id,
        step_key=step,
        item_index=item,
        reason="not needed",
    )


async def test_what_has_not_started_is_skipped(replica: Replica) -> None:
    """A step in back-off and an item that waits are skipped; the execution goes on without them."""
    await replica.publish(FLOW)
    application_id, key = await replica.register("shop")
    skip = replica.tasks.SkipStep

    def work(run: node_pb.RunCommand) -> Fact | None:
        if run.step_key == "b":
            return broken()
        return None if name_of(run) == "each[0]" else echo(run)

    async with working(replica, work) as worker:
        made = await create(replica, key)
        execution_id = made.execution_id
        first = await worker.held("each[0]")
        retrying = await until(replica, execution_id, "b", "READY")
        answered = await skip(_skip("b", execution_id, "b"), metadata=key)
        again = await skip(_skip("b", execution_id, "b"), metadata=key)
        other = await refused(skip(_skip("b", execution_id, "c"), metadata=key))
        twice = await skip(_skip("b2", execution_id, "b"), metadata=key)
        await skip(_skip("i", execution_id, "each", 1), metadata=key)
        running = await refused(skip(_skip("r", execution_id, "each", 0), metadata=key))
        holder = await refused(skip(_skip("h", execution_id, "each"), metadata=key))
        over = await refused(skip(_skip("o", execution_id, "a"), metadata=key))
        await worker.end(first, done("10"))
        execution = await ended(replica, execution_id, key)
        late = await refused(skip(_skip("l", execution_id, "c"), metadata=key))
        open_requests = await replica.plane.database.fetch(
            "select * from scheduling_requests where status in ('PENDING', 'CLAIMED')"
        )

    assert retrying.waiting_for.startswith("Waits until")
    assert answered.step.status == task_pb2.STEP_STATUS_SKIPPED
    assert (answered.outcome, again.outcome, twice.outcome) == (CREATED, REPLAYED, REPLAYED)
    assert again.step == answered.step
    assert other[:2] == (grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_KEY_REUSED")
    for answer in (running, holder, over):
        assert answer[:2] == (grpc.StatusCode.FAILED_PRECONDITION, "STEP_STARTED")
    assert late[:2] == (grpc.StatusCode.FAILED_PRECONDITION, "EXECUTION_ENDED")
    assert execution.output_json == '["SKIPPED",[10,null]]'
    assert worker.ran.count("b") == 1
    assert not open_requests, "what is skipped waits for no node any more"
    who = f"application:{application_id}"
    assert (
        await told(replica, execution_id, "step.skipped") == [(who, {"reason": "not needed"})] * 2
    )


async def test_a_whole_for_each_step_and_an_approval_are_skipped(replica: Replica) -> None:
    """A step is skipped with its items, before or after these exist; a failure step may be, too."""
    await replica.publish(FLOW)
    _, key = await replica.register("shop")
    made = await create(replica, key)
    execution_id = made.execution_id
    await until(replica, execution_id, "a", "READY")
    for name in ("each", "a"):
        await replica.tasks.SkipStep(_skip(name, execution_id, name), metadata=key)
    await until(replica, execution_id, "b", "READY")
    for fields, code, reason in (
        (("x", execution_id, "x"), "NOT_FOUND", "STEP_NOT_FOUND"),
        (("y", execution_id, "each", 0), "NOT_FOUND", "STEP_NOT_FOUND"),
        (("z", made.task_id, "b"), "NOT_FOUND", "EXECUTION_NOT_FOUND"),
        (("", execution_id, "b"), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
    ):
        found, why, _ = await refused(replica.tasks.SkipStep(_skip(*fields), metadata=key))
        assert (found.name, why) == (code, reason)
    for name in ("b", "c"):
        await replica.tasks.SkipStep(_skip(name, execution_id, name), metadata=key)
    execution = await ended(replica, execution_id, key)

    assert execution.output_json == '["SKIPPED",null]'
    assert set((await statuses_of(replica, execution_id)).values()) == {"SKIPPED"}


async def test_of_skip_and_dispatch_the_first_commit_wins(replica: Replica) -> None:
    """A node joins while many steps are being skipped: each is skipped or runs, never both."""
    await replica.publish(QUEUED)
    _, key = await replica.register("shop")
    made = [await create(replica, key, workflow="queued") for _ in range(12)]
    ids = [one.execution_id for one in made]
    for execution_id in ids:
        await until(replica, execution_id, "a", "READY")
    async with working(replica, lambda _: None) as worker:
        skips = [replica.tasks.SkipStep(_skip(one, one, "a"), metadata=key) for one in ids]
        answers = await asyncio.gather(*skips, return_exceptions=True)
        for execution_id, answer in zip(ids, answers, strict=True):
            if isinstance(answer, grpc.aio.AioRpcError):
                assert answer.code() is grpc.StatusCode.FAILED_PRECONDITION
                assert (await statuses_of(replica, execution_id))["a"] == "RUNNING"
            else:
                await ended(replica, execution_id, key)
        attempts = await replica.plane.database.fetch("select execution_id::text from attempts")
        refused_ids = {
            one
            for one, answer in zip(ids, answers, strict=True)
            if isinstance(answer, grpc.aio.AioRpcError)
        }
        assert {row["execution_id"] for row in attempts} == refused_ids
        assert {run.execution_id for run in worker.runs} <= refused_ids


async def test_a_pause_stops_dispatching_and_queue_time(replica: Replica) -> None:
    """What runs goes on; what waits keeps the queue time that was left, and goes on at once."""
    await replica.publish(FLOW)
    application_id, key = await replica.register("shop")
    async with working(replica, lambda _: None) as worker:
        made = await create(replica, key)
        run = await worker.held("a")
        request = pb.PauseExecutionRequest(
            idempotency_key="p", execution_id=made.execution_id, reason="disk is filling"
        )
        paused = await replica.tasks.PauseExecution(request, metadata=key)
        again = await replica.tasks.PauseExecution(request, metadata=key)
        request.idempotency_key = "p2"
        twice = await replica.tasks.PauseExecution(request, metadata=key)
        request.reason = "another"
        other = await refused(replica.tasks.PauseExecution(request, metadata=key))
        await worker.end(run, done())
        resting = await until(replica, made.execution_id, "b", "READY")

        async def parked() -> bool:
            rows = await replica.plane.database.fetch(
                "select * from scheduling_requests where execution_id = $1 and status = 'PENDING'"
                " and reasons like '%paused%'",
                made.execution_id,
            )
            return len(rows) == 2

        await eventually(parked)
        assert worker.ran.count("b") == worker.ran.count("each[0]") == 0
        worker.work = echo
        resume = pb.ResumeExecutionRequest(idempotency_key="r", execution_id=made.execution_id)
        resumed = await replica.tasks.ResumeExecution(resume, metadata=key)
        again_resumed = await replica.tasks.ResumeExecution(resume, metadata=key)
        execution = await ended(replica, made.execution_id, key)
        late = [
            await refused(replica.tasks.PauseExecution(_pause(made.execution_id), metadata=key)),
            await refused(
                replica.tasks.ResumeExecution(
                    pb.ResumeExecutionRequest(idempotency_key="l", execution_id=made.execution_id),
                    metadata=key,
                )
            ),
        ]

    assert paused.execution.paused
    assert paused.execution.waiting_for.startswith("Paused since")
    assert (paused.outcome, again.outcome, twice.outcome) == (CREATED, REPLAYED, REPLAYED)
    assert other[:2] == (grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_KEY_REUSED")
    assert resting.attempt_number == 1
    assert not resumed.execution.paused
    assert (resumed.outcome, again_resumed.outcome) == (CREATED, REPLAYED)
    assert execution.status == task_pb2.EXECUTION_STATUS_SUCCEEDED
    for answer in late:
        assert answer[:2] == (grpc.StatusCode.FAILED_PRECONDITION, "EXECUTION_ENDED")
    who = f"application:{application_id}"
    facts = await told(replica, made.execution_id, "execution.paused")
    assert facts == [(who, {"reason": "disk is filling"})]
    assert await told(replica, made.execution_id, "execution.resumed") == [(who, {"reason": ""})]


def _pause(execution_id: str) -> pb.PauseExecutionRequest:
    return pb.PauseExecutionRequest(idempotency_key=execution_id, execution_id=execution_id)


async def test_queue_deadlines_move_by_the_time_of_the_pause(replica: Replica) -> None:
    """Half an hour of pause moves a queue deadline by as much, but not beyond the total time."""
    await replica.publish(QUEUED)
    _, key = await replica.register("shop")
    made = await create(replica, key, workflow="queued")
    await until(replica, made.execution_id, "a", "READY")
    database = replica.plane.database

    async def left_s() -> float:
        row = await database.fetchrow(
            "select extract(epoch from deadline_at - ready_at)::float8 as left_s from steps"
            " where execution_id = $1",
            made.execution_id,
        )
        assert row is not None
        return float(row["left_s"])

    found: list[float] = [await left_s()]
    for minutes in (30, 100):
        pause = pb.PauseExecutionRequest(
            idempotency_key=str(minutes), execution_id=made.execution_id
        )
        await replica.tasks.PauseExecution(pause, metadata=key)
        await database.fetch(
            "update steps set ready_at = ready_at - $1::interval,"
            " deadline_at = deadline_at - $1::interval",
            timedelta(minutes=minutes),
        )
        await database.fetch(
            "update executions set paused_at = paused_at - $1::interval",
            timedelta(minutes=minutes),
        )
        await replica.tasks.ResumeExecution(
            pb.ResumeExecutionRequest(idempotency_key=str(minutes), execution_id=made.execution_id),
            metadata=key,
        )
        found.append(await left_s())
    assert [round(one / 60) for one in found] == [60, 90, 180]


async def test_a_running_attempt_gets_more_time(replica: Replica) -> None:
    """The deadline moves and the node is told; others' and ended attempts are refused."""
    await replica.publish(FLOW)
    application_id, key = await replica.register("shop")
    _, stranger = await replica.register("rival")
    extend = replica.tasks.ExtendAttempt
    async with working(replica, lambda _: None) as worker:
        made = await create(replica, key)
        run = await worker.held("a")
        before = await _deadline_left_s(replica, run)
        request = _extend("e", run.attempt_id, 7_200)
        foreign = await refused(extend(request, metadata=stranger))
        first = await extend(request, metadata=key)
        command = await worker.told("extend")
        again = await extend(request, metadata=key)
        other = await refused(extend(_extend("e", run.attempt_id, 10), metadata=key))
        after = await _deadline_left_s(replica, run)
        await worker.end(run, done())
        await until(replica, made.execution_id, "a", "SUCCEEDED")
        late = await refused(extend(_extend("late", run.attempt_id, 10), metadata=key))
        for wrong, code, reason in (
            (_extend("x", made.task_id, 10), "NOT_FOUND", "ATTEMPT_NOT_FOUND"),
            (_extend("x", "x", 10), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
            (_extend("x", run.attempt_id, 0), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
            (_extend("x", run.attempt_id, 604_801), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
            (
                pb.ExtendAttemptRequest(idempotency_key="x", attempt_id=run.attempt_id),
                "INVALID_ARGUMENT",
                "INVALID_ARGUMENT",
            ),
        ):
            found, why, _ = await refused(extend(wrong, metadata=key))
            assert (found.name, why) == (code, reason)

    assert foreign[:2] == (grpc.StatusCode.NOT_FOUND, "ATTEMPT_NOT_FOUND")
    assert (first.outcome, again.outcome) == (CREATED, REPLAYED)
    assert again.run_deadline_time == first.run_deadline_time
    assert first.attempt.attempt_id == run.attempt_id
    assert command.extend.attempt_id == run.attempt_id
    assert command.extend.lease_version == run.lease_version
    assert command.extend.extension.seconds == 7_200
    assert 7_190 < after - before < 7_201
    assert other[:2] == (grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_KEY_REUSED")
    assert late[:2] == (grpc.StatusCode.FAILED_PRECONDITION, "ATTEMPT_NOT_RUNNING")
    ((actor, detail),) = await told(replica, made.execution_id, "attempt.extended")
    assert actor == f"application:{application_id}"
    assert (detail["reason"], detail["extension_s"]) == ("nearly there", 7_200)


async def test_what_is_being_cancelled_takes_no_acts(replica: Replica) -> None:
    """While a node still has to stop, steps and pauses are refused; an attempt is not extended."""
    await replica.publish(FLOW)
    _, key = await replica.register("shop")
    async with working(replica, lambda _: None) as worker:
        made = await create(replica, key)
        run = await worker.held("a")
        await replica.tasks.CancelTask(
            pb.CancelTaskRequest(idempotency_key="c", task_id=made.task_id), metadata=key
        )
        await worker.told("cancel")
        skip = await refused(
            replica.tasks.SkipStep(_skip("s", made.execution_id, "c"), metadata=key)
        )
        pause = await refused(replica.tasks.PauseExecution(_pause(made.execution_id), metadata=key))
        extend = await refused(
            replica.tasks.ExtendAttempt(_extend("e", run.attempt_id, 10), metadata=key)
        )
        await worker.end(run, node_pb.AttemptStopped(stop_reason="CANCEL"))
        execution = await ended(replica, made.execution_id, key)

    assert skip[:2] == pause[:2] == (grpc.StatusCode.FAILED_PRECONDITION, "EXECUTION_CANCELING")
    assert extend[:2] == (grpc.StatusCode.FAILED_PRECONDITION, "ATTEMPT_NOT_RUNNING")
    assert execution.status == task_pb2.EXECUTION_STATUS_CANCELED


async def test_a_reading_key_may_not_act(replica: Replica) -> None:
    """Each act needs the scope submit, before anything is looked at."""
    reader = await replica.reading_key("shop")
    anything = replica.plane.ids.new_id()
    for call in (
        replica.tasks.SkipStep(_skip("k", anything, "a"), metadata=reader),
        replica.tasks.PauseExecution(_pause(anything), metadata=reader),
        replica.tasks.ResumeExecution(
            pb.ResumeExecutionRequest(idempotency_key="k", execution_id=anything), metadata=reader
        ),
        replica.tasks.ExtendAttempt(_extend("k", anything, 10), metadata=reader),
        replica.tasks.SignalStep(
            pb.SignalStepRequest(idempotency_key="k", execution_id=anything, step_key="a"),
            metadata=reader,
        ),
        replica.tasks.RerunTask(
            pb.RerunTaskRequest(
                idempotency_key="k", task_id=anything, mode=pb.RERUN_MODE_FROM_SCRATCH
            ),
            metadata=reader,
        ),
    ):
        code, reason, _ = await refused(call)
        assert (code, reason) == (grpc.StatusCode.PERMISSION_DENIED, "SCOPE_MISSING")


async def test_an_execution_that_was_set_aside_is_tried_again_when_resumed(
    replica: Replica,
) -> None:
    """Resuming lifts the quarantine of an execution whose advance kept failing."""
    await replica.publish(QUEUED)
    _, key = await replica.register("shop")
    made = await create(replica, key, workflow="queued")
    await until(replica, made.execution_id, "a", "READY")
    await replica.plane.database.fetch(
        "update executions set quarantined_at = tdp_now(), advance_failures = 10,"
        " advance_error = 'boom'"
    )
    shown = await replica.tasks.GetExecution(
        pb.GetExecutionRequest(execution_id=made.execution_id), metadata=key
    )
    only = pb.ListTasksRequest(filter="quarantined = true")
    listed = await replica.tasks.ListTasks(only, metadata=key)
    await replica.tasks.ResumeExecution(
        pb.ResumeExecutionRequest(
            idempotency_key="r", execution_id=made.execution_id, reason="mended"
        ),
        metadata=key,
    )
    released = await replica.tasks.ListTasks(only, metadata=key)
    async with working(replica):
        execution = await ended(replica, made.execution_id, key)
    ((actor, detail),) = await told(replica, made.execution_id, "execution.resumed")
    assert [one.task_id for one in listed.tasks] == [made.task_id]
    assert not released.tasks
    assert actor.startswith("application:")
    assert detail == {"reason": "mended"}
    assert "Resume it" in shown.execution.waiting_for
    assert execution.status == task_pb2.EXECUTION_STATUS_SUCCEEDED


def _extend(key: str, attempt_id: str, seconds: int) -> pb.ExtendAttemptRequest:
    return pb.ExtendAttemptRequest(
        idempotency_key=key,
        attempt_id=attempt_id,
        extension=Duration(seconds=seconds),
        reason="nearly there",
    )


async def _deadline_left_s(replica: Replica, run: node_pb.RunCommand) -> float:
    row = await replica.plane.database.fetchrow(
        "select extract(epoch from run_deadline_at - tdp_now())::float8 as left_s from attempts"
        " where attempt_id = $1",
        run.attempt_id,
    )
    assert row is not None
    return float(row["left_s"])
