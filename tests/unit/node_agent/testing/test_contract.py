"""The contract test finds each breach of the contract, and none where there is none."""

from dataclasses import replace
from pathlib import Path

import pytest

from node_agent.core.execution.ports import Stopped, Usage
from node_agent.sdk import Capability
from node_agent.sdk.discovery import LoadedCapability
from node_agent.testing.contract import ContractOptions, Finding, check_capability, stop_problem
from node_agent.testing.rehearsal import Given, Performance
from tests.unit.node_agent.testing import capabilities

OPTIONS = ContractOptions(points_max=6)


async def findings(
    folder: Path, how: str = "", work: Capability = capabilities.sound, **options: bool
) -> dict[str, Finding]:
    text = folder / "text"
    text.write_text("one text, and its full stop.")
    place = folder / "check"
    place.mkdir()
    given = Given({"how": how, "text_ref": "text"}, {"text": text})
    loaded = LoadedCapability(f"{capabilities.__name__}:{work.name}", work)
    chosen = replace(OPTIONS, **options)
    return {one.name: one async for one in check_capability(loaded, given, place, chosen)}


async def test_a_sound_capability_keeps_all(tmp_path: Path) -> None:
    """Every part is tried and kept; the report counts points and names the refusals."""
    found = await findings(tmp_path)
    assert {name: one.passed for name, one in found.items()} == dict.fromkeys(
        (
            "completes",
            "schema",
            "duplicate-delivery",
            "cancellation",
            "recovery",
            "resume",
            "refusal",
        ),
        True,
    ), found
    assert found["recovery"].told == "killed at 7 points"
    # The blow halfway in time falls before the first checkpoint or after it.
    assert found["resume"].told.startswith(("resumed 5 times", "resumed 6 times"))
    assert "text cut off: TEXT_CUT_OFF" in found["refusal"].told
    assert "how left out: INPUT_INVALID" in found["refusal"].told


@pytest.mark.parametrize(
    ("how", "broken", "words"),
    [
        ("chance", "duplicate-delivery", "the bytes of report.txt differ"),
        ("other paths", "duplicate-delivery", "instead of"),
        ("once", "duplicate-delivery", "DONE_BEFORE"),
        ("starts again", "resume", "begin with ctx.last_checkpoint"),
        ("crash", "refusal", "IndexError: no full stop (at"),
        ("fickle", "refusal", "say the same each time"),
        ("schema", "schema", "less than the minimum"),
    ],
)
async def test_a_breach_is_found(tmp_path: Path, how: str, broken: str, words: str) -> None:
    """What is wrong is named with what happened and where."""
    found = await findings(tmp_path, how)
    assert found[broken].passed is False, found
    assert words in found[broken].told
    assert found["completes"].passed


async def test_other_bytes_may_be_allowed(tmp_path: Path) -> None:
    """A format with times in it is compared by its paths."""
    found = await findings(tmp_path, "chance", bytes_may_differ=True)
    assert found["duplicate-delivery"].passed


async def test_checkpoints_without_resume_are_found(tmp_path: Path) -> None:
    """A checkpoint that is saved and never used is a mistake."""
    found = await findings(tmp_path, work=capabilities.forgetful)
    assert found["resume"].passed is False
    assert "supports_resume=True" in found["resume"].told


async def test_an_input_that_fails_is_said_so(tmp_path: Path) -> None:
    """Without a run that succeeds only refusals can be looked at."""
    text = tmp_path / "text"
    text.write_text("no full stop")
    place = tmp_path / "check"
    place.mkdir()
    loaded = LoadedCapability("x:y", capabilities.sound)
    given = Given({"how": "", "text_ref": "text"}, {"text": text})
    found = [one async for one in check_capability(loaded, given, place, OPTIONS)]
    assert [(one.name, one.passed) for one in found] == [("completes", False), ("refusal", True)]
    assert "TEXT_CUT_OFF" in found[0].told


def test_work_that_had_to_be_killed_did_not_stop() -> None:
    """Stopping by itself takes less than the grace; with it, the host has killed."""
    stopped = Performance(Stopped(Usage()), (), (), {}, ending_s=0.1)
    assert stop_problem(stopped) == ""
    assert "ctx.raise_if_cancelled()" in stop_problem(replace(stopped, ending_s=5.2))
