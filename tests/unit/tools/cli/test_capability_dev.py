"""`tdp capability dev`: what counts as a change, what a person sees, what the agent is told."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from foundation.errors import InvalidArgumentError
from tools.cli.capability.dev_agent import AgentSetup
from tools.cli.capability.dev_view import DevView
from tools.cli.capability.project import Project
from tools.cli.capability.sources import changed, state_of
from tools.cli.commands.dev import variables_of
from tools.cli.connection import Connection


def test_code_that_came_went_or_changed_is_a_change(tmp_path: Path) -> None:
    """Python and pyproject.toml count; results, hidden folders and environments do not."""
    kept, gone = tmp_path / "kept.py", tmp_path / "gone.py"
    for file in (kept, gone):
        file.write_text("x = 1\n")
    before = state_of(tmp_path)
    assert changed(before, state_of(tmp_path)) == []
    gone.unlink()
    kept.write_text("x = 10\n")
    (tmp_path / "pyproject.toml").write_text("")
    for name in (".tdp", "output", "__pycache__", "environment"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "new.py").write_text("")
    (tmp_path / "environment" / "pyvenv.cfg").write_text("")
    (tmp_path / "notes.txt").write_text("")
    assert changed(before, state_of(tmp_path)) == ["gone.py", "kept.py", "pyproject.toml"]


def seen(*events: dict[str, Any]) -> str:
    text = io.StringIO()
    view = DevView(Console(file=text, width=200))
    for event in events:
        view.tell(event)
    return text.getvalue()


ENDED = {
    "event": "attempt_ended",
    "duration_ms": 70,
    "cpu_time_ms": 20,
    "memory_bytes_max": 3 * 1024**2,
}


def test_a_person_sees_schemas_attempts_and_logs() -> None:
    """Fields with types, the log line by line, what it took, and why it failed."""
    schema = {
        "properties": {
            "text_ref": {"type": "string"},
            "layout": {"enum": ["tile", "centre"]},
            "angle": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        },
        "required": ["text_ref"],
    }
    declared = {
        "name": "a.b",
        "version": "1",
        "inline": False,
        "supports_resume": True,
        "input_schema_json": json.dumps(schema),
        "output_schema_json": "{}",
    }
    text = seen(
        {"event": "declared", "capabilities": [declared]},
        {"event": "attempt_started", "capability": "a.b", "attempt_number": 2, "attempt_id": "id"},
        {"event": "capability_output", "line": "[red]not markup"},
        {**ENDED, "outcome": "SUCCEEDED"},
        {**ENDED, "outcome": "FAILED", "reason": "ODD", "message": "x.py:3", "retryable": False},
    )
    for words in (
        "a.b 1, resumes",
        "text_ref: string, layout?: tile or centre, angle?: number or null",
        "output anything",
        "a.b attempt 2 id",
        "| [red]not markup",
        "SUCCEEDED after 70 ms, CPU 20 ms, 3 MiB",
        "ODD (final): x.py:3",
    ):
        assert words in text


def test_a_person_sees_what_is_wrong() -> None:
    """A refusal comes with what to do, a mistake with whether the agent goes on."""
    refused = {"name": "a.b", "version": "1", "refusal": "its schema differs"}
    text = seen(
        {"event": "ready", "node": "dev", "refused": [refused]},
        {"event": "broken", "message": "at x.py:3", "old_agent_goes_on": True},
        {"event": "agent_ended", "message": "status 1"},
        {"event": "unknown to this view"},
    )
    for words in (
        "refused a.b 1: its schema differs; raise the version",
        "broken at x.py:3",
        "goes on with the code before",
        "ended status 1",
    ):
        assert words in text


def test_the_agent_gets_its_own_settings_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of the command line are not handed on, and the project comes first on the path."""
    monkeypatch.setenv("TDP_CLI_CONTROL_KEY", "secret")
    monkeypatch.setenv("TDP_AGENT_TLS", "true")
    project = Project(tmp_path, "p", ("p.x:y",), (tmp_path,))
    connection = Connection(control_target="127.0.0.1:1", control_key="secret")
    given = AgentSetup(project, connection, "node", "token", tmp_path / "s").environment()
    assert "secret" not in given.values()
    assert given["TDP_AGENT_TLS"] == "false"
    assert given["PYTHONPATH"].startswith(f"{tmp_path}:")
    assert json.loads(given["TDP_AGENT_CAPABILITIES"]) == ["p.x:y"]


def test_settings_of_processes_are_read() -> None:
    """By kind or by name; a value may hold an equals sign."""
    assert variables_of(["gateway.TDP_GATEWAY_X=a=b", "agent-2.TDP_AGENT_SLOTS=3"]) == {
        "gateway": {"TDP_GATEWAY_X": "a=b"},
        "agent-2": {"TDP_AGENT_SLOTS": "3"},
    }
    with pytest.raises(InvalidArgumentError, match=r"--set|PROCESS\.VARIABLE=VALUE"):
        variables_of(["TDP_AGENT_SLOTS=3"])
