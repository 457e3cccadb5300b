"""RerunTask in each of its modes, over a whole replica and a node that works."""

import json

import grpc

from tdp.control.v1 import mutation_pb2, task_pb2
from tdp.control.v1 import task_service_pb2 as pb
from tdp.node.v1 import node_service_pb2 as node_pb
from tests.integration.control_plane.replica import Metadata, Replica
from tests.integration.control_plane.services.errors import refused, task_request
from tests.integration.control_plane.services.provider import serving_provider
from tests.integration.control_plane.services.worker import (
    Fact,
    broken,
    done,
    echo,
    name_of,
    working,
)

FLOW = """
name: flow
version: "1"
steps:
  - {key: list, capability: noop, capability_version: "1"}
  - key: each
    capability: noop
    capability_version: "1"
    depends_on: [list]
    for_each: "[10, 20, 30, 40]"
    max_parallel: 2
    on_failure: continue
    retry: {max_attempts: 1}
    input: {n: "${item}"}
  - key: sum
    capability: noop
    capability_version: "1"
    depends_on: [each]
    retry: {max_attempts: 1}
    input: {all: "${steps.each.output}"}
output: "${steps.sum.output}"
"""


async def _create(replica: Replica, key: Metadata) -> pb.CreateTaskResponse:
    request = task_request("k", workflow_name="flow", input_json="{}")
    return await replica.tasks.CreateTask(request, metadata=key)


async def _ended(replica: Replica, execution_id: str, key: Metadata) -> task_pb2.Execution:
    """Watch the execution to its end."""
    request = pb.WatchExecutionRequest(execution_id=execution_id)
    seen = [one async for one in replica.tasks.WatchExecution(request, metadata=key)]
    return seen[-1].execution


def _rerun(key: str, task_id: str, mode: str, **fields: object) -> pb.RerunTaskRequest:
    values = {"idempotency_key": key, "task_id": task_id, "mode": f"RERUN_MODE_{mode}"}
    return pb.RerunTaskRequest(**(values | fields))  # type: ignore[arg-type]


async def test_reruns_take_over_what_their_mode_says(replica: Replica) -> None:
    """Failed items only, then from a step: each runs what it must, and joins old and new."""
    await replica.publish(FLOW)
    _, key = await replica.register("shop")
    bad = {"each[1]", "each[3]"}

    def work(run: node_pb.RunCommand) -> Fact:
        return broken() if name_of(run) in bad else echo(run)

    async with working(replica, work) as worker:
        made = await _create(replica, key)
        first = await _ended(replica, made.execution_id, key)
        bad.clear()
        worker.runs.clear()
        rerun = _rerun("items", made.task_id, "FAILED_ITEMS", reason="the disk was full")
        second = await replica.tasks.RerunTask(rerun, metadata=key)
        repaired = await _ended(replica, second.execution.execution_id, key)
        items, items_at_once = worker.ran, worker.live_max
        worker.runs.clear()
        third = await replica.tasks.RerunTask(
            _rerun("step", made.task_id, "FROM_STEP", step_key="sum"), metadata=key
        )
        again = await _ended(replica, third.execution.execution_id, key)
        replayed = await replica.tasks.RerunTask(rerun, metadata=key)
        steps = await replica.tasks.ListSteps(
            pb.ListStepsRequest(execution_id=third.execution.execution_id), metadata=key
        )
        timeline = await replica.tasks.ListTimeline(
            pb.ListTimelineRequest(execution_id=second.execution.execution_id), metadata=key
        )

    assert json.loads(first.output_json) == {"all": [{"n": 10}, None, {"n": 30}, None]}
    assert sorted(items) == ["each[1]", "each[3]", "sum"]
    assert items_at_once <= 2
    assert json.loads(repaired.output_json) == {"all": [{"n": n} for n in (10, 20, 30, 40)]}
    assert worker.ran == ["sum"]
    assert again.output_json == repaired.output_json
    assert replayed.outcome == mutation_pb2.MUTATION_OUTCOME_REPLAYED
    assert replayed.execution.execution_id == second.execution.execution_id
    origin = {name: one.reused_from_execution_id for one in steps.steps for name in [_name(one)]}
    assert origin["list"] == origin["each[0]"] == made.execution_id
    assert origin["each"] == origin["each[1]"] == second.execution.execution_id
    assert origin["sum"] == ""
    asked = timeline.entries[0]
    detail = json.loads(asked.detail_json)
    assert asked.type == "execution.rerun_requested"
    assert asked.actor.startswith("application:")
    assert (detail["reason"], detail["mode"]) == ("the disk was full", "FAILED_ITEMS")
    assert detail["from_execution_id"] == made.execution_id


async def test_a_failed_step_is_retried_with_what_succeeded(replica: Replica) -> None:
    """The rest of a failed run is taken over; a late result of the old attempt changes nothing."""
    await replica.publish(FLOW)
    _, key = await replica.register("shop")
    outcome: list[Fact] = [broken(), done('{"sum":1}')]

    def work(run: node_pb.RunCommand) -> Fact:
        return outcome.pop(0) if run.step_key == "sum" else echo(run)

    async with working(replica, work) as worker:
        made = await _create(replica, key)
        first = await _ended(replica, made.execution_id, key)
        old = next(run for run in worker.runs if run.step_key == "sum")
        worker.runs.clear()
        second = await replica.tasks.RerunTask(
            _rerun("r", made.task_id, "REUSE_SUCCEEDED"), metadata=key
        )
        await worker.end(old, done('{"late":true}'))
        repaired = await _ended(replica, second.execution.execution_id, key)
        old_run = await replica.tasks.GetExecution(
            pb.GetExecutionRequest(execution_id=made.execution_id), metadata=key
        )

    assert first.status == task_pb2.EXECUTION_STATUS_FAILED
    assert worker.ran == ["sum"]
    assert repaired.output_json == '{"sum":1}'
    assert old_run.execution.status == task_pb2.EXECUTION_STATUS_FAILED


async def test_reruns_are_refused_where_they_make_no_sense(replica: Replica) -> None:
    """Live runs, wrong steps, nothing to run; a run that is not current is answered."""
    await replica.publish(FLOW)
    _, key = await replica.register("shop")
    _, stranger = await replica.register("rival")
    rerun = replica.tasks.RerunTask

    def work(run: node_pb.RunCommand) -> Fact | None:
        return None if run.step_key == "list" else echo(run)

    async with working(replica, work) as worker:
        made = await _create(replica, key)
        task_id = made.task_id
        listing = await worker.held("list")
        live = await refused(rerun(_rerun("a", task_id, "REUSE_SUCCEEDED"), metadata=key))
        await worker.end(listing, done())
        await _ended(replica, made.execution_id, key)
        for request, code, reason in (
            (_rerun("b", task_id, "REUSE_SUCCEEDED"), "FAILED_PRECONDITION", "NOTHING_TO_RERUN"),
            (_rerun("c", task_id, "FAILED_ITEMS"), "FAILED_PRECONDITION", "NO_FAILED_ITEMS"),
            (_rerun("d", task_id, "FROM_STEP", step_key="x"), "NOT_FOUND", "STEP_NOT_FOUND"),
            (_rerun("e", task_id, "FROM_STEP"), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
            (
                _rerun("f", task_id, "FROM_SCRATCH", step_key="sum"),
                "INVALID_ARGUMENT",
                "INVALID_ARGUMENT",
            ),
            (_rerun("g", task_id, "UNSPECIFIED"), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
            (
                _rerun("h", task_id, "FROM_STEP", step_key="sum", reason="x" * 501),
                "INVALID_ARGUMENT",
                "INVALID_ARGUMENT",
            ),
        ):
            found, why, _ = await refused(rerun(request, metadata=key))
            assert (found.name, why) == (code, reason)
        foreign, _, _ = await refused(
            rerun(_rerun("i", task_id, "FAILED_ITEMS"), metadata=stranger)
        )
        second = await rerun(_rerun("j", task_id, "FROM_STEP", step_key="sum"), metadata=key)
        reused, why, _ = await refused(rerun(_rerun("j", task_id, "FROM_SCRATCH"), metadata=key))
        stale = await rerun(_rerun("k", task_id, "REUSE_SUCCEEDED", run=1), metadata=key)

    assert live[:2] == (grpc.StatusCode.FAILED_PRECONDITION, "RUN_NOT_TERMINAL")
    assert foreign is grpc.StatusCode.NOT_FOUND
    assert (reused, why) == (grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_KEY_REUSED")
    assert stale.outcome == mutation_pb2.MUTATION_OUTCOME_REPLAYED
    assert stale.execution.execution_id == second.execution.execution_id


async def test_artifacts_of_steps_that_are_taken_over_can_be_read(replica: Replica) -> None:
    """They count as committed, also through two reruns; those of a step that runs again do not."""
    await replica.publish(FLOW)
    async with serving_provider() as provider:
        _, key = await replica.register("shop", provider_url=provider.url)
        hold = False

        def work(run: node_pb.RunCommand) -> Fact | None:
            return None if hold and run.step_key == "sum" else echo(run)

        async with working(replica, work) as worker:
            made = await _create(replica, key)
            await _ended(replica, made.execution_id, key)
            for run in worker.runs:
                await _commit(replica, run, f"artifact:{name_of(run)}")
            second = await replica.tasks.RerunTask(
                _rerun("1", made.task_id, "FROM_STEP", step_key="sum"), metadata=key
            )
            await _ended(replica, second.execution.execution_id, key)
            hold = True
            await replica.tasks.RerunTask(
                _rerun("2", made.task_id, "FROM_STEP", step_key="sum"), metadata=key
            )
            held = await worker.held("sum")
            for name in ("list", "each[2]"):
                await worker.read(held, f"artifact:{name}")
            code, reason, _ = await refused(worker.read(held, "artifact:sum"))

    assert [one.resource_ref for one in provider.issued] == ["artifact:list", "artifact:each[2]"]
    assert (code, reason) == (grpc.StatusCode.PERMISSION_DENIED, "RESOURCE_NOT_REFERENCED")


async def _commit(replica: Replica, run: node_pb.RunCommand, resource_ref: str) -> None:
    """Let an attempt of an ended run have committed an artifact."""
    await replica.plane.database.fetch(
        """
        insert into artifacts (attempt_id, boot_id, relative_path, execution_id, step_key,
            item_index, collection_ref, resource_ref, type, media_type, size_bytes_max, status)
        values ($1, $1, 'a', $2, $3, $4, 'c', $5, 't', 'm', 9, 'COMMITTED')
        """,
        run.attempt_id,
        run.execution_id,
        run.step_key,
        run.item_index,
        resource_ref,
    )


def _name(step: task_pb2.Step) -> str:
    return step.step_key if step.item_index < 0 else f"{step.step_key}[{step.item_index}]"
