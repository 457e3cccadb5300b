"""The bootstrap installs again exactly when the locks change, or says what it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.bootstrap import LOCKS, BootstrapError, Environment, set_up


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A repository with locks and an environment that looks made."""
    (tmp_path / "requirements").mkdir()
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    for name in ("uv", "runtime", "dev", "interop", "browser"):
        (tmp_path / "requirements" / f"{name}.txt").write_text(name, encoding="utf-8")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    (tmp_path / ".venv/bin/python").chmod(0o755)
    return Environment(tmp_path)


def freshness(environment: Environment) -> dict[str, bool]:
    return {level: environment.is_fresh(level) for level in LOCKS}


def test_a_level_contains_the_smaller_ones(environment: Environment) -> None:
    """After `dev`, `runtime` needs nothing, and what stands on `dev` still does."""
    assert not any(freshness(environment).values())
    environment.remember("dev")
    stale = {level for level, fresh in freshness(environment).items() if not fresh}
    assert stale == {"interop", "browser"}


@pytest.mark.parametrize(
    ("changed", "stale"),
    [
        ("requirements/dev.txt", {"dev", "interop", "browser"}),
        ("requirements/interop.txt", {"interop"}),
        ("requirements/browser.txt", {"browser"}),
        ("requirements/runtime.txt", {"runtime"}),
        ("requirements/uv.txt", {"runtime", "dev", "interop", "browser"}),
        ("pyproject.toml", {"runtime", "dev", "interop", "browser"}),
    ],
)
def test_a_changed_lock_makes_its_levels_stale(
    environment: Environment, changed: str, stale: set[str]
) -> None:
    """Only the levels that install from a changed file are installed again."""
    environment.remember("interop")
    environment.remember("browser")
    assert all(freshness(environment).values())
    (environment.root / changed).write_text("changed", encoding="utf-8")
    assert {level for level, fresh in freshness(environment).items() if not fresh} == stale


def test_a_deleted_environment_is_stale(environment: Environment) -> None:
    """What was remembered counts only while the environment's Python is there."""
    environment.remember("dev")
    environment.python.unlink()
    assert not environment.is_fresh("dev")


def test_a_fresh_environment_is_left_alone(
    environment: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is run and nothing is said when the locks are installed already."""
    environment.remember("dev")
    set_up(environment, "dev")
    assert capsys.readouterr().err == ""


def test_without_any_installer_the_error_says_what_to_install(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where neither pip nor uv can be had, the message names the package that brings them."""
    monkeypatch.setattr("tools.bootstrap.sys.executable", str(environment.python))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BootstrapError, match="apt-get install python3-venv"):
        set_up(environment, "runtime")
    assert not environment.is_fresh("runtime")
