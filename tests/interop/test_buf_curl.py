"""What a person with buf and a key can do, without any file of ours."""

from __future__ import annotations

import json

import pytest

from tests.interop.clients import WORKFLOW_FILE, Target, buf_curl

pytestmark = pytest.mark.interop

TASKS = "tdp.control.v1.TaskService"
WORKFLOWS = "tdp.control.v1.WorkflowService"


def test_buf_lists_services_and_methods(target: Target) -> None:
    """Reflection names the services and the RPCs of each."""
    services = buf_curl(target, "", "--list-services").output.split()
    assert {TASKS, WORKFLOWS, "grpc.health.v1.Health"} <= set(services)
    methods = buf_curl(target, "", "--list-methods").output.split()
    assert {f"{TASKS}/CreateTask", f"{TASKS}/WatchExecution"} <= set(methods)


def test_buf_asks_for_health(target: Target) -> None:
    """The server says that it is serving."""
    answer = buf_curl(target, "grpc.health.v1.Health/Check", request={})
    assert answer.document == {"status": "SERVING"}


def test_buf_publishes_a_workflow(target: Target) -> None:
    """An operator's key publishes; the same content again changes nothing."""
    definition = WORKFLOW_FILE.read_text(encoding="utf-8")
    answer = buf_curl(
        target,
        f"{WORKFLOWS}/PublishWorkflow",
        request={"definition": definition},
        key=target.admin_key,
    ).document
    assert answer["workflow"]["version"] == "1"
    assert "changed" not in answer


def test_buf_creates_a_task_and_watches_it(target: Target, key: str) -> None:
    """A task goes from CreateTask over the stream of its events to its output."""
    request = {
        "idempotency_key": key,
        "name": "from buf",
        "workflow_name": "interop-two-steps",
        "input_json": '{"value": 7}',
    }
    created = buf_curl(
        target, f"{TASKS}/CreateTask", request=request, key=target.client_key
    ).document
    assert created["outcome"] == "MUTATION_OUTCOME_CREATED"
    messages = buf_curl(
        target,
        f"{TASKS}/WatchExecution",
        request={"execution_id": created["executionId"]},
        key=target.client_key,
    ).documents
    assert messages[-1]["event"]["type"] == "execution.succeeded"
    found = buf_curl(
        target,
        f"{TASKS}/GetTask",
        request={"task_id": created["taskId"]},
        key=target.client_key,
    ).document
    assert json.loads(found["task"]["currentExecution"]["outputJson"]) == {"value": 7}


def test_buf_shows_the_details_of_an_error(target: Target) -> None:
    """A refusal shows its code, and the reason and domain of its ErrorInfo."""
    answer = buf_curl(
        target,
        f"{TASKS}/GetTask",
        request={"task_id": "01890000-0000-7000-8000-000000000000"},
        key=target.client_key,
    )
    assert answer.status != 0
    error = json.loads(answer.errors)
    assert error["code"] == "not_found"
    assert {detail["type"] for detail in error["details"]} >= {"google.rpc.ErrorInfo"}
