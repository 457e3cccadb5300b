"""How a clean runs: progress, cancellation, memory, and a result that is whole or not there."""

import os
import stat
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from node_agent.capabilities.archive_clean import (
    CleanCancelledError,
    CleanLimits,
    CleanOptions,
    clean_archive,
    inflate,
)
from node_agent.capabilities.archive_clean.records import extra_blocks
from node_agent.capabilities.archive_clean.source import ArchiveSource
from tests.cases.builders.zip_builder import DEFLATED, archive, extra, text_entry
from tests.unit.node_agent.archive_clean.cleaning import Workshop

_MIB = 1 << 20


def _run(
    workshop: Workshop,
    data: bytes,
    progress: Callable[[float], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> None:
    workshop.source.write_bytes(data)
    paths = workshop.source, workshop.destination
    clean_archive(*paths, CleanOptions(), CleanLimits(), progress=progress, cancelled=cancelled)


def test_progress_grows_to_one(workshop: Workshop) -> None:
    """Shares only grow, come at most once a per cent, and end at one."""
    told: list[float] = []
    _run(workshop, archive([text_entry("a", bytes(5 * _MIB))]), progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert 3 <= len(told) <= 101


def test_progress_of_nothing_is_one(workshop: Workshop) -> None:
    """An empty archive is done at once."""
    told: list[float] = []
    _run(workshop, archive([]), progress=told.append)
    assert told == [1.0]


@pytest.mark.parametrize("allowed", [0, 1, 5])
def test_cancelling_stops_and_leaves_nothing(allowed: int, workshop: Workshop) -> None:
    """It is asked before each entry and chunk, and the partial result goes."""
    asked: list[None] = []

    def cancelled() -> bool:
        asked.append(None)
        return len(asked) > allowed

    data = archive([text_entry("a", bytes(_MIB)), text_entry("b", bytes(_MIB))])
    with pytest.raises(CleanCancelledError):
        _run(workshop, data, cancelled=cancelled)
    assert len(asked) == allowed + 1
    assert list(workshop.results.iterdir()) == []


def test_an_older_result_survives_a_failure(workshop: Workshop) -> None:
    """A refusal in the middle of copying leaves the destination as it was."""
    workshop.destination.write_bytes(b"older")
    spoiled = bytearray(archive([text_entry("a", "x" * 100)]))
    spoiled[50] ^= 1
    with pytest.raises(Exception, match="CRC"):
        _run(workshop, bytes(spoiled))
    assert workshop.destination.read_bytes() == b"older"
    assert list(workshop.results.iterdir()) == [workshop.destination]


def test_the_result_can_replace_its_source(workshop: Workshop) -> None:
    """Source and destination may be the same file."""
    workshop.destination.write_bytes(archive([text_entry("a", "x"), text_entry(".DS_Store", "x")]))
    report = clean_archive(
        workshop.destination, workshop.destination, CleanOptions(), CleanLimits()
    )
    assert [entry.name for entry in report.kept] == ["a"]
    assert workshop.destination.stat().st_size == report.clean_size_bytes


def test_a_missing_source_is_no_refusal(workshop: Workshop) -> None:
    """What is wrong with the machine is told apart from what is wrong with the archive."""
    with pytest.raises(FileNotFoundError):
        clean_archive(Path("nowhere.zip"), workshop.destination, CleanOptions(), CleanLimits())


def test_memory_does_not_grow_with_the_archive(workshop: Workshop) -> None:
    """A hundred megabytes, stored and deflated, pass through a few."""
    content = bytes(range(256)) * (50 * _MIB // 256)
    stored, packed = text_entry("a", content), text_entry("b", content, method=DEFLATED)
    workshop.source.write_bytes(archive([stored, packed]))
    limits = CleanLimits(ratio_max=10_000)
    del content, stored, packed
    tracemalloc.start()
    try:
        clean_archive(workshop.source, workshop.destination, CleanOptions(), limits)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * _MIB


def test_a_source_that_shrinks_is_truncated(tmp_path: Path) -> None:
    """A file cut while it is read is noticed at the first short read."""
    file = tmp_path / "a"
    file.write_bytes(b"0123456789")
    with file.open("rb") as opened:
        source = ArchiveSource(opened)
        file.write_bytes(b"01234")
        with pytest.raises(Exception, match="ends at byte 5"):
            source.read(2, 8)


def test_output_held_back_by_the_decoder_is_fetched(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece can be full while all input is taken: the rest comes without more input."""
    monkeypatch.setattr(inflate, "CHUNK_BYTES", 100)
    sizes = range(90, 700, 3)
    _run(workshop, archive([text_entry(f"{n}", bytes(n), method=DEFLATED) for n in sizes]))
    assert workshop.destination.exists()


def test_content_and_name_reach_the_disk_in_this_order(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is synced before it gets its name, and the folder after."""
    synced: list[tuple[bool, bool]] = []

    def fsync(handle: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        synced.append((is_folder, workshop.destination.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    _run(workshop, archive([text_entry("a", "x")]))
    assert synced == [(False, False), (True, True)]


def test_extra_fields_are_read_leniently() -> None:
    """The first field of an id counts; padding and a field cut short are passed over."""
    fields = extra(1, b"first") + extra(1, b"second") + extra(2, b"") + b"\x00\x00\x09"
    assert extra_blocks(fields) == {1: b"first", 2: b""}
    assert extra_blocks(extra(1, b"a") + b"\x02\x00\xff\x00cut") == {1: b"a"}
