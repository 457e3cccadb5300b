"""What the guide shows is what the example is, and its commands do what it says."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml

from node_agent.sdk import BlockingContext
from tests.unit.docs.documents import ROOT, snippets, text_of

GUIDE: Final = ROOT / "docs" / "guides" / "write-a-capability.md"
EXAMPLE: Final = ROOT / "examples" / "archive-statistics"
FILES: Final = ("archive_statistics/capability.py", "tests/test_capability.py")
_METHOD = re.compile(r"^\| (`.*?`) \|", re.MULTILINE)


def output_of(command: str, folder: Path) -> str:
    """Run a command of the guide with this environment's programs, which has to work."""
    words = shlex.split(command)
    programs = Path(sys.executable).parent
    done = subprocess.run(
        [str(programs / words[0]), *words[1:]],
        cwd=folder,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_what_is_shown_is_the_example() -> None:
    """Code, test and workflow of the guide are the example's, so what is shown is tested."""
    text = text_of(GUIDE)
    shown = snippets(text, "python")
    assert [(EXAMPLE / name).read_text("utf-8") for name in FILES] == shown
    workflow = (EXAMPLE / "workflow.yaml").read_text("utf-8")
    assert snippets(text, "yaml") == [workflow]
    (entry_point,) = snippets(text, "toml")
    assert entry_point in (EXAMPLE / "pyproject.toml").read_text("utf-8")
    steps = yaml.safe_load(workflow)["steps"]
    assert [one["capability"] for one in steps] == ["archive.clean", "archive.statistics"]


def test_the_context_has_what_the_guide_names() -> None:
    """Each method of the table is one, and none that an author needs is left out."""
    table = text_of(GUIDE).partition("| `ctx` |")[2].partition("## 3.")[0]
    named = set(re.findall(r"`(\w+)", " ".join(_METHOD.findall(table))))
    context = {name for name in dir(BlockingContext) if not name.startswith("_")}
    instance = {"progress", "heartbeat", "raise_if_cancelled", "last_checkpoint_as"}
    assert named <= context | instance
    assert context - {"last_checkpoint"} <= named


@pytest.mark.timeout(300)
def test_its_commands_work(tmp_path: Path) -> None:
    """From `tdp capability new` to a kept contract, with the guide's own code put in between."""
    text = text_of(GUIDE)
    first, second = snippets(text, "console")
    folder, said = tmp_path, ""
    for command in first.splitlines():
        if command.startswith("cd "):
            folder /= command.removeprefix("cd ")
            continue
        said = output_of(command, folder)
    assert '"word_count": 10' in said
    assert (folder / "output" / "archive_statistics" / "report.json").exists()
    for name, code in zip(FILES, snippets(text, "python"), strict=True):
        (folder / name).write_text(code, encoding="utf-8")
    shutil.copy(EXAMPLE / "samples" / "letters.zip", folder / "samples" / "letters.zip")
    for command in second.splitlines():
        # Each point costs a child process or two; where they fall is tested elsewhere.
        said = output_of(f"{command} --points 1" if " check " in command else command, folder)
    # With so few points the kill may come before any checkpoint: then resuming is not judged.
    assert "✗" not in said, said
    assert said.count("✓") >= 6, said
