"""CreateTask is idempotent: repeated, it names what is there; changed, it is refused."""

from __future__ import annotations

import asyncio

import pytest

from foundation.errors import AlreadyExistsError
from tdp.control.v1 import mutation_pb2, task_pb2, task_service_pb2_grpc
from tdp.control.v1 import task_service_pb2 as tasks
from tests.acceptance.platform import World, tasks_of, unique
from tools.cli.connection import ControlPlane

# For machines that do much else; alone it takes a fraction.
pytestmark = pytest.mark.timeout(180)


async def create(
    control: ControlPlane, key: str, input_json: str = '{"number": 9007199254740993}'
) -> tasks.CreateTaskResponse:
    request = tasks.CreateTaskRequest(
        idempotency_key=key,
        name="five times",
        workflow_name="noop-pair",
        external_ref=key,
        input_json=input_json,
    )
    stub = task_service_pb2_grpc.TaskServiceStub(control.channel)
    return await control.ask(stub.CreateTask, request)


async def test_five_at_once_create_one(world: World) -> None:
    """The same CreateTask sent five times, at once, answers the same ids and creates one task."""
    key = unique("five")
    async with world.control(world.platform.client_key) as control:
        answers = await asyncio.gather(*(create(control, key) for _ in range(5)))
        known = await tasks_of(control, f'external_ref = "{key}"')
    assert len({(one.task_id, one.execution_id) for one in answers}) == 1
    outcomes = sorted(one.outcome for one in answers)
    assert outcomes == [mutation_pb2.MUTATION_OUTCOME_CREATED] + 4 * [
        mutation_pb2.MUTATION_OUTCOME_REPLAYED
    ]
    assert [one.task_id for one in known] == [answers[0].task_id]


async def test_another_body_is_refused(world: World) -> None:
    """Another body under the same key is ALREADY_EXISTS and names the existing task."""
    key = unique("other")
    async with world.control(world.platform.client_key) as control:
        first = await create(control, key)
        with pytest.raises(AlreadyExistsError) as refused:
            # Only an exact reading of the number tells it from the first one.
            await create(control, key, input_json='{"number": 9007199254740992}')
    assert refused.value.existing_id == first.task_id
    assert refused.value.reason == "IDEMPOTENCY_KEY_REUSED"


async def test_a_task_runs_to_its_output(world: World) -> None:
    """The task's two steps run in order, the output is exact, and `tdp task` shows it."""
    async with world.control(world.platform.client_key) as control:
        created = await create(control, unique("run"))
        watched = await world.tdp("task", "watch", created.task_id, "--json")
        assert watched.status == 0, watched.stderr
        stub = task_service_pb2_grpc.TaskServiceStub(control.channel)
        task = (await control.ask(stub.GetTask, tasks.GetTaskRequest(task_id=created.task_id))).task
    assert task.current_execution.status == task_pb2.EXECUTION_STATUS_SUCCEEDED
    assert task.current_execution.output_json == '{"number":9007199254740993}'
    shown = await world.tdp("task", "get", created.task_id, "--json")
    assert [one["status"] for one in shown.document["steps"]] == 2 * ["STEP_STATUS_SUCCEEDED"]
