"""`tdp demo`: everything from nothing, one order through all ten hops, and nothing left behind."""

from __future__ import annotations

import zipfile
from pathlib import Path

import psutil
import pytest
from PIL import Image

from tests.acceptance.platform import run_tdp

# For machines that do much else; alone it takes a fraction.
pytestmark = pytest.mark.timeout(240)


async def test_demo_end_to_end(tmp_path: Path) -> None:
    """The sample comes back watermarked and clean, with ten durable rungs; no process is left."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    out = tmp_path / "out"
    answered = await run_tdp(
        "demo", "--out", str(out), "--json", environment={"TMPDIR": str(scratch)}
    )
    assert answered.status == 0, answered.stderr
    story = answered.document
    assert story["order"]["status"] == "COMPLETED"
    assert [one["state"] for one in story["evidence"]["rungs"]] == 10 * ["DURABLE"]
    check_results(out)
    assert list(scratch.iterdir()) == []
    assert not [one for one in psutil.process_iter(["cmdline"]) if uses(one, scratch)]


def check_results(out: Path) -> None:
    """Assert the files of the sample: junk is gone, pictures are changed, kinds are kept."""
    with zipfile.ZipFile(out / "clean" / "archive.zip") as clean:
        names = set(clean.namelist())
    assert names == {
        "旅行照片/故宫.jpg",
        "旅行照片/北京/长城 日出.jpg",
        "sketches/logo.png",
        "旅行照片/说明.txt",
    }
    with Image.open(out / "watermark" / "images" / "sketches" / "logo.png") as logo:
        assert (logo.format, logo.mode) == ("PNG", "RGBA")
        assert logo.getchannel("A").getpixel((0, 0)) == 0
    with Image.open(out / "watermark" / "images" / "旅行照片" / "故宫.jpg") as photograph:
        assert (photograph.format, photograph.size) == ("JPEG", (1200, 800))
    assert (out / "clean" / "manifest.json").exists()
    assert (out / "watermark" / "manifest.json").exists()


def uses(process: psutil.Process, folder: Path) -> bool:
    """Whether a process was started for something in the folder."""
    try:
        return any(str(folder) in part for part in process.info["cmdline"] or ()) or (
            process.environ().get("TMPDIR") == str(folder)
        )
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
