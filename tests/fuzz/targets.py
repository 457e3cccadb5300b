"""What is fuzzed: each target takes any bytes, tells how they ended, and raises on a finding."""

from __future__ import annotations

import io
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from PIL import Image, ImageSequence

from node_agent.capabilities.archive_clean import (
    ArchiveRefusedError,
    CleanLimits,
    CleanOptions,
    clean_archive,
)
from node_agent.capabilities.image_watermark import ImageLimits, ImageRefused, Watermarker

CASES: Final = Path(__file__).parents[1] / "cases"
OK: Final = "ok"
_SEED_BYTES_MAX: Final = 20_000
_MIB: Final = 1 << 20


class Target(Protocol):
    """Something that takes files from anywhere."""

    @property
    def seeds(self) -> Sequence[bytes]:
        """The files that mutations start from."""
        ...

    def run(self, data: bytes) -> str:
        """Return "ok" or the reason of the refusal; AssertionError or any error is a finding."""
        ...


class ZipTarget:
    """archive.clean: a success is a ZIP that another reader takes, a refusal leaves nothing."""

    def __init__(self) -> None:
        self.seeds: Sequence[bytes] = _seeds("zip")
        self._folder = tempfile.TemporaryDirectory()
        self._source = Path(self._folder.name) / "source.zip"
        self._results = Path(self._folder.name) / "results"
        self._results.mkdir()
        self._limits = CleanLimits(entries_max=1_000, inflated_bytes_max=16 * _MIB)

    def run(self, data: bytes) -> str:
        clean = self._results / "clean.zip"
        self._source.write_bytes(data)
        clean.unlink(missing_ok=True)
        try:
            report = clean_archive(self._source, clean, CleanOptions(), self._limits)
        except ArchiveRefusedError as refused:
            assert list(self._results.iterdir()) == [], "a refusal left something behind"
            return str(refused.reason)
        with zipfile.ZipFile(clean) as reader:
            assert reader.namelist() == [entry.name for entry in report.kept]
            assert reader.testzip() is None
        return OK


class ImageTarget:
    """image.watermark's reader: a success is a picture that opens and loads, frame by frame."""

    def __init__(self) -> None:
        self.seeds: Sequence[bytes] = _seeds("image")
        limits = ImageLimits(pixels_max=2_000_000, frames_max=50, pixels_total_max=8_000_000)
        self._watermarker = Watermarker("水印 ©", limits=limits)

    def run(self, data: bytes) -> str:
        try:
            edited = self._watermarker.watermark_bytes("picture", data)
        except ImageRefused as refused:
            return str(refused.reason)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(edited.data)) as picture:
                for frame in ImageSequence.Iterator(picture):
                    frame.load()
        return OK


TARGETS: Final[Mapping[str, Callable[[], Target]]] = {"zip": ZipTarget, "image": ImageTarget}


def _seeds(folder: str) -> list[bytes]:
    """The examples that are small enough to be tried often, by name."""
    files = sorted((CASES / folder).iterdir())
    return [file.read_bytes() for file in files if file.stat().st_size <= _SEED_BYTES_MAX]
