"""What `tdp node install` writes, shows, keeps and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tools.cli.commands.node import app

TOKEN = "tdp_join_" + "j" * 43
PYTHON = "/opt/tdp/bin/python"


def install(into: Path, *arguments: str, python: str = PYTHON) -> str:
    """Run the command; answer its output, or raise its error."""
    given = ["install", "--control-plane", "control.example:7300", "--name", "node-7"]
    given += ["--python", python, "--into", str(into), *arguments]
    done = CliRunner().invoke(app, given, catch_exceptions=False, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


def token_file(folder: Path) -> Path:
    file = folder / "token.txt"
    file.write_text(f"{TOKEN}\n")
    return file


def test_unit_settings_and_token_are_written(tmp_path: Path) -> None:
    """Each to its place; the token for root alone, and in no other file."""
    root = tmp_path / "root"
    install(root, "--join-token-file", str(token_file(tmp_path)))
    unit = root / "etc/systemd/system/tdp-agent.service"
    settings = root / "etc/tdp-agent/agent.env"
    token = root / "etc/tdp-agent/join-token"
    assert f"ExecStart={PYTHON} -m node_agent serve" in unit.read_text()
    assert "LoadCredential=join-token:/etc/tdp-agent/join-token" in unit.read_text()
    assert 'TDP_AGENT_CONTROL_PLANE="control.example:7300"' in settings.read_text()
    assert 'TDP_AGENT_NODE_NAME="node-7"' in settings.read_text()
    assert token.read_text() == f"{TOKEN}\n"
    assert [one.stat().st_mode & 0o777 for one in (unit, settings, token)] == [0o644, 0o644, 0o600]
    assert TOKEN not in unit.read_text() + settings.read_text()


def test_a_dry_run_writes_nothing_and_shows_no_secret(tmp_path: Path) -> None:
    """It shows the files as they would be, the token only by its place."""
    root = tmp_path / "root"
    shown = install(root, "--join-token-file", str(token_file(tmp_path)), "--dry-run")
    assert not root.exists()
    assert "Type=notify" in shown
    assert "/etc/tdp-agent/join-token (0600)" in shown
    assert TOKEN not in shown
    document = json.loads(
        install(root, "--join-token-file", str(token_file(tmp_path)), "--dry-run", "--json")
    )
    assert document["written"] == []
    assert [one["mode"] for one in document["files"]] == ["0644", "0644", "0600"]
    assert TOKEN not in json.dumps(document)


def test_an_operators_settings_are_kept_unless_asked_for(tmp_path: Path) -> None:
    """Installing again renews the unit and leaves the settings, or replaces them."""
    settings = tmp_path / "etc/tdp-agent/agent.env"
    unit = tmp_path / "etc/systemd/system/tdp-agent.service"
    install(tmp_path)
    settings.write_text("TDP_AGENT_SLOTS=3\n")
    unit.write_text("old")
    install(tmp_path)
    assert settings.read_text() == "TDP_AGENT_SLOTS=3\n"
    assert "Type=notify" in unit.read_text()
    install(tmp_path, "--replace")
    assert "TDP_AGENT_SLOTS" not in settings.read_text()


def test_certificates_come_as_credentials(tmp_path: Path) -> None:
    """The agent is told where systemd puts them, and that TLS is wanted."""
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).write_text("x")
    paths = [str(tmp_path / name) for name in ("ca.pem", "cert.pem", "key.pem")]
    install(tmp_path, "--tls-ca", paths[0], "--tls-certificate", paths[1], "--tls-key", paths[2])
    unit = (tmp_path / "etc/systemd/system/tdp-agent.service").read_text()
    assert f"LoadCredential=tls-private-key:{paths[2]}" in unit
    assert "Environment=TDP_AGENT_TLS_PRIVATE_KEY_PATH=%d/tls-private-key" in unit
    assert 'TDP_AGENT_TLS="true"' in (tmp_path / "etc/tdp-agent/agent.env").read_text()


def test_gpus_are_shown_only_where_wanted(tmp_path: Path) -> None:
    """Without the option no device is."""
    unit = tmp_path / "etc/systemd/system/tdp-agent.service"
    install(tmp_path)
    assert "PrivateDevices=yes" in unit.read_text()
    install(tmp_path, "--gpus")
    assert "PrivateDevices" not in unit.read_text()
    assert "DeviceAllow=char-nvidia rw" in unit.read_text()


@pytest.mark.parametrize(
    ("arguments", "python", "words"),
    [
        (("--control-plane", "nowhere"), PYTHON, "not HOST:PORT"),
        ((), str(Path("/", "home", "me", ".venv", "bin", "python")), "install the agent elsewhere"),
        ((), "venv/bin/python", "absolute path"),
        (("--join-token-file", "/absent"), PYTHON, "cannot be read"),
        (("--join-token-file", "/dev/null"), PYTHON, "holds no join token"),
        (("--tls-ca", "/absent.pem"), PYTHON, "is not there"),
        (("--tls-certificate", "/dev/null"), PYTHON, "needs both"),
    ],
)
def test_what_could_not_work_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], python: str, words: str
) -> None:
    """Before anything is written, with what to do."""
    with pytest.raises(Exception, match=words):
        install(tmp_path / "root", *arguments, python=python)
    assert not (tmp_path / "root").exists()
