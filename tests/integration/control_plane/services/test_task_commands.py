"""The acts of `tdp task` against a whole replica: what they send, and what they write."""

import json
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from foundation.errors import FailedPreconditionError, NotFoundError
from tdp.control.v1 import task_service_pb2 as pb
from tdp.node.v1 import node_service_pb2 as node_pb
from tests.integration.control_plane.replica import Replica
from tests.integration.control_plane.services.following import create, ended, until
from tests.integration.control_plane.services.worker import done, working
from tools.cli.commands import task as tasks
from tools.cli.commands import task_operations as commands

FLOW = """
name: flow
version: "1"
steps:
  - {key: a, capability: noop, capability_version: "1"}
  - {key: b, capability: noop, capability_version: "1", depends_on: [a]}
  - {key: ask, kind: approval, depends_on: [a]}
output: "${steps.ask.output.payload}"
"""


class Typed:
    """Runs the coroutines behind the commands, and reads what they wrote."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def json(self, method: str, request: Message, task_id: str = "") -> Any:  # noqa: ANN401 - a document
        if task_id:
            await commands._act_on_execution(task_id, method, request, as_json=True)
        else:
            await commands._act(method, request, as_json=True)
        return json.loads(self._capsys.readouterr().out.splitlines()[-1])

    async def text(self, method: str, request: Message, task_id: str = "") -> str:
        if task_id:
            await commands._act_on_execution(task_id, method, request, as_json=False)
        else:
            await commands._act(method, request, as_json=False)
        return self._capsys.readouterr().out


async def test_each_act_is_sent_and_answered(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pause, resume, extend, skip, signal, rerun and cancel, as JSON and in a sentence."""
    await replica.publish(FLOW)
    _, key = await replica.register("shop")
    monkeypatch.setenv("TDP_CLI_CONTROL_TARGET", f"127.0.0.1:{replica.plane.server.port}")
    monkeypatch.setenv("TDP_CLI_CONTROL_KEY", key[0][1].removeprefix("Bearer "))
    typed = Typed(capsys)

    def work(run: node_pb.RunCommand) -> None:
        """Hold everything."""

    async with working(replica, work) as worker:
        made = await create(replica, key)
        task_id = made.task_id
        run = await worker.held("a")
        paused = await typed.text(
            "PauseExecution", pb.PauseExecutionRequest(idempotency_key="p"), task_id
        )
        resumed = await typed.json(
            "ResumeExecution", pb.ResumeExecutionRequest(idempotency_key="r"), task_id
        )
        more = pb.ExtendAttemptRequest(idempotency_key="e", extension=Duration(seconds=60))
        await commands._extend(task_id, "a", -1, more, as_json=False)
        extended = capsys.readouterr().out
        with pytest.raises(NotFoundError, match="never dispatched"):
            await commands._extend(task_id, "b", -1, more, as_json=False)
        skip = pb.SkipStepRequest(idempotency_key="s", step_key="b", item_index=-1)
        skipped = await typed.json("SkipStep", skip, task_id)
        await worker.end(run, done())
        await until(replica, made.execution_id, "ask", "WAITING")
        signal = pb.SignalStepRequest(
            idempotency_key="s", step_key="ask", item_index=-1, approved=True, payload_json="7"
        )
        signaled = await typed.text("SignalStep", signal, task_id)
        replayed = await typed.text("SignalStep", signal, task_id)
        execution = await ended(replica, made.execution_id, key)
        mode = pb.RERUN_MODE_REUSE_SUCCEEDED
        rerun = pb.RerunTaskRequest(idempotency_key="r", task_id=task_id, mode=mode)
        with pytest.raises(FailedPreconditionError, match="nothing is left to run"):
            await typed.json("RerunTask", rerun)
        rerun.mode, rerun.step_key = pb.RERUN_MODE_FROM_STEP, "ask"
        second = await typed.json("RerunTask", rerun)
        await tasks._get(task_id, as_json=False)
        shown = capsys.readouterr().out
        canceled = await typed.text(
            "CancelTask", pb.CancelTaskRequest(idempotency_key="c", task_id=task_id)
        )

    assert f"paused, execution {made.execution_id}" in paused
    assert resumed["execution"]["paused"] is False
    assert f"attempt {run.attempt_id} may run until" in extended
    assert skipped["step"]["status"] == "STEP_STATUS_SKIPPED"
    assert "step ask  SUCCEEDED" in signaled
    assert "nothing changed by this call" not in signaled
    assert "nothing changed by this call" in replayed
    assert execution.output_json == "7"
    assert second["execution"]["run"] == 2
    assert shown.count("earlier run") == 2, "a and b were taken over"
    assert "run 2  CANCEL" in canceled
