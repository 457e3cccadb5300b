"""`tdp capability`: what is typed becomes an input, a project is found, and mistakes are named."""

import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from foundation.errors import FailedPreconditionError, InvalidArgumentError
from node_agent.sdk import BlockingContext, CapabilityDefinitionError, capability
from tests.unit.tools.cli.test_commands import run
from tools.cli.capability.given import InputOptions, given_input
from tools.cli.capability.project import Project, find_capability
from tools.cli.capability.scaffold import scaffold


class Wanted(BaseModel):
    left_ref: str
    right_ref: str
    collection_ref: str
    text: str = ""
    count: int = 0


@capability("test.two_files", version="1")
def two_files(ctx: BlockingContext, given: Wanted) -> Wanted:
    """Takes two files."""
    del ctx
    return given


def test_the_input_is_put_together(tmp_path: Path) -> None:
    """A document, fields over it, and files whose names are references, also of the same name."""
    document = tmp_path / "input.json"
    document.write_text('{"count": 1, "text": "old"}')
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.bin").write_bytes(folder.encode())
    options = InputOptions(
        document,
        ("text=2024", "count=3"),
        files=(f"left_ref={tmp_path}/a/same.bin", f"right_ref={tmp_path}/b/same.bin"),
    )
    given = given_input(two_files, options)
    left, right = given.document["left_ref"], given.document["right_ref"]
    assert (given.files[left].read_bytes(), given.files[right].read_bytes()) == (b"a", b"b")
    assert {one: given.document[one] for one in ("text", "count", "collection_ref")} == {
        "text": "2024",
        "count": 3,
        "collection_ref": "local",
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (InputOptions(parameters=["text"]), "is not key=value"),
        (InputOptions(input_file=Path("x")), "use --file FIELD=PATH"),
        (InputOptions(files=["other=x"]), "has no field 'other'"),
        (InputOptions(files=["left_ref=no/such"]), "is no file"),
        (InputOptions(document=Path("no/such.json")), "No such file"),
    ],
)
def test_what_has_no_place_is_refused(options: InputOptions, words: str) -> None:
    """The option and the value are named."""
    with pytest.raises(InvalidArgumentError, match=words):
        given_input(two_files, options)


def test_a_project_is_found_without_being_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry points are read from pyproject.toml, and its package can be imported."""
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    home, written = scaffold("text.tally", tmp_path / "tally")
    assert {one.relative_to(home).as_posix() for one in written} >= {
        "pyproject.toml",
        ".gitignore",
        "text_tally/capability.py",
        "tests/test_capability.py",
    }
    project = Project.find(home)
    assert project is not None
    assert project.references == ("text_tally.capability:text_tally",)
    found = find_capability("text.tally@1", home).capability
    assert (found.name, found.version) == ("text.tally", "1")
    assert Project.find(tmp_path) is None


def test_a_broken_project_names_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in the author's module is told with its place."""
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    home, _ = scaffold("text.broken", tmp_path / "broken")
    (home / "text_broken" / "capability.py").write_text("import json\n\njson.no_such\n")
    with pytest.raises(CapabilityDefinitionError, match=r"text_broken/capability\.py:3"):
        find_capability("text.broken", home)


@pytest.mark.parametrize("name", ["Text", "text-tally", "a..b", "class", ""])
def test_names_that_cannot_be_are_refused(name: str, tmp_path: Path) -> None:
    """A name is also a package's, so it follows both rules."""
    with pytest.raises(InvalidArgumentError):
        scaffold(name, tmp_path / "x")


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """A folder with something in it is left alone."""
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FailedPreconditionError, match="--folder"):
        scaffold("text.tally", tmp_path)


def test_new_says_what_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 0 and the files; a second time status 2."""
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "capability", "new", "text.tally", "--json") == 0
    assert json.loads(capsys.readouterr().out)["folder"] == "text-tally"
    assert run(monkeypatch, "capability", "new", "text.tally") == 2
    assert "FOLDER_IN_USE" in capsys.readouterr().err
