"""The unit as systemd itself reads and judges it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from node_agent.systemd.unit import Credential, UnitOptions, unit_text

pytestmark = pytest.mark.debian
PYTHON = Path(sys.executable)
OPTIONS = {
    "plain": UnitOptions(PYTHON),
    "whole": UnitOptions(PYTHON, (Credential("tls-ca", Path("/etc/ssl/100% ca.pem")),), gpus=True),
}
# In tenths, as systemd-analyze wants it: 3.0.
EXPOSURE_TENTHS_MAX = 30


@pytest.fixture(params=sorted(OPTIONS))
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The unit's file, for each kind of machine."""
    file = tmp_path / "tdp-agent.service"
    file.write_text(unit_text(OPTIONS[request.param]))
    return file


def analyzed(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments], check=False, capture_output=True, text=True
    )


def test_systemd_finds_nothing_to_say_against_the_unit(unit: Path) -> None:
    """Not one warning: an unknown word would be ignored, and its protection with it."""
    verdict = analyzed("verify", "--man=no", str(unit))
    assert (verdict.returncode, verdict.stdout, verdict.stderr) == (0, "", "")


def test_systemd_sees_what_is_wrong_with_a_unit(unit: Path) -> None:
    """The check above can fail: a misspelt word is told."""
    unit.write_text(unit.read_text().replace("ProtectSystem=", "ProtectSistem="))
    assert "ProtectSistem" in analyzed("verify", "--man=no", str(unit)).stderr


def test_the_unit_is_hardened(unit: Path) -> None:
    """An exposure of 3.0 or less in the offline analysis."""
    threshold = f"--threshold={EXPOSURE_TENTHS_MAX}"
    judged = analyzed("security", "--offline=true", threshold, "--no-pager", str(unit))
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert "Overall exposure level" in judged.stdout


def test_the_threshold_is_one(unit: Path) -> None:
    """The check above can fail: without its protections the unit is over the threshold."""
    lines = unit.read_text().splitlines()
    bare = [one for one in lines if not one.startswith(("Protect", "Capab", "Private", "Restrict"))]
    unit.write_text("\n".join(bare))
    threshold = f"--threshold={EXPOSURE_TENTHS_MAX}"
    assert analyzed("security", "--offline=true", threshold, str(unit)).returncode != 0
