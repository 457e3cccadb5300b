"""What a person with a key can do with grpcurl or buf alike, without any file of ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.clients import WORKFLOW_FILE, Outcome, Target, buf_curl, grpcurl

pytestmark = [
    pytest.mark.interop,
    pytest.mark.parametrize("call", [buf_curl, grpcurl], ids=["buf", "grpcurl"]),
]

Call = Callable[..., Outcome]
TASKS = "tdp.control.v1.TaskService"
WORKFLOWS = "tdp.control.v1.WorkflowService"


def field(document: dict[str, Any], name: str) -> Any:  # noqa: ANN401 - what JSON holds
    """Read a field by its proto name, or by its JSON name, which buf shows.

    Python's descriptors leave out json_name, and this grpcurl then shows fields by proto names.
    """
    first, *rest = name.split("_")
    return document[name] if name in document else document[first + "".join(map(str.title, rest))]


def test_health_is_told(target: Target, call: Call) -> None:
    """The server as a whole, and each service, say that they are serving."""
    for service in ("", TASKS, WORKFLOWS):
        answer = call(target, "grpc.health.v1.Health/Check", request={"service": service})
        assert answer.document == {"status": "SERVING"}


def test_the_same_content_is_published_again(target: Target, call: Call) -> None:
    """An operator's key publishes a workflow; what is published already is not changed."""
    answer = call(
        target,
        f"{WORKFLOWS}/PublishWorkflow",
        request={"definition": WORKFLOW_FILE.read_text(encoding="utf-8")},
        key=target.admin_key,
    ).document
    assert answer["workflow"]["name"] == "interop-two-steps"
    assert answer["workflow"]["version"] == "1"
    assert "changed" not in answer


def test_a_task_is_created_and_watched(target: Target, call: Call, key: str) -> None:
    """A task goes from CreateTask over the stream of its events to its output, digits kept."""

    def asked(method: str, **request: object) -> Outcome:
        return call(target, f"{TASKS}/{method}", request=request, key=target.client_key)

    created = asked(
        "CreateTask",
        idempotency_key=key,
        name="from the command line",
        workflow_name="interop-two-steps",
        input_json='{"value": 9007199254740993}',
    ).document
    assert created["outcome"] == "MUTATION_OUTCOME_CREATED"
    watched = asked("WatchExecution", execution_id=field(created, "execution_id")).documents
    events = [message["event"] for message in watched]
    assert [int(event["sequence"]) for event in events] == list(range(1, len(events) + 1))
    assert events[0]["type"] == "execution.created"
    assert events[-1]["type"] == "execution.succeeded"
    task = asked("GetTask", task_id=field(created, "task_id")).document["task"]
    execution = field(task, "current_execution")
    assert execution["status"] == "EXECUTION_STATUS_SUCCEEDED"
    assert json.loads(field(execution, "output_json")) == {"value": 9007199254740993}
