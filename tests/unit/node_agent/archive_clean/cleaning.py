"""Runs archive.clean on bytes in a folder of its own, as every test here does."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from node_agent.capabilities.archive_clean import (
    ArchiveRefusedError,
    CleanLimits,
    CleanOptions,
    CleanReport,
    clean_archive,
)


@dataclass(frozen=True)
class Cleaned:
    """A clean archive and its report."""

    report: CleanReport
    data: bytes

    @property
    def kept(self) -> list[str]:
        return [entry.name for entry in self.report.kept]

    @property
    def removed(self) -> dict[str, str]:
        return {entry.name: entry.reason.value for entry in self.report.removed}


class Workshop:
    """Cleans archives in one folder, and sees to it that refusals leave nothing there."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "source.zip"
        self.results = folder / "results"
        self.results.mkdir(parents=True, exist_ok=True)
        self.destination = self.results / "clean.zip"

    def clean(
        self,
        data: bytes,
        options: CleanOptions | None = None,
        limits: CleanLimits | None = None,
    ) -> Cleaned:
        self.source.write_bytes(data)
        self.destination.unlink(missing_ok=True)
        try:
            report = clean_archive(
                self.source, self.destination, options or CleanOptions(), limits or CleanLimits()
            )
        except ArchiveRefusedError:
            assert list(self.results.iterdir()) == []
            raise
        assert list(self.results.iterdir()) == [self.destination]
        return Cleaned(report, self.destination.read_bytes())

    def refusal(self, data: bytes, limits: CleanLimits | None = None) -> ArchiveRefusedError:
        with pytest.raises(ArchiveRefusedError) as caught:
            self.clean(data, limits=limits)
        return caught.value
