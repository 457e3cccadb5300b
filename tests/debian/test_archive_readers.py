"""What archive.clean writes, as three readers that know nothing of it see it."""

from __future__ import annotations

import json
import subprocess
import unicodedata
import zipfile
from pathlib import Path
from typing import Any

import pytest

from node_agent.capabilities.archive_clean import CleanLimits, CleanOptions, clean_archive
from tests.cases.builders import zip_recipes

pytestmark = pytest.mark.debian
CASES = Path(__file__).parents[1] / "cases"
ACCEPTED = [
    case
    for case in json.loads((CASES / "cases.json").read_text("utf-8"))
    if case["file"].startswith("zip/") and case["expect"]["outcome"] != "refused"
]
# unzip 6.0 lists such entries, and cannot unpack them.
UNKNOWN_TO_UNZIP = {zipfile.ZIP_LZMA}


@pytest.fixture(params=ACCEPTED, ids=lambda case: case["file"][4:])
def clean(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The clean archive of each accepted case."""
    case: dict[str, Any] = request.param
    source = CASES / case["file"]
    if "recipe" in case:
        source = tmp_path / "source.zip"
        source.write_bytes(getattr(zip_recipes, case["recipe"]["call"])())
    destination = tmp_path / "clean.zip"
    clean_archive(source, destination, CleanOptions(), CleanLimits())
    return destination


def output_of(*command: str) -> bytes:
    """What a program writes; AssertionError if it fails or complains."""
    environment = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, check=False, capture_output=True, env=environment)
    assert (done.returncode, done.stderr) == (0, b""), (command, done.returncode, done.stderr)
    return done.stdout


def composed_name(name: str) -> str:
    """The name in NFC."""
    return unicodedata.normalize("NFC", name)


def unpacked(folder: Path, *command: str) -> dict[str, bytes]:
    """The files that a program unpacks there, by their paths."""
    folder.mkdir()
    assert output_of(*command, str(folder)) == b""
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_independent_readers_agree_on_names_and_bytes(clean: Path, tmp_path: Path) -> None:
    """Python's zipfile, bsdtar and unzip list the same names and unpack the same bytes."""
    with zipfile.ZipFile(clean) as reader:
        assert reader.testzip() is None
        infos = reader.infolist()
        contents = {info.filename: reader.read(info) for info in infos if not info.is_dir()}
    names = [info.filename for info in infos]
    if not names:
        # bsdtar and unzip take no archive without entries.
        return
    archive = str(clean)
    # bsdtar composes accents, by which two names may become one.
    composed = [composed_name(name) for name in names]
    assert output_of("bsdtar", "-tf", archive).decode().splitlines() == composed
    if len(set(composed)) == len(names):
        found = unpacked(tmp_path / "bsdtar", "bsdtar", "-xf", archive, "-C")
        assert found == {composed_name(name): content for name, content in contents.items()}
    assert output_of("unzip", "-Z1", archive).decode().splitlines() == names
    if not any(info.compress_type in UNKNOWN_TO_UNZIP for info in infos):
        assert unpacked(tmp_path / "unzip", "unzip", "-qq", archive, "-d") == contents
