"""`tdp application`, `tdp callback` and the bulk forms of `tdp task` against a whole replica."""

import json
from pathlib import Path
from typing import Any

import pytest

from foundation.errors import InvalidArgumentError, NotFoundError
from foundation.signatures import SigningSecret
from tdp.control.v1 import application_service_pb2 as application_pb
from tdp.control.v1 import task_service_pb2 as pb
from tests.integration.control_plane.replica import SECRET, Replica, metadata_of
from tests.integration.control_plane.services.endpoint import http_endpoint
from tests.integration.control_plane.services.errors import task_request
from tools.cli import output
from tools.cli.commands import application, callback, task_operations
from tools.cli.commands.application import Scope, Side
from tools.cli.commands.bulk import act_on_all


class Typed:
    """Runs the coroutines behind the commands as the operator, and reads what they wrote."""

    def __init__(
        self,
        replica: Replica,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self._capsys = capsys
        # Whatever runs the tests may say that its terminal is narrow, and cells would fold.
        monkeypatch.setattr(output.out, "width", 200)
        monkeypatch.setenv("TDP_CLI_CONTROL_TARGET", f"127.0.0.1:{replica.plane.server.port}")
        key = replica.admin[0][1].removeprefix("Bearer ")
        monkeypatch.setenv("TDP_CLI_CONTROL_KEY", key)

    def document(self) -> Any:  # noqa: ANN401 - a document
        return json.loads(self.text().splitlines()[-1])

    def text(self) -> str:
        return self._capsys.readouterr().out


async def test_an_application_is_set_up_and_kept_by_its_commands(
    replica: Replica,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Register, make a key that works, move the endpoint, rotate both secrets, disable."""
    typed = Typed(replica, monkeypatch, capsys)
    await replica.publish()
    request = application_pb.RegisterApplicationRequest(idempotency_key="r", name="shop")
    await application._ask("RegisterApplication", request, {}, as_json=True)
    application_id = typed.document()["application"]["application_id"]
    await application._create_key("shop", "", [Scope.SUBMIT, Scope.READ], "", as_json=True)
    made = typed.document()
    created = await replica.tasks.CreateTask(
        task_request("k"), metadata=metadata_of(made["api_key"])
    )
    endpoint = application_pb.SetCallbackEndpointRequest(
        idempotency_key="e", callback_url="https://shop.example/cb", callback_secret=SECRET
    )
    await application._change("shop", "SetCallbackEndpoint", endpoint, {}, as_json=False)
    moved = typed.text()
    path = tmp_path / "secret"
    path.write_text(SigningSecret(SECRET).text + "\n")
    for side, file in ((Side.CALLBACK, path), (Side.PROVIDER, None)):
        method, rotation, shown = application._rotation(side, file)
        rotation.idempotency_key = "rotate"
        await application._change(application_id, method, rotation, shown, as_json=True)
    rotated = typed.document()
    disabling = application_pb.DisableApplicationRequest(idempotency_key="d", reason="moved")
    await application._change("shop", "DisableApplication", disabling, {}, as_json=True)
    disabled = typed.document()
    await application._list(10, as_json=False)
    listed = typed.text()

    assert created.task_id
    assert made["api_key_id"]
    assert "https://shop.example/cb" in moved
    assert len(rotated["provider_secret"]) > 24
    assert "callback_secret" not in rotated
    assert disabled["application"]["disabled"]
    assert "shop" in listed
    assert "disabled" in listed
    with pytest.raises(NotFoundError):
        await application._change("nobody", "DisableApplication", disabling, {}, as_json=True)
    with pytest.raises(InvalidArgumentError):
        await application._create_key("shop", "ann", [Scope.READ], "", as_json=True)


async def test_callbacks_and_tasks_are_acted_on_by_a_filter(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run counts, a cancel reaches all, and what was told is listed and told again."""
    typed = Typed(replica, monkeypatch, capsys)
    async with http_endpoint() as endpoint:
        await replica.publish()
        _, key = await replica.register("shop", callback_url=endpoint.url)
        for number in range(2):
            await replica.tasks.CreateTask(task_request(f"k{number}"), metadata=key)
        cancel = pb.BulkCancelTasksRequest(
            idempotency_key="c", filter="workflow = two-steps", dry_run=True
        )
        await task_operations._act_on_all("BulkCancelTasks", cancel, as_json=False)
        counted = typed.text()
        cancel.dry_run = False
        await task_operations._act_on_all("BulkCancelTasks", cancel, as_json=False)
        changed = typed.text()
        events = await endpoint.until("execution.canceled")
        again = pb.RedeliverCallbacksRequest(
            idempotency_key="a", execution_id=events[-1]["subject"], include_delivered=True
        )
        await act_on_all(
            callback.Stub,
            "RedeliverCallbacks",
            again,
            what="callbacks",
            dry_run=False,
            as_json=True,
        )
        told = typed.document()
        await callback._list(
            pb.ListCallbacksRequest(execution_id=events[-1]["subject"]), 10, as_json=False
        )
        listed = typed.text()

    assert "2 tasks match; nothing was changed" in counted
    assert "2 tasks matched, 2 changed" in changed
    assert int(told["changed_count"]) >= 1
    assert "canceled" in listed
