"""What grpcurl shows in its own way: descriptions, new workflows, errors."""

from __future__ import annotations

import json
import uuid

import pytest

from tests.interop.clients import Target, grpcurl

pytestmark = pytest.mark.interop

TASKS = "tdp.control.v1.TaskService"
WORKFLOWS = "tdp.control.v1.WorkflowService"


def test_grpcurl_lists_every_service(target: Target) -> None:
    """Reflection needs no key and names the services, their health and itself."""
    listed = grpcurl(target, "list").output.split()
    assert set(listed) >= {
        TASKS,
        WORKFLOWS,
        "tdp.control.v1.ApplicationService",
        "tdp.control.v1.NodeAdminService",
        "tdp.control.v1.SystemService",
        "tdp.node.v1.NodeService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


def test_grpcurl_describes_rpcs_and_messages(target: Target) -> None:
    """Services, methods and messages are described as the contract has them."""
    service = grpcurl(target, "describe", TASKS).output
    assert "rpc WatchExecution" in service
    assert "returns ( stream .tdp.control.v1.WatchExecutionResponse )" in service
    message = grpcurl(target, "describe", "tdp.control.v1.CreateTaskRequest").output
    assert "string idempotency_key = 1;" in message


def test_grpcurl_publishes_a_new_workflow(target: Target) -> None:
    """A new name is stored, and the answer shows its digest."""
    name = f"interop-{uuid.uuid4()}"
    steps = [{"key": "only", "capability": "noop", "capability_version": "1"}]
    definition = json.dumps({"name": name, "version": "1", "steps": steps})
    answer = grpcurl(
        target,
        f"{WORKFLOWS}/PublishWorkflow",
        request={"definition": definition},
        key=target.admin_key,
    ).document
    assert answer["changed"] is True
    assert len(answer["workflow"]["digest"]) == 64


def test_grpcurl_shows_the_details_of_an_error(target: Target) -> None:
    """A refusal names its code, and its ErrorInfo is decoded by reflection."""
    answer = grpcurl(
        target,
        f"{TASKS}/GetTask",
        request={"task_id": "01890000-0000-7000-8000-000000000000"},
        key=target.client_key,
    )
    assert answer.status != 0
    assert "Code: NotFound" in answer.errors
    assert "google.rpc.ErrorInfo" in answer.errors
    assert '"domain":"tdp"' in answer.errors.replace(" ", "")


def test_grpcurl_shows_which_field_was_wrong(target: Target, key: str) -> None:
    """Wrong input is refused with the field's name in a BadRequest."""
    answer = grpcurl(
        target,
        f"{TASKS}/CreateTask",
        request={"idempotency_key": key, "workflow_name": "interop-two-steps"},
        key=target.client_key,
    )
    assert "Code: InvalidArgument" in answer.errors
    assert "google.rpc.BadRequest" in answer.errors
    assert '"field":"name"' in answer.errors.replace(" ", "")


def test_grpcurl_without_a_key_is_refused(target: Target) -> None:
    """Only health and reflection are open."""
    answer = grpcurl(target, f"{TASKS}/ListTasks", request={})
    assert "Code: Unauthenticated" in answer.errors
