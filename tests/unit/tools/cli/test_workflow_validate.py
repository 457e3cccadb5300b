"""`tdp workflow validate`: places, several problems, notes, exit statuses and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.tools.cli.test_commands import run
from tools.cli.output import ExitCode

_SOUND = """
name: clean
version: "1"
steps:
  - {key: a, capability: c, capability_version: "1"}
"""
_WRONG = """
name: clean
version: 1
steps:
  - key: a
    capability: c
    capability_version: "1"
    input: {x: "${nothing}"}
    timeout: 5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a sound definition, a wrong one, one with a note, and a broken one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sound.yaml").write_text(_SOUND)
    (tmp_path / "wrong.yaml").write_text(_WRONG)
    noted = _SOUND.replace("steps:", "timeout: 1m\nsteps:").replace(
        '"1"}', '"1", timeouts: {total: 2m}}'
    )
    (tmp_path / "noted.yaml").write_text(noted)
    (tmp_path / "broken.json").write_text('{\n  "name": ]')
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_every_problem_is_told_with_its_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All problems of all files come at once, as file:line:column, and the status is 2."""
    files = ("sound.yaml", "wrong.yaml", "broken.json", "binary.yaml")
    assert run(monkeypatch, "workflow", "validate", *files) == ExitCode.REFUSED
    text = capsys.readouterr().out
    assert "sound.yaml: clean 1 is sound" in text
    assert "wrong.yaml:3:1: version: expected a version" in text
    assert "wrong.yaml:8:13: steps[0].input.x: expression `nothing` does not compile" in text
    assert "wrong.yaml:9:5: steps[0].timeout: unknown key" in text
    assert "broken.json:2:11: definition: " in text
    assert "binary.yaml: definition: " in text


@pytest.mark.usefixtures("folder")
def test_notes_refuse_only_on_demand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A definition with a note is sound, unless --strict says otherwise."""
    assert run(monkeypatch, "workflow", "validate", "noted.yaml") == ExitCode.DONE
    assert "note step a: timeouts.total" in capsys.readouterr().out
    assert run(monkeypatch, "workflow", "validate", "--strict", "noted.yaml") == ExitCode.REFUSED


@pytest.mark.usefixtures("folder")
def test_json_has_one_document_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Programs get each problem's field, place and reason as data."""
    files = ("sound.yaml", "wrong.yaml")
    assert run(monkeypatch, "workflow", "validate", "--json", *files) == ExitCode.REFUSED
    sound, wrong = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (sound["valid"], sound["name"], sound["violations"]) == (True, "clean", [])
    assert len(sound["digest"]) == 64
    assert not wrong["valid"]
    places = {
        one["field"]: (one["line"], one["column"], one["reason"]) for one in wrong["violations"]
    }
    assert places["steps[0].timeout"] == (9, 5, "UNKNOWN_KEY")
    assert places["steps[0].input.x"] == (8, 13, "EXPRESSION_INVALID")


@pytest.mark.usefixtures("folder")
def test_a_refused_file_is_named_and_the_others_are_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Publishing several files says which one was refused; an unreachable server ends it."""
    monkeypatch.setenv("TDP_CLI_CONTROL_TARGET", "127.0.0.1:1")
    monkeypatch.setenv("TDP_CLI_CONTROL_KEY", "key")
    files = ("binary.yaml", "sound.yaml", "wrong.yaml")
    assert run(monkeypatch, "workflow", "publish", *files) == ExitCode.UNREACHABLE
    text = capsys.readouterr().err
    assert "binary.yaml: binary.yaml is no text" in text
    assert "sound.yaml: " in text
    assert "wrong.yaml" not in text
