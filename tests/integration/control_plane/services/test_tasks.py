"""TaskService over real gRPC, PostgreSQL and NATS."""

import asyncio

import grpc
import pytest

from tdp.control.v1 import application_service_pb2 as application_pb
from tdp.control.v1 import mutation_pb2, task_pb2
from tdp.control.v1 import task_service_pb2 as pb
from tests.fixtures.eventually import eventually
from tests.integration.control_plane.replica import Replica
from tests.integration.control_plane.services.errors import refused, task_request


async def test_the_same_request_five_times_answers_the_same_ids(replica: Replica) -> None:
    """The first call creates, four repeat its answer, also side by side."""
    await replica.publish()
    _, key = await replica.register("shop")

    answers = await asyncio.gather(
        *(replica.tasks.CreateTask(task_request("k"), metadata=key) for _ in range(5))
    )

    assert len({(one.task_id, one.execution_id) for one in answers}) == 1
    outcomes = [one.outcome for one in answers]
    assert outcomes.count(mutation_pb2.MUTATION_OUTCOME_CREATED) == 1


async def test_the_same_key_with_another_body_names_the_first_task(replica: Replica) -> None:
    """ALREADY_EXISTS carries the id of what the key stands for."""
    await replica.publish()
    _, key = await replica.register("shop")
    first = await replica.tasks.CreateTask(task_request("k"), metadata=key)

    code, reason, metadata = await refused(
        replica.tasks.CreateTask(task_request("k", name="other"), metadata=key)
    )

    assert (code, reason) == (grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_KEY_REUSED")
    assert metadata["existing_id"] == first.task_id


async def test_a_replay_still_answers_after_the_application_was_disabled(replica: Replica) -> None:
    """The key is looked up before any state that can change."""
    await replica.publish()
    application_id, key = await replica.register("shop")
    first = await replica.tasks.CreateTask(task_request("k"), metadata=key)
    await replica.applications.DisableApplication(
        application_pb.DisableApplicationRequest(
            idempotency_key="d", application_id=application_id
        ),
        metadata=replica.admin,
    )

    again = await replica.tasks.CreateTask(task_request("k"), metadata=key)
    code, reason, _ = await refused(replica.tasks.CreateTask(task_request("new"), metadata=key))

    assert again.task_id == first.task_id
    assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "APPLICATION_DISABLED")


@pytest.mark.parametrize(
    ("changes", "code", "reason"),
    [
        ({"idempotency_key": ""}, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        ({"name": "  "}, "INVALID_ARGUMENT", "TASK_INVALID"),
        ({"name": "x" * 201}, "INVALID_ARGUMENT", "TASK_INVALID"),
        ({"priority": 101}, "INVALID_ARGUMENT", "TASK_INVALID"),
        ({"workflow_name": "nothing"}, "NOT_FOUND", "WORKFLOW_NOT_FOUND"),
        ({"workflow_version": "9"}, "NOT_FOUND", "WORKFLOW_NOT_FOUND"),
        ({"input_json": '{"x":"one"}'}, "INVALID_ARGUMENT", "INPUT_INVALID"),
        ({"input_json": "{x}"}, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        ({"callback_url": "ftp://a/"}, "INVALID_ARGUMENT", "ENDPOINT_REFUSED"),
        ({"step_constraints_json": '{"c":{}}'}, "INVALID_ARGUMENT", "STEP_CONSTRAINTS_INVALID"),
        ({"labels": {"": "x"}}, "INVALID_ARGUMENT", "TASK_INVALID"),
        ({"labels": {"x": "a\x00"}}, "INVALID_ARGUMENT", "TASK_INVALID"),
        (
            {"application_id": "0190aaaa-0000-7000-8000-000000000009"},
            "NOT_FOUND",
            "APPLICATION_NOT_FOUND",
        ),
    ],
)
async def test_wrong_requests_are_refused_and_leave_nothing(
    replica: Replica, changes: dict[str, object], code: str, reason: str
) -> None:
    """Each wrong field gets its code and reason, and no task is stored."""
    await replica.publish()
    _, key = await replica.register("shop")

    found, why, _ = await refused(
        replica.tasks.CreateTask(task_request("k", **changes), metadata=key)
    )

    assert (found.name, why) == (code, reason)
    listed = await replica.tasks.ListTasks(pb.ListTasksRequest(), metadata=key)
    assert not listed.tasks


async def test_another_applications_task_does_not_exist(replica: Replica) -> None:
    """Every read and act on a stranger's task or execution is NOT_FOUND."""
    await replica.publish()
    _, owner = await replica.register("shop")
    _, stranger = await replica.register("rival")
    made = await replica.tasks.CreateTask(task_request("k"), metadata=owner)
    task_id, execution_id = made.task_id, made.execution_id
    stub = replica.tasks

    for call in (
        stub.GetTask(pb.GetTaskRequest(task_id=task_id), metadata=stranger),
        stub.ListExecutions(pb.ListExecutionsRequest(task_id=task_id), metadata=stranger),
        stub.GetExecution(pb.GetExecutionRequest(execution_id=execution_id), metadata=stranger),
        stub.ListSteps(pb.ListStepsRequest(execution_id=execution_id), metadata=stranger),
        stub.ListAttempts(pb.ListAttemptsRequest(execution_id=execution_id), metadata=stranger),
        stub.ListTimeline(pb.ListTimelineRequest(execution_id=execution_id), metadata=stranger),
        stub.ListExecutionEvents(
            pb.ListExecutionEventsRequest(execution_id=execution_id), metadata=stranger
        ),
        stub.CancelTask(
            pb.CancelTaskRequest(idempotency_key="c", task_id=task_id), metadata=stranger
        ),
        stub.RerunTask(
            pb.RerunTaskRequest(
                idempotency_key="r", task_id=task_id, mode=pb.RERUN_MODE_FROM_SCRATCH
            ),
            metadata=stranger,
        ),
        stub.SignalStep(
            pb.SignalStepRequest(idempotency_key="s", execution_id=execution_id, step_key="a"),
            metadata=stranger,
        ),
        stub.SkipStep(
            pb.SkipStepRequest(idempotency_key="s", execution_id=execution_id, step_key="a"),
            metadata=stranger,
        ),
        stub.PauseExecution(
            pb.PauseExecutionRequest(idempotency_key="p", execution_id=execution_id),
            metadata=stranger,
        ),
        stub.ResumeExecution(
            pb.ResumeExecutionRequest(idempotency_key="r", execution_id=execution_id),
            metadata=stranger,
        ),
        stub.WatchExecution(
            pb.WatchExecutionRequest(execution_id=execution_id), metadata=stranger
        ).read(),
    ):
        code, _, _ = await refused(call)
        assert code is grpc.StatusCode.NOT_FOUND
    listed = await stub.ListTasks(pb.ListTasksRequest(), metadata=stranger)
    assert not listed.tasks


async def test_no_key_and_a_wrong_key_are_unauthenticated(replica: Replica) -> None:
    """A call needs a key that is registered and not revoked."""
    for metadata in ((), (("authorization", "Bearer tdp_key_" + "x" * 43),)):
        code, _, _ = await refused(
            replica.tasks.ListTasks(pb.ListTasksRequest(), metadata=metadata)
        )
        assert code is grpc.StatusCode.UNAUTHENTICATED


async def test_tasks_are_listed_in_pages_newest_first_and_filtered(replica: Replica) -> None:
    """Pages join without a gap; a filter narrows them; a token fits its own list only."""
    await replica.publish()
    _, key = await replica.register("shop")
    made = [
        await replica.tasks.CreateTask(
            task_request(f"k{number}", labels={"parity": str(number % 2)}), metadata=key
        )
        for number in range(5)
    ]
    seen: list[str] = []
    token = ""
    while True:
        page = await replica.tasks.ListTasks(
            pb.ListTasksRequest(page_size=2, page_token=token), metadata=key
        )
        seen += [task.task_id for task in page.tasks]
        token = page.next_page_token
        if not token:
            break
    odd = await replica.tasks.ListTasks(
        pb.ListTasksRequest(filter='labels.parity = "1"'), metadata=key
    )
    first = await replica.tasks.ListTasks(pb.ListTasksRequest(page_size=2), metadata=key)
    code, reason, _ = await refused(
        replica.tasks.ListTasks(
            pb.ListTasksRequest(page_token=first.next_page_token, filter="external_ref = a"),
            metadata=key,
        )
    )

    assert seen == [one.task_id for one in reversed(made)]
    assert {task.name for task in odd.tasks} == {"hello"}
    assert len(odd.tasks) == 2
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID")


async def test_cancel_ends_what_nobody_runs_and_a_rerun_starts_anew(replica: Replica) -> None:
    """A queued task is cancelled, watched to its end, and run again; both acts replay."""
    await replica.publish()
    _, key = await replica.register("shop")
    made = await replica.tasks.CreateTask(task_request("k"), metadata=key)
    early, _, _ = await refused(
        replica.tasks.RerunTask(
            pb.RerunTaskRequest(
                idempotency_key="early",
                task_id=made.task_id,
                mode=pb.RERUN_MODE_FROM_SCRATCH,
            ),
            metadata=key,
        )
    )
    cancel = pb.CancelTaskRequest(idempotency_key="c", task_id=made.task_id, reason="changed mind")
    canceled = await replica.tasks.CancelTask(cancel, metadata=key)
    watched = [
        one
        async for one in replica.tasks.WatchExecution(
            pb.WatchExecutionRequest(execution_id=made.execution_id), metadata=key
        )
    ]
    again = await replica.tasks.CancelTask(cancel, metadata=key)
    rerun = pb.RerunTaskRequest(
        idempotency_key="r", task_id=made.task_id, mode=pb.RERUN_MODE_FROM_SCRATCH
    )
    second = await replica.tasks.RerunTask(rerun, metadata=key)
    repeated = await replica.tasks.RerunTask(rerun, metadata=key)
    stale = await replica.tasks.CancelTask(
        pb.CancelTaskRequest(idempotency_key="c1", task_id=made.task_id, run=1), metadata=key
    )

    assert early is grpc.StatusCode.FAILED_PRECONDITION
    assert canceled.outcome == mutation_pb2.MUTATION_OUTCOME_CREATED
    assert [one.event.sequence for one in watched] == list(range(1, len(watched) + 1))
    assert watched[-1].event.type == "execution.canceled"
    assert again.outcome == mutation_pb2.MUTATION_OUTCOME_REPLAYED
    assert second.execution.run == 2
    assert repeated.execution.execution_id == second.execution.execution_id
    assert stale.execution.status == task_pb2.EXECUTION_STATUS_CANCELED
    assert stale.execution.run == 1


async def test_a_watch_resumes_after_a_sequence_and_refuses_the_future(replica: Replica) -> None:
    """Only later events are sent; a sequence that is not reached is out of range."""
    await replica.publish()
    _, key = await replica.register("shop")
    made = await replica.tasks.CreateTask(task_request("k"), metadata=key)
    await replica.tasks.CancelTask(
        pb.CancelTaskRequest(idempotency_key="c", task_id=made.task_id), metadata=key
    )
    resumed = [
        one.event.sequence
        async for one in replica.tasks.WatchExecution(
            pb.WatchExecutionRequest(execution_id=made.execution_id, after_sequence=1),
            metadata=key,
        )
    ]
    code, _, _ = await refused(
        replica.tasks.WatchExecution(
            pb.WatchExecutionRequest(execution_id=made.execution_id, after_sequence=99),
            metadata=key,
        ).read()
    )

    assert resumed[0] == 2
    assert code is grpc.StatusCode.OUT_OF_RANGE


async def test_what_waits_says_why(replica: Replica) -> None:
    """A step without a node explains itself, and its execution says the same."""
    await replica.publish()
    _, key = await replica.register("shop")
    made = await replica.tasks.CreateTask(task_request("k"), metadata=key)
    request = pb.GetTaskRequest(task_id=made.task_id)

    async def waiting_sentence() -> str:
        shown = await replica.tasks.GetTask(request, metadata=key)
        return shown.task.current_execution.waiting_for

    waiting = await eventually(waiting_sentence)
    steps = await replica.tasks.ListSteps(
        pb.ListStepsRequest(execution_id=made.execution_id), metadata=key
    )

    assert waiting.startswith("Step a waits for a node since")
    assert waiting == f"Step a w{steps.steps[0].waiting_for[1:]}"
    assert "enrol one that offers noop 1" in waiting
