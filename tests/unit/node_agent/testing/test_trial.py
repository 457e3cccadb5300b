"""One attempt in this process, as authors test with."""

from pathlib import Path

import pytest

from node_agent.testing import RunCapability, Trial, try_capability
from tests.unit.node_agent.testing.capabilities import Given, letters, sound

GIVEN = Given(how="", text_ref="text")


def test_a_synchronous_capability_is_run(run_capability: RunCapability) -> None:
    """Output, progress and checkpoints are there to be looked at."""
    done = run_capability(letters, GIVEN, inputs={"text": "abc"})
    assert (done.status, done.output.size) == ("SUCCEEDED", 3)
    assert done.checkpoints == ({"done": 1}, {"done": 2}, {"done": 3})
    assert {percent for percent, _ in done.progress} <= {0, 33, 66}


def test_it_goes_on_where_it_was_stopped(run_capability: RunCapability) -> None:
    """Stopped after its second checkpoint and resumed, it does the rest, in the same folder."""
    stopped = run_capability(letters, GIVEN, inputs={"text": "abcde"}, stop_after_checkpoint=2)
    assert (stopped.status, len(stopped.checkpoints)) == ("STOPPED", 2)
    done = run_capability(letters, GIVEN, inputs={"text": "abcde"}, resume=stopped)
    assert (done.output.size, done.folder) == (3, stopped.folder)


async def test_an_asynchronous_test_may_wait_for_it(tmp_path: Path) -> None:
    """Inside a running loop the trial is awaited; a document does for the input model."""
    done = await try_capability(
        tmp_path, sound, GIVEN.model_dump(), inputs={"text": b"a full stop."}
    )
    assert done.artifacts["report.txt"].read_text() == "same"


def test_a_crash_names_the_line(run_capability: RunCapability) -> None:
    """An unexpected exception tells file and line of the author's code, and what to do."""
    failed = run_capability(letters, {**GIVEN.model_dump(), "how": "raise"}, inputs={"text": "x"})
    assert failed.failure.reason == "WORK_CRASHED"
    assert "testing/capabilities.py:" in failed.failure.message
    assert "in letters" in failed.failure.message
    assert "raise Retryable or Fatal" in failed.failure.message
    assert failed.failure.log_tail.rstrip().endswith("KeyError: 'x'")
    # The trace begins with the author's code, not with what called it.
    assert "sdk/running.py" not in failed.failure.log_tail


def test_output_of_another_shape_is_refused(run_capability: RunCapability) -> None:
    """A field that holds what it does not declare is told with the function's place."""
    failed = run_capability(
        letters, {**GIVEN.model_dump(), "how": "wrong type"}, inputs={"text": "x"}
    )
    assert (failed.failure.reason, failed.failure.retryable) == ("OUTPUT_INVALID", False)
    assert "testing/capabilities.py:" in failed.failure.message
    assert "many" in failed.failure.message


def test_a_missing_input_is_named(run_capability: RunCapability) -> None:
    """A test that forgot an input is told which, and what there is."""
    failed = run_capability(letters, GIVEN, inputs={"other": ""})
    assert failed.failure.reason == "RESOURCE_MISSING"
    assert "'text' is none of this run's inputs: other" in failed.failure.message


def test_asking_for_what_is_not_there_says_why(run_capability: RunCapability) -> None:
    """The reason of a failure is in the assertion, where the author looks."""
    trial: Trial = run_capability(letters, GIVEN)
    with pytest.raises(AssertionError, match="RESOURCE_MISSING"):
        _ = trial.output
    done = run_capability(letters, GIVEN, inputs={"text": ""})
    with pytest.raises(AssertionError, match="did not fail"):
        _ = done.failure
