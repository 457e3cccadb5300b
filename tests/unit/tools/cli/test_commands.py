"""The command line as typed: help, exit statuses, errors, and where it finds the platform."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import typer

from foundation.errors import (
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    TdpError,
    UnavailableError,
)
from tools.cli import journey
from tools.cli import main as cli
from tools.cli.commands import dev
from tools.cli.connection import Connection, NotConfiguredError
from tools.cli.output import ExitCode, report_error

SCHEDULE_ACTS = (
    "create",
    "update",
    "get",
    "list",
    "pause",
    "resume",
    "delete",
    "trigger",
    "runs",
    "upcoming",
)


APPLICATION_ACTS = (
    "list", "register", "create-key", "revoke-key", "endpoint", "rotate", "disable",
)  # fmt: skip
TASK_ACTS = ("signal", "skip", "pause", "resume", "extend", "rerun", "cancel")


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run `tdp` in this process; answer its exit status."""
    monkeypatch.setattr("sys.argv", ["tdp", *arguments])
    with pytest.raises(SystemExit) as exited:
        cli.main()
    code = exited.value.code
    return code if isinstance(code, int) else int(code is not None)


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_each_command_explains_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Every command has a help page."""
    assert run(monkeypatch, name, "--help") == 0
    assert "Usage: tdp" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [
        ("order", "create"),
        ("order", "get"),
        ("order", "list"),
        ("order", "watch"),
        ("order", "download"),
        ("order", "cancel"),
        ("order", "rerun"),
        ("task", "get"),
        ("task", "list"),
        ("task", "watch"),
        ("workflow", "validate"),
        *(("task", one) for one in TASK_ACTS),
        ("workflow", "publish"),
        ("workflow", "get"),
        ("workflow", "deprecate"),
        ("workflow", "list"),
        *(("schedule", one) for one in SCHEDULE_ACTS),
        ("node", "list"),
        ("node", "cordon"),
        ("node", "uncordon"),
        ("node", "drain"),
        ("node", "place"),
        ("node", "remove"),
        ("node", "join-token"),
        *(("application", one) for one in APPLICATION_ACTS),
        ("callback", "list"),
        ("callback", "redeliver"),
        ("evidence",),
        ("conservation",),
        ("demo",),
        ("dev",),
    ],
)
def test_help_shows_an_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    """Every command's help has an example, and offers JSON."""
    assert run(monkeypatch, *command, "--help") == 0
    text = capsys.readouterr().out
    assert f"tdp {' '.join(command)}" in text.split("Example", 1)[1]
    assert "--json" in text


def test_help_is_quick_to_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Naming a command imports that command's module and no other."""
    imported: list[str] = []

    def importing(name: str) -> object:
        imported.append(name)
        return type("Module", (), {"app": typer.Typer(callback=lambda: None)})

    monkeypatch.setattr(cli, "import_module", importing)
    run(monkeypatch, "node")
    assert imported == ["tools.cli.commands.node"]


def test_without_a_platform(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A command that finds no platform is refused and says what to set."""
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "node", "list") == ExitCode.REFUSED
    assert "TDP_CLI_CONTROL_TARGET" in capsys.readouterr().err


def test_create_wants_one_source(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`order create` takes a ZIP or an asset: none and both are refused, as is a missing file."""
    path = tmp_path / "a.zip"
    path.write_bytes(b"PK")
    for arguments in ((), (str(path), "--asset", "1")):
        assert run(monkeypatch, "order", "create", *arguments) == ExitCode.REFUSED
        assert "not both" in capsys.readouterr().err
    assert run(monkeypatch, "order", "create", str(tmp_path / "none.zip")) == ExitCode.REFUSED


@pytest.mark.parametrize("text", [" ", "字" * 101])
@pytest.mark.parametrize("command", ["demo", "order"])
def test_a_watermark_that_cannot_be_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    command: str,
    text: str,
) -> None:
    """Neither a stack nor an upload is begun for it; a hundred characters are taken."""
    path = tmp_path / "a.zip"
    path.write_bytes(b"PK")
    arguments = ("demo",) if command == "demo" else ("order", "create", str(path))
    assert run(monkeypatch, *arguments, "--text", text) == ExitCode.REFUSED
    assert "watermark" in capsys.readouterr().err
    assert journey.watermark("字" * 100) == "字" * 100


def test_whoever_asks_for_json_reads_errors_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One line on standard error with reason and message; nothing on standard output."""
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "order", "list", "--json") == ExitCode.REFUSED
    written = capsys.readouterr()
    error = json.loads(written.err)["error"]
    assert (error["reason"], error["retryable"]) == (NotConfiguredError.reason, False)
    assert "TDP_CLI_GATEWAY_URL" in error["message"]
    assert written.out == ""


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidArgumentError("wrong [value]"), ExitCode.REFUSED),
        (NotFoundError("nothing"), ExitCode.REFUSED),
        (UnavailableError("silence"), ExitCode.UNREACHABLE),
        (InternalError("broken"), ExitCode.FAILED),
    ],
)
def test_exit_status_of_errors(
    capsys: pytest.CaptureFixture[str], error: TdpError, status: ExitCode
) -> None:
    """Refusals, silence and faults have statuses of their own; brackets are no markup."""
    assert report_error(error) is status
    text = capsys.readouterr().err
    assert error.reason in text
    assert error.message in text


def test_connection_is_saved_privately_and_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What `tdp dev` saved is found by later commands, readable by its owner only."""
    path = tmp_path / "data" / "context.json"
    path.parent.mkdir()
    path.write_text("{}")
    path.chmod(0o644)
    Connection("http://g", "gateway-key", "c:1", "control-key").save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("TDP_CLI_CONTEXT", str(path))
    assert Connection.find() == Connection("http://g", "gateway-key", "c:1", "control-key")
    assert "gateway-key" not in repr(Connection.find())


def test_variables_go_over_the_saved_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A variable replaces what the file says, and only that."""
    path = tmp_path / "context.json"
    path.write_text(json.dumps({"gateway_url": "http://old", "gateway_key": "k"}))
    monkeypatch.setenv("TDP_CLI_CONTEXT", str(path))
    monkeypatch.setenv("TDP_CLI_GATEWAY_URL", "http://new/")
    assert Connection.find().gateway() == ("http://new", "k")
    with pytest.raises(NotConfiguredError):
        Connection(gateway_url="http://new").gateway()


def test_a_damaged_context_file_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A context file that is not ours is named, not shown as a stack trace."""
    path = tmp_path / "context.json"
    path.write_text("not json")
    monkeypatch.setenv("TDP_CLI_CONTEXT", str(path))
    assert run(monkeypatch, "node", "list") == ExitCode.REFUSED
    assert os.fspath(path) in capsys.readouterr().err.replace("\n", "")


@pytest.mark.parametrize("key", ["two\nlines", "with space", "键"])
def test_a_key_that_no_header_carries_is_refused_unshown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, key: str
) -> None:
    """A key that was copied wrongly is refused by its variable's name, without a stack trace."""
    monkeypatch.setenv("TDP_CLI_CONTEXT", str(tmp_path / "none.json"))
    for name, value in {"GATEWAY_URL": "http://g", "CONTROL_TARGET": "c:1"}.items():
        monkeypatch.setenv(f"TDP_CLI_{name}", value)
    for command, variable in (("order", "GATEWAY_KEY"), ("node", "CONTROL_KEY")):
        monkeypatch.setenv(f"TDP_CLI_{variable}", key)
        assert run(monkeypatch, command, "list") == ExitCode.REFUSED
        said = capsys.readouterr().err
        assert f"TDP_CLI_{variable}" in said
        assert key not in said


def test_an_address_that_is_no_url_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A wrong address is wrong input: it is said at once, not tried again as unreachable."""
    monkeypatch.setenv("TDP_CLI_CONTEXT", str(tmp_path / "none.json"))
    monkeypatch.setenv("TDP_CLI_GATEWAY_URL", "nonsense")
    monkeypatch.setenv("TDP_CLI_GATEWAY_KEY", "k")
    assert run(monkeypatch, "order", "list") == ExitCode.REFUSED
    assert "TDP_CLI_GATEWAY_URL" in capsys.readouterr().err


def test_a_workflow_file_that_is_no_text_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """An archive given as a definition is refused by its name, before anything is sent."""
    file = tmp_path / "photos.zip"
    file.write_bytes(b"PK\x03\x04\xc0")
    monkeypatch.setenv("TDP_CLI_CONTEXT", str(tmp_path / "none.json"))
    monkeypatch.setenv("TDP_CLI_CONTROL_TARGET", "127.0.0.1:1")
    monkeypatch.setenv("TDP_CLI_CONTROL_KEY", "k")
    assert run(monkeypatch, "workflow", "publish", str(file)) == ExitCode.REFUSED
    assert "WORKFLOW_INVALID" in capsys.readouterr().err


def test_the_printed_lines_name_a_program_that_the_shell_finds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After `make up` there is no `tdp` on the path, so the line to paste has its place."""
    monkeypatch.setattr("sys.argv", [".venv/bin/tdp", "dev"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert dev._program() == ".venv/bin/tdp"
    (tmp_path / "tdp").touch(mode=0o755)
    assert dev._program() == "tdp"
