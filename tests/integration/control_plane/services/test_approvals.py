"""SignalStep over a whole replica: approved, rejected, too early, too late, and the race."""

import asyncio
import json

import grpc

from tdp.control.v1 import mutation_pb2, task_pb2
from tdp.control.v1 import task_service_pb2 as pb
from tests.integration.control_plane.replica import Replica
from tests.integration.control_plane.services.errors import refused
from tests.integration.control_plane.services.following import (
    create,
    ended,
    statuses_of,
    told,
    until,
)
from tests.integration.control_plane.services.worker import working

FLOW = """
name: flow
version: "1"
steps:
  - {key: first, capability: noop, capability_version: "1"}
  - {key: ask, kind: approval, depends_on: [first], timeouts: {total: "1h"}}
  - key: publish
    capability: noop
    capability_version: "1"
    depends_on: [ask]
    input: {who: "${steps.ask.output.signaled_by}", how: "${steps.ask.output.payload}"}
output: "${steps.publish.output}"
"""
ALONE = """
name: alone
version: "1"
steps:
  - {key: ask, kind: approval, timeouts: {total: "TOTAL"}}
  - {key: after, kind: approval, depends_on: [ask], timeouts: {total: "1h"}}
"""


def _signal(key: str, execution_id: str, **fields: object) -> pb.SignalStepRequest:
    values = {
        "idempotency_key": key,
        "execution_id": execution_id,
        "step_key": "ask",
        "item_index": -1,
        "approved": True,
    }
    return pb.SignalStepRequest(**(values | fields))  # type: ignore[arg-type]


async def test_an_approval_goes_on_with_who_gave_it(replica: Replica) -> None:
    """The signal's document and its giver are the step's output; repeated, it changes nothing."""
    await replica.publish(FLOW)
    application_id, key = await replica.register("shop")
    _, stranger = await replica.register("rival")
    signal = replica.tasks.SignalStep
    async with working(replica):
        made = await create(replica, key)
        waiting = await until(replica, made.execution_id, "ask", "WAITING")
        request = _signal(
            "s", made.execution_id, payload_json='{"limit":9007199254740993}', reason="looks good"
        )
        foreign = await refused(signal(request, metadata=stranger))
        shown = await replica.tasks.GetExecution(
            pb.GetExecutionRequest(execution_id=made.execution_id), metadata=key
        )
        first = await signal(request, metadata=key)
        again = await signal(request, metadata=key)
        other = await refused(signal(_signal("s", made.execution_id), metadata=key))
        execution = await ended(replica, made.execution_id, key)
        late = await refused(signal(_signal("late", made.execution_id), metadata=key))

    assert waiting.waiting_for.startswith("Waits for an answer since")
    assert shown.execution.waiting_for.startswith("Step ask waits for an answer since")
    assert foreign[:2] == (grpc.StatusCode.NOT_FOUND, "EXECUTION_NOT_FOUND")
    assert first.outcome == mutation_pb2.MUTATION_OUTCOME_CREATED
    assert first.step.status == task_pb2.STEP_STATUS_SUCCEEDED
    output = json.loads(first.step.output_json)
    assert (output["approved"], output["reason"]) == (True, "looks good")
    assert again.outcome == mutation_pb2.MUTATION_OUTCOME_REPLAYED
    assert again.step == first.step
    assert other[:2] == (grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_KEY_REUSED")
    assert execution.status == task_pb2.EXECUTION_STATUS_SUCCEEDED
    assert json.loads(execution.output_json) == {
        "who": f"application:{application_id}",
        "how": {"limit": 9007199254740993},
    }
    assert late[:2] == (grpc.StatusCode.FAILED_PRECONDITION, "EXECUTION_ENDED")
    entries = await told(replica, made.execution_id, "step.signaled")
    assert entries == [
        (f"application:{application_id}", {"approved": True, "reason": "looks good"})
    ]


async def test_a_rejection_fails_the_step_with_who_and_why(replica: Replica) -> None:
    """The execution fails and says so; nothing after the step runs."""
    await replica.publish(FLOW)
    _, key = await replica.register("shop")
    async with working(replica) as worker:
        made = await create(replica, key)
        await until(replica, made.execution_id, "ask", "WAITING")
        rejected = await replica.tasks.SignalStep(
            _signal("s", made.execution_id, approved=False, reason="blurred", payload_json="[7]"),
            metadata=replica.admin,
        )
        execution = await ended(replica, made.execution_id, key)

    assert rejected.step.status == task_pb2.STEP_STATUS_FAILED
    assert execution.status == task_pb2.EXECUTION_STATUS_FAILED
    assert execution.failure.cause.reason == "APPROVAL_REJECTED"
    assert "rejected by operator:" in execution.failure.message
    assert "blurred" in execution.failure.message
    assert worker.ran == ["first"]
    ((actor, detail),) = await told(replica, made.execution_id, "step.signaled")
    assert actor.startswith("operator:")
    assert detail == {"approved": False, "reason": "blurred", "payload": [7]}


async def test_wrong_signals_are_refused(replica: Replica) -> None:
    """Too early, no approval, no such step or item, a wrong document, no key, no scope."""
    await replica.publish(FLOW)
    _, key = await replica.register("shop")
    made = await create(replica, key)
    execution_id = made.execution_id
    await until(replica, execution_id, "first", "READY")
    for request, code, reason in (
        (_signal("a", execution_id), "FAILED_PRECONDITION", "STEP_NOT_WAITING"),
        (
            _signal("b", execution_id, step_key="first"),
            "FAILED_PRECONDITION",
            "STEP_NOT_WAITING",
        ),
        (_signal("c", execution_id, step_key="x"), "NOT_FOUND", "STEP_NOT_FOUND"),
        (_signal("d", execution_id, item_index=0), "NOT_FOUND", "STEP_NOT_FOUND"),
        (_signal("e", execution_id, item_index=-2), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        (_signal("f", execution_id, step_key=""), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        (_signal("g", execution_id, payload_json="{"), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        (_signal("h", execution_id, reason="x" * 501), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        (_signal("", execution_id), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        (_signal("i", "x"), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        (_signal("j", made.task_id), "NOT_FOUND", "EXECUTION_NOT_FOUND"),
    ):
        found, why, _ = await refused(replica.tasks.SignalStep(request, metadata=key))
        assert (found.name, why) == (code, reason), request


async def test_an_approval_that_nobody_answers_times_out(replica: Replica) -> None:
    """Its own total time-out ends it, and a signal afterwards is too late."""
    await replica.publish(ALONE.replace("TOTAL", "100ms"))
    _, key = await replica.register("shop")
    made = await create(replica, key, workflow="alone")
    execution = await ended(replica, made.execution_id, key)
    late = await refused(replica.tasks.SignalStep(_signal("s", made.execution_id), metadata=key))
    assert execution.failure.cause.reason == "APPROVAL_TIMED_OUT"
    assert late[0] is grpc.StatusCode.FAILED_PRECONDITION


async def test_of_signal_and_time_out_the_first_commit_wins(replica: Replica) -> None:
    """Both come at once for many steps: each answer tells how its step stands for good."""
    await replica.publish(ALONE.replace("TOTAL", "1h"))
    _, key = await replica.register("shop")
    made = [await create(replica, key, workflow="alone") for _ in range(12)]
    for one in made:
        await until(replica, one.execution_id, "ask", "WAITING")
    ids = [one.execution_id for one in made]
    await replica.plane.database.fetch("update steps set deadline_at = tdp_now()")
    half = len(ids) // 2
    signals = [replica.tasks.SignalStep(_signal(one, one), metadata=key) for one in ids[:half]]
    replica.plane.hints.engine.add(ids)
    signals += [replica.tasks.SignalStep(_signal(one, one), metadata=key) for one in ids[half:]]
    answers = await asyncio.gather(*signals, return_exceptions=True)

    for execution_id, answer in zip(ids, answers, strict=True):
        stands = (await statuses_of(replica, execution_id))["ask"]
        if isinstance(answer, grpc.aio.AioRpcError):
            assert answer.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert stands == "TIMED_OUT"
        else:
            assert stands == "SUCCEEDED"
            await until(replica, execution_id, "after", "WAITING")
