"""What buf shows in its own way: services, methods, errors."""

from __future__ import annotations

import json

import pytest

from tests.interop.clients import Target, buf_curl

pytestmark = pytest.mark.interop

TASKS = "tdp.control.v1.TaskService"
WORKFLOWS = "tdp.control.v1.WorkflowService"


def test_buf_lists_services_and_methods(target: Target) -> None:
    """Reflection names the services and the RPCs of each."""
    services = buf_curl(target, "", "--list-services").output.split()
    assert {TASKS, WORKFLOWS, "grpc.health.v1.Health"} <= set(services)
    methods = buf_curl(target, "", "--list-methods").output.split()
    assert {f"{TASKS}/CreateTask", f"{TASKS}/WatchExecution"} <= set(methods)


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
