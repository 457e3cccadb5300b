"""Wrong input at each entrance is refused with the reason and the field: REST, gRPC, CLI, files."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from foundation.errors import InvalidArgumentError, NotFoundError, TdpError, UnauthenticatedError
from tdp.control.v1 import task_service_pb2 as tasks
from tdp.control.v1 import task_service_pb2_grpc, workflow_service_pb2_grpc
from tdp.control.v1 import workflow_service_pb2 as workflows
from tests.acceptance.platform import World, tiny_zip, unique

# For machines that do much else; alone it takes a fraction.
pytestmark = pytest.mark.timeout(180)

CYCLE = """
name: cycle
version: "1"
steps:
  - {key: first, capability: noop, capability_version: "1", depends_on: [third]}
  - {key: second, capability: noop, capability_version: "1", depends_on: [first]}
  - {key: third, capability: noop, capability_version: "1", depends_on: [second]}
"""


async def rest_problem(
    world: World, method: str, path: str, headers: dict[str, str], body: object
) -> tuple[int, dict[str, object]]:
    url = f"{world.connection.gateway_url}/api/v1{path}"
    known = {"authorization": f"Bearer {world.connection.gateway_key}"}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, json=body, headers={**known, **headers}) as answer,
    ):
        assert answer.content_type == "application/problem+json"
        return answer.status, await answer.json(content_type=None)


ORDER = {
    "name": "x",
    "processing_mode": "ARCHIVE_CLEAN_ONLY",
    "watermark_text": "",
    "source_asset_id": "0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f",
}


@pytest.mark.parametrize(
    ("change", "headers", "status", "field"),
    [
        ({"name": "   "}, {"idempotency-key": "k"}, 422, "/name"),
        ({"processing_mode": "SHRED"}, {"idempotency-key": "k"}, 422, "/processing_mode"),
        ({"watermark_text": "not here"}, {"idempotency-key": "k"}, 422, "/watermark_text"),
        (
            {"processing_mode": "ARCHIVE_CLEAN_THEN_WATERMARK", "watermark_text": "图" * 101},
            {"idempotency-key": "k"},
            422,
            "/watermark_text",
        ),
        ({}, {}, 400, ""),
    ],
)
async def test_rest_names_the_field(
    world: World, change: dict[str, str], headers: dict[str, str], status: int, field: str
) -> None:
    """A wrong order is a problem document with the pointer of the field; no key is 400."""
    answered, problem = await rest_problem(world, "POST", "/orders", headers, {**ORDER, **change})
    assert answered == status, problem
    pointers = [one["pointer"] for one in problem.get("errors", [])]  # type: ignore[attr-defined]
    assert not field or field in pointers


async def test_rest_refuses_a_key_for_another_order(world: World) -> None:
    """The same Idempotency-Key with another payload is 422, and the first answer is kept."""
    key = unique("rest")
    async with world.gateway() as client:
        asset_id = await world.upload(client, tiny_zip())
        first = await world.place(client, asset_id, key=key)
        again = await world.place(client, asset_id, key=key)
        assert again["order_id"] == first["order_id"]
        body = {**ORDER, "name": "another", "source_asset_id": asset_id}
        status, problem = await rest_problem(
            world, "POST", "/orders", {"idempotency-key": key}, body
        )
    assert (status, problem["reason"]) == (422, "IDEMPOTENCY_KEY_REUSED")


async def test_rest_wants_a_valid_key(world: World) -> None:
    """A wrong API key is 401 and says nothing more."""
    status, problem = await rest_problem(
        world, "GET", "/orders", {"authorization": "Bearer wrong"}, None
    )
    assert (status, problem["reason"]) == (401, "CREDENTIAL_REFUSED")


@pytest.mark.parametrize(
    ("fields", "kind", "named"),
    [
        ({"idempotency_key": ""}, InvalidArgumentError, "idempotency_key"),
        ({"name": " "}, InvalidArgumentError, "name"),
        ({"priority": 101}, InvalidArgumentError, "priority"),
        ({"input_json": '{"number": "three"}'}, InvalidArgumentError, "input"),
        ({"input_json": "{"}, InvalidArgumentError, "input"),
        ({"workflow_name": "no-such-workflow"}, NotFoundError, ""),
        (
            {"step_constraints_json": '{"third": {"group": "a"}}'},
            InvalidArgumentError,
            "step_constraints",
        ),
    ],
)
async def test_grpc_names_the_field(
    world: World, fields: dict[str, object], kind: type[TdpError], named: str
) -> None:
    """A wrong CreateTask is refused with its code, and the field violation names the field."""
    request = tasks.CreateTaskRequest(
        idempotency_key=unique("wrong"),
        name="wrong",
        workflow_name="noop-pair",
        input_json='{"number": 1}',
    )
    for name, value in fields.items():
        setattr(request, name, value)
    async with world.control(world.platform.client_key) as control:
        stub = task_service_pb2_grpc.TaskServiceStub(control.channel)
        with pytest.raises(kind) as refused:
            await control.ask(stub.CreateTask, request)
    if named:
        assert any(one.field.startswith(named) for one in refused.value.field_violations)


async def test_grpc_wants_a_valid_key(world: World) -> None:
    """An unknown API key is UNAUTHENTICATED."""
    async with world.control("tdp_key_wrong") as control:
        stub = task_service_pb2_grpc.TaskServiceStub(control.channel)
        with pytest.raises(UnauthenticatedError):
            await control.ask(stub.ListTasks, tasks.ListTasksRequest())


async def test_a_workflow_file_with_a_cycle(world: World, tmp_path: Path) -> None:
    """Publishing a cycle is refused, by RPC and by `tdp workflow publish`, naming its steps."""
    path = tmp_path / "cycle.yaml"
    path.write_text(CYCLE)
    async with world.control() as control:
        stub = workflow_service_pb2_grpc.WorkflowServiceStub(control.channel)
        with pytest.raises(InvalidArgumentError, match="first"):
            await control.ask(
                stub.PublishWorkflow, workflows.PublishWorkflowRequest(definition=CYCLE)
            )
    refused = await world.tdp("workflow", "publish", str(path))
    assert refused.status == 2
    for step in ("first", "second", "third"):
        assert step in refused.stderr


async def test_cli_says_what_is_wrong(world: World, tmp_path: Path) -> None:
    """The command line ends with 2 for what is refused and with 3 for what does not answer."""
    not_a_zip = tmp_path / "fake.zip"
    not_a_zip.write_bytes(b"<html>an error page</html>")
    refused = await world.tdp("order", "create", str(not_a_zip))
    assert (refused.status, "ZIP" in refused.stderr) == (2, True)
    unknown = await world.tdp("order", "get", "0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f")
    assert (unknown.status, "ORDER_NOT_FOUND" in unknown.stderr) == (2, True)
    silent = await world.tdp("node", "list", environment={"TDP_CLI_CONTROL_TARGET": "127.0.0.1:9"})
    assert (silent.status, "UNAVAILABLE" in silent.stderr) == (3, True)
    unheard = await world.tdp("order", "frobnicate")
    assert unheard.status == 2


async def test_a_bad_archive_needs_attention(world: World) -> None:
    """A damaged ZIP makes the order NEEDS_ATTENTION with the capability's reason, and status 4."""
    damaged = Path(__file__).parents[1] / "cases" / "zip" / "bad-crc.zip"
    answered = await world.tdp("order", "create", str(damaged), "--wait", "--json")
    assert answered.status == 4, answered.stderr
    assert answered.document["status"] == "NEEDS_ATTENTION"
    assert "ARCHIVE_CRC_MISMATCH" in str(answered.document["diagnosis_json"])
