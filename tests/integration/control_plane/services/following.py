"""Following executions in the tests of TaskService: to an end, to a state, by their facts."""

import json
from typing import Any

from tdp.control.v1 import task_pb2
from tdp.control.v1 import task_service_pb2 as pb
from tests.fixtures.eventually import eventually
from tests.integration.control_plane.replica import Metadata, Replica
from tests.integration.control_plane.services.errors import task_request


async def create(
    replica: Replica, key: Metadata, *, workflow: str = "flow", input_json: str = "{}"
) -> pb.CreateTaskResponse:
    """Create a task of a published workflow, with a key of its own."""
    request = task_request(
        replica.plane.ids.new_id(), workflow_name=workflow, input_json=input_json
    )
    return await replica.tasks.CreateTask(request, metadata=key)


async def ended(replica: Replica, execution_id: str, key: Metadata) -> task_pb2.Execution:
    """Watch the execution to its end."""
    request = pb.WatchExecutionRequest(execution_id=execution_id)
    seen = [one async for one in replica.tasks.WatchExecution(request, metadata=key)]
    return seen[-1].execution


async def steps_of(replica: Replica, execution_id: str) -> dict[str, task_pb2.Step]:
    """Read the step instances, as `key` or `key[index]`."""
    request = pb.ListStepsRequest(execution_id=execution_id, page_size=1000)
    answer = await replica.tasks.ListSteps(request, metadata=replica.admin)
    return {
        one.step_key if one.item_index < 0 else f"{one.step_key}[{one.item_index}]": one
        for one in answer.steps
    }


async def statuses_of(replica: Replica, execution_id: str) -> dict[str, str]:
    """Read the step instances' statuses."""
    found = await steps_of(replica, execution_id)
    return {
        name: task_pb2.StepStatus.Name(one.status).removeprefix("STEP_STATUS_")
        for name, one in found.items()
    }


async def until(replica: Replica, execution_id: str, name: str, status: str) -> task_pb2.Step:
    """Wait until a step instance has the status."""

    async def reached() -> bool:
        return (await statuses_of(replica, execution_id)).get(name) == status

    await eventually(reached)
    return (await steps_of(replica, execution_id))[name]


async def told(replica: Replica, execution_id: str, kind: str) -> list[tuple[str, Any]]:
    """Read the timeline's entries of a type: who, and the detail."""
    answer = await replica.tasks.ListTimeline(
        pb.ListTimelineRequest(execution_id=execution_id), metadata=replica.admin
    )
    return [(one.actor, json.loads(one.detail_json)) for one in answer.entries if one.type == kind]
