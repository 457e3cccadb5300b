"""`tdp capability`: one capability alone, in a child process, without servers."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

# Its output tells how often it ran.
ODD = """
from itertools import count

from pydantic import BaseModel

from node_agent.sdk import Context, capability

RUNS = count()


class Number(BaseModel):
    number: int = 0


@capability("test.odd", version="1", mode="inline")
async def odd(ctx: Context, given: Number) -> Number:
    return Number(number=next(RUNS))
"""
CASES = Path(__file__).parents[3] / "cases"


def tdp(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("tdp")), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_archive_is_cleaned(tmp_path: Path) -> None:
    """Status 0, the results in the folder, and one JSON document on standard output."""
    source = CASES / "zip/junk-macos-finder.zip"
    arguments = ("run", "archive.clean", "--input", str(source), "--output", "made", "--json")
    done = tdp(tmp_path, "capability", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert (document["status"], document["output"]["removed_count"]) == ("SUCCEEDED", 5)
    with zipfile.ZipFile(tmp_path / "made/clean/archive.zip") as archive:
        assert "photos/beach.png" in archive.namelist()
    manifest = json.loads((tmp_path / "made/clean/manifest.json").read_text(encoding="utf-8"))
    assert len(manifest["removed"]) == 5


def test_a_bad_archive_is_refused(tmp_path: Path) -> None:
    """Status 2, the reason on standard error and in the document, no output folder."""
    source = CASES / "zip/bad-crc.zip"
    done = tdp(tmp_path, "capability", "run", "archive.clean@1", "--input", str(source), "--json")
    assert done.returncode == 2
    assert done.stderr.startswith("ARCHIVE_CRC_MISMATCH ")
    assert json.loads(done.stdout)["failure"]["reason"] == "ARCHIVE_CRC_MISMATCH"
    assert list(tmp_path.iterdir()) == []


def test_a_single_picture_is_watermarked(tmp_path: Path) -> None:
    """A picture instead of a ZIP is wrapped; a numeric text stays a text."""
    source = CASES / "image/jpeg-orientation-6.jpg"
    arguments = ("--input", str(source), "--param", "text=2024", "--param", "opacity=0.8")
    done = tdp(tmp_path, "capability", "run", "image.watermark", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    made = tmp_path / "output/watermark/images/jpeg-orientation-6.jpg"
    assert made.read_bytes() != source.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("no.such",), "CAPABILITY_UNKNOWN"),
        (("archive.clean@9",), "CAPABILITY_UNKNOWN"),
        (("noop", "--param", "nothing"), "INVALID_ARGUMENT"),
        (("archive.clean",), "INPUT_INVALID"),
    ],
)
def test_wrong_arguments_are_refused(
    tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    """Status 2 and a reason for what cannot be run."""
    done = tdp(tmp_path, "capability", "run", *arguments)
    assert done.returncode == 2
    assert reason in done.stderr


def test_a_kept_contract_is_told(tmp_path: Path) -> None:
    """Status 0 and one JSON document with every finding."""
    done = tdp(tmp_path, "capability", "check", "noop", "--param", "number=1", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert (document["capability"], document["kept"]) == ("noop", True)
    passed = {one["name"]: one["passed"] for one in document["findings"]}
    assert passed["duplicate-delivery"] is True
    # It saves no checkpoint and has no input to damage.
    assert (passed["resume"], passed["refusal"]) == (None, None)


def test_a_broken_contract_is_told(tmp_path: Path) -> None:
    """Status 1, and in the report what to do and where, for a project that is not installed."""
    (tmp_path / "odd.py").write_text(ODD, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "odd"\n[project.entry-points."tdp.capabilities"]\nodd = "odd:odd"\n',
        encoding="utf-8",
    )
    done = tdp(tmp_path, "capability", "check", "test.odd")
    assert done.returncode == 1, done.stderr
    told = " ".join(done.stdout.split())
    assert "✗ duplicate-delivery" in told
    assert f"({tmp_path}/odd.py:15)" in told
    assert "✓ cancellation" in told


def test_the_installed_capabilities_are_listed(tmp_path: Path) -> None:
    """Name, version and mode of each."""
    done = tdp(tmp_path, "capability", "list", "--json")
    modes = {one["name"]: one["mode"] for one in json.loads(done.stdout)}
    assert modes["noop"] == "inline"
    assert modes["archive.clean"] == modes["image.watermark"] == "process"
