"""Commands, links and numbers in the documents are right."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from tests.unit.docs.documents import (
    DOCUMENTS,
    ROOT,
    command_lines,
    links,
    paths_named,
    snippets,
    text_of,
)
from tools.cli.main import COMMANDS

_TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)
_VARIABLE = re.compile(r"\b([A-Z]+)=")
_DECISION = re.compile(r"# (?:0*(?P<number>\d+))[.:] \S")

every_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix()
)


def _makefile() -> str:
    return text_of(ROOT / "Makefile")


@every_document
def test_make_knows_every_target(document: Path) -> None:
    """Each `make target` is in the Makefile, with every variable that it is given."""
    makefile = _makefile()
    targets = set(_TARGET.findall(makefile))
    for command in command_lines(text_of(document)):
        words = command.split()
        if words[0] == "make" and words[1:]:
            assert words[1] in {*targets, "help"}, command
            for variable in _VARIABLE.findall(command):
                assert f"$({variable})" in makefile, command


@every_document
def test_tdp_knows_every_command(document: Path) -> None:
    """Each `tdp command` is one of the command line's."""
    for command in command_lines(text_of(document)):
        words = command.split()
        if words[0] == "tdp" and words[1:]:
            assert words[1] in COMMANDS, command


@every_document
def test_every_module_that_is_to_be_run_is_there(document: Path) -> None:
    """Each `python -m module` names a module with a command line."""
    for module in re.findall(r"python -m ([\w.]+)", text_of(document)):
        assert find_spec(f"{module}.__main__") or find_spec(module), module


@every_document
def test_every_link_leads_somewhere(document: Path) -> None:
    """Links between files resolve from the file that they stand in."""
    for target in links(text_of(document)):
        assert (document.parent / target).exists(), target


@every_document
def test_every_path_is_there(document: Path) -> None:
    """Files and folders that are named exist."""
    assert [path for path in paths_named(text_of(document)) if not (ROOT / path).exists()] == []


@every_document
def test_snippets_parse(document: Path) -> None:
    """Code that is shown is code: it compiles, or is read by its own reader."""
    text = text_of(document)
    for snippet in snippets(text, "python"):
        compile(snippet, str(document), "exec")
    for snippet in snippets(text, "json"):
        json.loads(snippet)
    for snippet in snippets(text, "yaml"):
        yaml.safe_load(snippet)


def test_decisions_are_numbered_without_gaps() -> None:
    """Each decision's file and title have the same number, from 1 on."""
    files = sorted((ROOT / "docs" / "adr").glob("*.md"))
    for number, path in enumerate(files, start=1):
        title = _DECISION.match(text_of(path))
        assert path.name.startswith(f"{number:04}-"), path.name
        assert title is not None, path.name
        assert int(title["number"]) == number, path.name
