"""What a definition may ask for, end to end: retries, time-outs, failure steps, parallel items."""

import json
from collections.abc import Callable

from tdp.control.v1 import task_pb2
from tdp.control.v1 import task_service_pb2 as pb
from tdp.node.v1 import node_service_pb2 as node_pb
from tests.fixtures.eventually import eventually
from tests.integration.control_plane.replica import Replica
from tests.integration.control_plane.services.following import create, ended, statuses_of, steps_of
from tests.integration.control_plane.services.worker import (
    Fact,
    broken,
    done,
    echo,
    name_of,
    working,
)


def _flow(*steps: dict[str, object], **fields: object) -> str:
    """Return a definition of steps that run `noop` unless they say otherwise."""
    work = {"capability": "noop", "capability_version": "1"}
    made = [one if "kind" in one else work | one for one in steps]
    return json.dumps({"name": "flow", "version": "1", "steps": made, **fields})


def _failing(**outcomes: Fact) -> Callable[[node_pb.RunCommand], Fact]:
    """Return work in which the named steps end so, and the others succeed with their input."""

    def work(run: node_pb.RunCommand) -> Fact:
        return outcomes.get(run.step_key) or echo(run)

    return work


async def _attempts(replica: Replica, execution_id: str, step: str) -> list[task_pb2.Attempt]:
    request = pb.ListAttemptsRequest(execution_id=execution_id, step_key=step)
    answer = await replica.tasks.ListAttempts(request, metadata=replica.admin)
    return list(answer.attempts)


async def test_retries_heed_reason_policy_and_the_workers_delay(replica: Replica) -> None:
    """A final reason and a spent policy end a step; the worker's delay replaces the policy's."""
    patient = {"max_attempts": 3, "initial_delay": "1h", "jitter": 0}
    await replica.publish(
        _flow(
            {"key": "final", "on_failure": "continue", "retry": patient},
            {
                "key": "listed",
                "on_failure": "continue",
                "retry": patient | {"non_retryable_reasons": ["QUOTA"]},
            },
            {"key": "delayed", "on_failure": "continue", "retry": patient},
            {
                "key": "quick",
                "on_failure": "continue",
                "retry": {"max_attempts": 2, "initial_delay": "50ms", "jitter": 0},
            },
            {
                "key": "after",
                "depends_on": ["final", "listed", "delayed", "quick"],
                "input": {"was": "${steps.final.status}", "got": "${steps.final.output}"},
            },
            output="${steps.after.output}",
        )
    )
    _, key = await replica.register("shop")
    work = _failing(
        final=broken("BAD_INPUT", retryable=False),
        listed=broken("QUOTA"),
        delayed=broken("BUSY", delay_s=0.05),
        quick=broken("FLAKY"),
    )
    async with working(replica, work) as worker:
        made = await create(replica, key)
        execution = await ended(replica, made.execution_id, key)
        delayed = await _attempts(replica, made.execution_id, "delayed")

    counts = {name: worker.ran.count(name) for name in ("final", "listed", "delayed", "quick")}
    assert counts == {"final": 1, "listed": 1, "delayed": 3, "quick": 2}
    assert json.loads(execution.output_json) == {"was": "FAILED", "got": None}
    assert [one.lease_version for one in delayed] == [1, 2, 3]
    assert {one.failure.reason for one in delayed} == {"BUSY"}
    failures = [one for one in delayed if one.status == task_pb2.ATTEMPT_STATUS_FAILED]
    assert {one.log_tail for one in failures} == {"BUSY as printed\ufffd"}
    steps = await steps_of(replica, made.execution_id)
    assert steps["listed"].failure.reason == "QUOTA"


async def test_the_failure_step_runs_last_and_sees_why(replica: Replica) -> None:
    """What runs is stopped first, what waits is dropped, then it runs; the execution has failed."""
    await replica.publish(
        _flow(
            {"key": "bad", "retry": {"max_attempts": 1}},
            {"key": "long"},
            {"key": "ask", "kind": "approval"},
            {"key": "sorry", "input": {"why": "${execution.failure.message}"}},
            failure_step="sorry",
        )
    )
    _, key = await replica.register("shop")

    def work(run: node_pb.RunCommand) -> Fact | None:
        return {"bad": None, "long": None}.get(run.step_key, echo(run))

    async with working(replica, work) as worker:
        made = await create(replica, key)
        bad, long = await worker.held("bad"), await worker.held("long")
        await worker.end(bad, broken("BAD_INPUT", retryable=False))
        await worker.told("cancel")
        before = list(worker.ran)
        await worker.end(long, node_pb.AttemptStopped(stop_reason="CANCEL"))
        execution = await ended(replica, made.execution_id, key)

    assert sorted(before) == ["bad", "long"]
    assert execution.status == task_pb2.EXECUTION_STATUS_FAILED
    assert execution.failure.step_key == "bad"
    assert await statuses_of(replica, made.execution_id) == {
        "bad": "FAILED",
        "long": "CANCELED",
        "ask": "CANCELED",
        "sorry": "SUCCEEDED",
    }
    assert "step bad failed: it broke" in worker.runs[-1].input_json


async def test_items_run_side_by_side_within_their_limit(replica: Replica) -> None:
    """At most max_parallel at once, one in back-off counted; the output keeps the items' order."""
    await replica.publish(
        _flow(
            {
                "key": "each",
                "for_each": "input.items",
                "max_parallel": 3,
                "when": "item != 4",
                "input": {"n": "${item}", "at": "${index}"},
                "retry": {"max_attempts": 2, "initial_delay": "50ms", "jitter": 0},
            },
            {"key": "none", "for_each": "[]", "depends_on": ["each"]},
            output="${[steps.each.output, steps.none.output]}",
        )
    )
    _, key = await replica.register("shop")
    seen: set[int] = set()

    def work(run: node_pb.RunCommand) -> Fact:
        first = run.item_index not in seen
        seen.add(run.item_index)
        return broken() if first and run.item_index == 0 else done(run.input_json)

    async with working(replica, work) as worker:
        made = await create(replica, key, input_json='{"items":[0,1,2,3,4,5,6]}')
        execution = await ended(replica, made.execution_id, key)

    each, none = json.loads(execution.output_json)
    assert each == [None if n == 4 else {"n": n, "at": n} for n in range(7)]
    assert none == []
    assert worker.live_max <= 3
    assert worker.ran.count("each[0]") == 2


async def test_every_time_out_ends_what_it_bounds(replica: Replica) -> None:
    """Queue, run and total time-outs end their steps, each with its reason."""
    await replica.publish(
        _flow(
            {
                "key": "queued",
                "capability": "nowhere",
                "timeouts": {"queue": "100ms"},
                "on_failure": "continue",
            },
            {
                "key": "slow",
                "timeouts": {"run": "200ms"},
                "on_failure": "continue",
                "retry": {"max_attempts": 2, "initial_delay": "10ms", "jitter": 0},
            },
            {
                "key": "endless",
                "timeouts": {"total": "1m"},
                "on_failure": "continue",
                "retry": {"max_attempts": 100, "initial_delay": "1h", "max_delay": "1h"},
            },
        )
    )
    _, key = await replica.register("shop")

    def work(run: node_pb.RunCommand) -> Fact | None:
        return broken() if run.step_key == "endless" else None

    async with working(replica, work) as worker:
        made = await create(replica, key)
        for number in (1, 2):
            slow = await _run_number(worker.runs, "slow", number)

            async def told(attempt_id: str = slow.attempt_id) -> node_pb.Command | None:
                orders = (one for one in worker.others if one.cancel.attempt_id == attempt_id)
                return next(orders, None)

            order = await eventually(told)
            assert order is not None
            assert order.cancel.stop_reason == "TIMEOUT"
            await worker.end(slow, node_pb.AttemptStopped(stop_reason="TIMEOUT"))
        await ended(replica, made.execution_id, key)
        steps = await steps_of(replica, made.execution_id)

    assert steps["queued"].status == task_pb2.STEP_STATUS_TIMED_OUT
    assert steps["queued"].failure.reason == "QUEUE_TIMED_OUT"
    assert steps["slow"].status == task_pb2.STEP_STATUS_TIMED_OUT
    assert steps["slow"].failure.reason == "RUN_TIMED_OUT"
    assert steps["endless"].status == task_pb2.STEP_STATUS_FAILED
    assert worker.ran.count("endless") == 1, "its total time is over before the next attempt"


async def _run_number(runs: list[node_pb.RunCommand], step: str, number: int) -> node_pb.RunCommand:
    """Wait for the attempt of this number."""

    async def found() -> node_pb.RunCommand | None:
        return next(
            (one for one in runs if name_of(one) == step and one.attempt_number == number), None
        )

    run = await eventually(found)
    assert run is not None
    return run


async def test_an_execution_that_takes_too_long_times_out(replica: Replica) -> None:
    """Its own time-out stops what runs, and a success afterwards is refused."""
    await replica.publish(_flow({"key": "slow"}, timeout="300ms"))
    _, key = await replica.register("shop")
    async with working(replica, lambda _: None) as worker:
        made = await create(replica, key)
        slow = await worker.held("slow")
        order = await worker.told("cancel")
        await worker.end(slow, done())
        execution = await ended(replica, made.execution_id, key)

    assert order.cancel.stop_reason == "TIMEOUT"
    assert execution.status == task_pb2.EXECUTION_STATUS_TIMED_OUT
    assert execution.failure.reason == "EXECUTION_TIMED_OUT"
    assert not execution.output_json
