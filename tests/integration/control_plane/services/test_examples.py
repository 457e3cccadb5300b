"""The example workflows are sound, and run to the ends that their comments promise."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
import structlog

from node_agent.sdk import Fatal
from node_agent.sdk.definition import Capability
from tdp.control.v1 import task_pb2
from tdp.control.v1 import task_service_pb2 as pb
from tdp.node.v1 import node_service_pb2 as node_pb
from tests.integration.control_plane.replica import Replica
from tests.integration.control_plane.services.following import create, ended, statuses_of, until
from tests.integration.control_plane.services.worker import Fact, broken, done, echo, working
from tests.unit.docs.documents import ROOT
from tools.cli.workflow_check import check_file
from video_stand_ins import capability as stand_ins

WORKFLOWS: Final = ROOT / "examples" / "workflows"
_FILES: Final = sorted(
    path
    for pattern in ("examples/*/workflow.yaml", "*/workflows/*.yaml")
    for path in ROOT.glob(pattern)
)
_CAPABILITIES: Final = {
    one.name: one for one in vars(stand_ins).values() if isinstance(one, Capability)
}
_VIDEO: Final = {
    "video_ref": "knife-and-fork",
    "previous_version": 4,
    "refused_labels": ["knife"],
    "review_score": 0.0,
    "review_always": False,
}


class _Context:
    """What the stand-ins use of a context."""

    log = structlog.get_logger(__name__)


def _stand_in(run: node_pb.RunCommand) -> Fact:
    """Let the named stand-in answer; it waits for nothing, so one step of it is all of it."""
    one: Any = _CAPABILITIES[run.capability]
    work = one.function(_Context(), one.input_model.model_validate_json(run.input_json))
    try:
        work.send(None)
    except StopIteration as answer:
        return done(answer.value.model_dump_json())
    except Fatal as error:
        return broken(error.reason, retryable=False)
    raise AssertionError("a stand-in waits for something")


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_every_definition_is_sound(path: Path) -> None:
    """What is shown to newcomers and shipped could be published as it stands, without a note."""
    report = check_file(path)
    assert not report.violations
    assert not report.warnings


async def _publish(replica: Replica, name: str) -> None:
    await replica.publish((WORKFLOWS / f"{name}.yaml").read_text("utf-8"))


async def test_a_video_is_reviewed_by_machines_and_a_person(replica: Replica) -> None:
    """Doubt asks a person, certainty none; silence skips the transcript; a refusal tells of it."""
    await _publish(replica, "video-review")
    _, key = await replica.register("shop")
    async with working(replica, _stand_in, capabilities=tuple(_CAPABILITIES)) as worker:

        async def begin(**changes: object) -> str:
            made = await create(
                replica, key, workflow="video-review", input_json=json.dumps(_VIDEO | changes)
            )
            return made.execution_id

        async def answer(execution_id: str, *, approved: bool) -> task_pb2.Execution:
            await until(replica, execution_id, "review", "WAITING")
            request = pb.SignalStepRequest(
                idempotency_key=execution_id,
                execution_id=execution_id,
                step_key="review",
                item_index=-1,
                approved=approved,
            )
            await replica.tasks.SignalStep(request, metadata=key)
            return await ended(replica, execution_id, key)

        approved = await answer(await begin(), approved=True)
        clear = await ended(replica, await begin(video_ref="silent-lake"), key)
        humming = await begin(video_ref="hum", review_always=True)
        rejected = await answer(humming, approved=False)
        last = await statuses_of(replica, humming)

    result = json.loads(approved.output_json)
    assert (result["version"], result["verdict"]) == (5, "REVIEW")
    assert result["reviewed_by_person"] is True
    assert len(result["digest"]) == 64
    shown = json.loads(clear.output_json)
    assert (shown["verdict"], shown["reviewed_by_person"]) == ("CLEAR", False)
    assert rejected.status == task_pb2.EXECUTION_STATUS_FAILED
    assert (last["transcript"], last["tell"]) == ("FAILED", "SUCCEEDED")
    assert last["result"] in {"CANCELED", "SKIPPED", "PENDING"}
    assert worker.ran.count("tell") == 1


async def test_the_small_examples_do_what_they_say(replica: Replica) -> None:
    """Failed items leave null, the other way takes over, and the due time reaches the output."""
    for name in ("fan-out", "fallback", "nightly-report"):
        await _publish(replica, name)
    _, key = await replica.register("shop")

    def work(run: node_pb.RunCommand) -> Fact:
        given = json.loads(run.input_json)
        refused = given.get("way") == "first" or given.get("document") == "b"
        return broken(retryable=False) if refused else echo(run)

    async def output(workflow: str, document: object) -> dict[str, Any]:
        made = await create(replica, key, workflow=workflow, input_json=json.dumps(document))
        answered: dict[str, Any] = json.loads(
            (await ended(replica, made.execution_id, key)).output_json
        )
        return answered

    async with working(replica, work):
        fanned = await output("fan-out", {"documents": ["a", "b", "c"]})
        fallen = await output("fallback", {})
        report = await output("nightly-report", {"due_time": "2026-01-01T02:00:00Z"})

    assert [one and one["document"] for one in fanned["results"]] == ["a", None, "c"]
    assert fanned["missing"] == 1
    assert fallen == {"way": "second"}
    assert report == {"report_of": "2026-01-01T02:00:00Z"}
