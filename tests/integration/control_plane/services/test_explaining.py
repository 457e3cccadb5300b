"""ExplainScheduling and the warnings of CreateTask over a whole replica."""

import grpc

from tdp.control.v1 import task_service_pb2 as pb
from tests.integration.control_plane.replica import Replica
from tests.integration.control_plane.services.errors import refused, task_request


async def test_what_no_node_could_do_is_said_at_once_and_explained_later(
    replica: Replica,
) -> None:
    """CreateTask warns, also in its replay; the steps explain themselves; strangers see nothing."""
    await replica.publish()
    _, key = await replica.register("shop")
    _, stranger = await replica.register("rival")
    made = await replica.tasks.CreateTask(task_request("k"), metadata=key)
    again = await replica.tasks.CreateTask(task_request("k"), metadata=key)
    assert [one.split(":")[0] for one in made.warnings] == ["Step a", "Step b"]
    assert list(again.warnings) == list(made.warnings)

    def request(step_key: str, item_index: int = -1) -> pb.ExplainSchedulingRequest:
        return pb.ExplainSchedulingRequest(
            execution_id=made.execution_id, step_key=step_key, item_index=item_index
        )

    ready = await replica.tasks.ExplainScheduling(request("a", 0), metadata=key)
    later = await replica.tasks.ExplainScheduling(request("b"), metadata=key)
    hidden = await refused(replica.tasks.ExplainScheduling(request("a"), metadata=stranger))
    unknown = await refused(replica.tasks.ExplainScheduling(request("z"), metadata=key))

    assert ready.summary.startswith("Step a ")
    assert ready.never_satisfiable
    assert not ready.nodes
    assert later.summary == "Step b waits for a to complete."
    assert hidden[:2] == (grpc.StatusCode.NOT_FOUND, "EXECUTION_NOT_FOUND")
    assert unknown[:2] == (grpc.StatusCode.NOT_FOUND, "STEP_NOT_FOUND")
