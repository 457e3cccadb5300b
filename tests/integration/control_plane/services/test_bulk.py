"""BulkCancelTasks and BulkRerunTasks over real gRPC: what they change, refuse and repeat."""

import grpc

from tdp.control.v1 import application_service_pb2 as application_pb
from tdp.control.v1 import mutation_pb2
from tdp.control.v1 import task_service_pb2 as pb
from tests.fixtures.eventually import eventually
from tests.integration.control_plane.replica import Metadata, Replica
from tests.integration.control_plane.services.errors import refused, task_request

CREATED, REPLAYED = (
    mutation_pb2.MUTATION_OUTCOME_CREATED,
    mutation_pb2.MUTATION_OUTCOME_REPLAYED,
)


async def _create(replica: Replica, key: Metadata, count: int, batch: str = "x") -> list[str]:
    made = [
        await replica.tasks.CreateTask(
            task_request(f"{batch}{number}", labels={"batch": batch}), metadata=key
        )
        for number in range(count)
    ]
    return [one.task_id for one in made]


async def _count(replica: Replica, key: Metadata, text: str) -> int:
    answer = await replica.tasks.ListTasks(pb.ListTasksRequest(filter=text), metadata=key)
    return len(answer.tasks)


async def test_a_batch_is_counted_cancelled_and_run_again(replica: Replica) -> None:
    """A dry run counts, the act changes the caller's own only, and a repetition tells the same."""
    await replica.publish()
    _, key = await replica.register("shop")
    _, rival = await replica.register("rival")
    await _create(replica, key, 3)
    await _create(replica, key, 1, "y")
    await _create(replica, rival, 1)
    cancel = pb.BulkCancelTasksRequest(
        idempotency_key="c", filter="labels.batch = x", dry_run=True, reason="wrong price list"
    )
    counted = await replica.tasks.BulkCancelTasks(cancel, metadata=key)
    cancel.dry_run = False
    canceled = await replica.tasks.BulkCancelTasks(cancel, metadata=key)
    repeated = await replica.tasks.BulkCancelTasks(cancel, metadata=key)

    assert (counted.matched_count, counted.changed_count, counted.has_more) == (3, 0, False)
    assert (canceled.matched_count, canceled.changed_count, canceled.outcome) == (3, 3, CREATED)
    assert (repeated.matched_count, repeated.changed_count, repeated.outcome) == (3, 3, REPLAYED)

    async def ended() -> bool:
        return await _count(replica, key, "status = CANCELED") == 3

    await eventually(ended)
    rerun = pb.BulkRerunTasksRequest(
        idempotency_key="r", filter="status = CANCELED", mode=pb.RERUN_MODE_FROM_SCRATCH
    )
    again = await replica.tasks.BulkRerunTasks(rerun, metadata=key)
    once = await replica.tasks.BulkRerunTasks(rerun, metadata=key)
    shown = await replica.tasks.ListTasks(
        pb.ListTasksRequest(filter="labels.batch = x"), metadata=key
    )
    timeline = await replica.tasks.ListTimeline(
        pb.ListTimelineRequest(execution_id=shown.tasks[0].current_execution.execution_id),
        metadata=key,
    )
    cancels_of_rival = await _count(replica, rival, "status = CANCELED OR status = CANCELING")

    assert (again.matched_count, again.changed_count, again.outcome) == (3, 3, CREATED)
    assert (again.refused_count, again.has_more) == (0, False)
    assert (once.changed_count, once.outcome) == (3, REPLAYED)
    assert [one.current_execution.run for one in shown.tasks] == [2, 2, 2]
    assert "execution.rerun_requested" in {one.type for one in timeline.entries}
    assert cancels_of_rival == 0


async def test_wrong_bulk_requests_are_refused(replica: Replica) -> None:
    """Each wrong field gets its code and reason, a key stands for one request, a scope counts."""
    application_id, key = await replica.register("shop")
    reader = await replica.key_of(application_id, application_pb.API_KEY_SCOPE_READ)
    cancel, rerun = replica.tasks.BulkCancelTasks, replica.tasks.BulkRerunTasks
    good = pb.BulkCancelTasksRequest(idempotency_key="k", filter="workflow = a")
    await cancel(good, metadata=key)
    wrong = [
        ({"filter": ""}, "INVALID_ARGUMENT", "FILTER_INVALID"),
        ({"filter": "color = red"}, "INVALID_ARGUMENT", "FILTER_INVALID"),
        ({"idempotency_key": ""}, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        ({"reason": "x" * 501}, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        ({"filter": "status = QUEUED"}, "ALREADY_EXISTS", "IDEMPOTENCY_KEY_REUSED"),
    ]
    for changes, code, reason in wrong:
        request = pb.BulkCancelTasksRequest()
        request.CopyFrom(good)
        for field, value in changes.items():
            setattr(request, field, value)
        found = await refused(cancel(request, metadata=key))
        assert (found[0].name, found[1]) == (code, reason), changes
    for mode in (pb.RERUN_MODE_UNSPECIFIED, pb.RERUN_MODE_FROM_STEP):
        again = pb.BulkRerunTasksRequest(idempotency_key="r", filter="workflow = a", mode=mode)
        found = await refused(rerun(again, metadata=key))
        assert found[0] is grpc.StatusCode.INVALID_ARGUMENT
    denied = await refused(cancel(good, metadata=reader))
    good.application_id = "nobody"
    unnamed = await refused(cancel(good, metadata=replica.admin))

    assert denied[:2] == (grpc.StatusCode.PERMISSION_DENIED, "SCOPE_MISSING")
    assert unnamed[0] is grpc.StatusCode.INVALID_ARGUMENT
