"""The style check finds what the style guide forbids, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.tidy import __main__ as command_line
from tools.tidy.calls import check_calls
from tools.tidy.dead import dead_modules
from tools.tidy.review import review
from tools.tidy.shape import FUNCTION_LINES_MAX, MODULE_LINES_MAX, check_shape
from tools.tidy.sources import Finding, SourceFile, python_files
from tools.tidy.testing import check_tests
from tools.tidy.words import check_words

Rule = Callable[[SourceFile], Iterator[Finding]]


def rules_broken(rule: Rule, text: str, path: str = "control_plane/core/area.py") -> list[str]:
    return [finding.rule for finding in rule(SourceFile(path, text))]


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("import time\ntime.time()", ["wall-clock"]),
        ("from time import time as now\nnow()", ["wall-clock"]),
        ("import datetime as dt\ndt.datetime.now()", ["wall-clock"]),
        ("from datetime import datetime\ndatetime.utcnow()", ["wall-clock"]),
        ("print('x')", ["print"]),
        ("import asyncio\nasyncio.create_task(f(), name='f')", ["bare-task"]),
        ("import asyncio\nasyncio.ensure_future(f())", ["bare-task", "unnamed-task"]),
        ("import asyncio\nasyncio.get_running_loop().create_task(f(), name='f')", ["bare-task"]),
        ("group.create_task(f())", ["unnamed-task"]),
        ("group.create_task(f(), name='f')", []),
        ("group.create_task(f(), **options)", []),
        ("import time\ntime.monotonic()", []),
        ("console.print('x')", []),
        ("clock.time()\nself.clock.now()", []),
    ],
)
def test_banned_calls_are_found_under_any_name(text: str, broken: list[str]) -> None:
    """A banned call is found however it was imported, and a namesake is left alone."""
    assert rules_broken(check_calls, text) == broken


def test_the_allow_list_covers_one_rule_in_one_place() -> None:
    """The clock may read the machine's clock, and may still not print."""
    text = "import time\ntime.time()\nprint(1)"
    assert rules_broken(check_calls, text, "foundation/clock.py") == ["print"]


def test_an_exception_that_allows_nothing_is_found() -> None:
    """When the clock no longer reads the machine's clock, its exception has to go."""
    assert rules_broken(check_calls, "x = 1", "foundation/clock.py") == ["unused-exception"]


def test_tests_may_read_the_clock() -> None:
    """A test compares with the real time, so the clock rule leaves tests out."""
    assert rules_broken(check_calls, "import time\ntime.time()", "tests/test_x.py") == []


@pytest.mark.parametrize(("extra_lines", "broken"), [(0, []), (1, ["function-length"])])
def test_a_function_has_at_most_its_lines(extra_lines: int, broken: list[str]) -> None:
    """The bound itself passes, and one line more is too long, in methods and async ones too."""
    body = "        x = 1\n" * (FUNCTION_LINES_MAX - 1 + extra_lines)
    text = f'"""Subject."""\nclass C:\n    async def f(self):\n{body}'
    assert rules_broken(check_shape, text) == broken


@pytest.mark.parametrize(("extra_lines", "broken"), [(0, []), (1, ["module-length"])])
def test_a_module_has_at_most_its_lines(extra_lines: int, broken: list[str]) -> None:
    """The bound itself passes, and one line more is too long."""
    text = '"""Subject."""\n' + "x = 1\n" * (MODULE_LINES_MAX - 1 + extra_lines)
    assert rules_broken(check_shape, text) == broken


def test_a_module_says_its_subject_unless_it_is_empty() -> None:
    """A module without a docstring is found, an empty one is not."""
    assert rules_broken(check_shape, "x = 1\n") == ["module-docstring"]
    assert rules_broken(check_shape, "") == []


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("import pytest\n@pytest.mark.skip\ndef f(): ...", ["switched-off-test"]),
        ("import pytest\n@pytest.mark.skipif(True)\ndef f(): ...", ["switched-off-test"]),
        ("import pytest\n@pytest.mark.xfail\ndef f(): ...", ["switched-off-test"]),
        ("from pytest import mark\n@mark.xfail()\ndef f(): ...", ["switched-off-test"]),
        ("import pytest\npytest.skip('no')", ["switched-off-test"]),
        ("import time\ntime.sleep(0.1)", ["sleeping-test"]),
        ("from asyncio import sleep\nsleep(1)", ["sleeping-test"]),
        ("import asyncio\nasyncio.sleep(0)", []),
        ("def test_x(): pass", ["test-docstring"]),
        ("def test_x():\n    '''It works.'''", []),
        ("import pytest\n@pytest.mark.interop\ndef f(): ...", []),
    ],
)
def test_tests_run_say_what_they_show_and_do_not_sleep(text: str, broken: list[str]) -> None:
    """Switched-off, sleeping and speechless tests are found in tests."""
    assert rules_broken(check_tests, text, "tests/unit/test_x.py") == broken


def test_helpers_may_poll() -> None:
    """A helper of tests that waits for a condition polls it, so only test files may not sleep."""
    text = "import asyncio\nasyncio.sleep(0.01)"
    assert rules_broken(check_tests, text, "tests/fixtures/waiting.py") == []


def test_product_code_is_no_test() -> None:
    """The rules of tests leave product code out, which may well sleep."""
    assert rules_broken(check_tests, "import time\ntime.sleep(1)") == []


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("open('/{}/main/x')", ["machine-path"]),
        ("ENV HOME=/{}", ["machine-path"]),
        ("/{}flows/1", []),
        ("the network/{} of others", []),
        ("GET /v1/{}/2", []),
    ],
)
def test_machine_paths_are_found_and_routes_are_not(line: str, broken: list[str]) -> None:
    """A folder at the top of a machine is found; a longer word or an inner folder is not."""
    assert rules_broken(check_words, line.format("wo" + "rk")) == broken


def test_folders_of_the_workplace_are_found() -> None:
    """The folder that lies beside the repository is found in documents too."""
    line = "see ../sha" + "red for more"
    assert rules_broken(check_words, line, "docs/guide.md") == ["workplace-folder"]


def write(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root


def dead(root: Path) -> list[str]:
    return [finding.path for finding in dead_modules(python_files(root), root)]


def test_modules_that_no_program_reaches_are_dead(tmp_path: Path) -> None:
    """Reached is what a program imports in some steps; a pair that uses only itself is dead."""
    root = write(
        tmp_path,
        {
            "pyproject.toml": "[project.scripts]\ntdp = 'tools.cli:main'\n",
            "tools/cli.py": "CHILD = 'tools.child:main'\nfrom . import near",
            "tools/child.py": "import foundation.ids",
            "tools/near.py": "",
            "tools/only_tested.py": "",
            "foundation/__init__.py": "",
            "foundation/ids.py": "",
            "foundation/pair_a.py": "from foundation import pair_b",
            "foundation/pair_b.py": "from foundation.pair_a import x",
            "control_plane/__main__.py": "from control_plane import server",
            "control_plane/server.py": "",
            "tests/builders.py": "",
            "tests/left_over.py": "",
            "tests/test_x.py": "from tests import builders\nimport tools.only_tested",
        },
    )
    assert dead(root) == [
        "foundation/pair_a.py",
        "foundation/pair_b.py",
        "tests/left_over.py",
        "tools/only_tested.py",
    ]


def test_the_command_lists_findings_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints each finding with its place and exits 1, and 0 once it is mended."""
    root = write(
        tmp_path,
        {"pyproject.toml": "", "foundation/__main__.py": '"""Subject."""\n\nprint(1)\n'},
    )
    assert command_line.main(["--root", str(root)]) == 1
    assert "foundation/__main__.py:3: print: print: log it" in capsys.readouterr().out
    write(root, {"foundation/__main__.py": '"""Subject."""\n'})
    assert review(root) == []
    assert command_line.main(["--root", str(root)]) == 0
