"""Properties: cleaning is idempotent, and no bytes whatever break it in an untyped way."""

import io
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node_agent.capabilities.archive_clean import (
    ArchiveRefusedError,
    CleanLimits,
    CleanOptions,
)
from tests.cases.builders.zip_builder import DEFLATED, STORED, Entry, archive, text_entry
from tests.unit.node_agent.archive_clean.cleaning import Cleaned, Workshop

_CASES = sorted((Path(__file__).parents[3] / "cases" / "zip").glob("*.zip"))
_SMALL = [case.read_bytes() for case in _CASES if case.stat().st_size < 1_500]
_LIMITS = CleanLimits(entries_max=50, inflated_bytes_max=4 << 20, lzma_dictionary_bytes_max=1 << 20)
# The workshop is emptied by each clean, so examples can share it.
_SETTINGS = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])

_SEGMENTS = st.one_of(
    st.sampled_from([".DS_Store", "._a", ".git", "__MACOSX", "Thumbs.db", "a", "b", "é", "..."]),
    st.text(
        st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/\\:"),
        min_size=1,
        max_size=8,
    ).filter(lambda segment: segment not in {".", ".."}),
)
_PATHS = st.builds(
    lambda segments, slash: "/".join(segments) + slash,
    st.lists(_SEGMENTS, min_size=1, max_size=3),
    st.sampled_from(["", "", "", "/"]),
)


@st.composite
def _entries(draw: st.DrawFn) -> list[Entry]:
    """Honest entries under all sorts of names, some of which may contradict one another."""
    made = []
    for path in draw(st.lists(_PATHS, max_size=6, unique=True)):
        folder = path.endswith("/")
        made.append(
            text_entry(
                path,
                b"" if folder else draw(st.binary(max_size=40)),
                method=draw(st.sampled_from([STORED, DEFLATED])),
                descriptor=draw(st.sampled_from(["", "signed", "unsigned", "signed64"])),
                comment=draw(st.sampled_from([b"", b"note", "é".encode()])),
                made_by=draw(st.sampled_from([0x0014, 0x031E, 0x0A3F])),
            )
        )
    return made


def _outcome(workshop: Workshop, data: bytes, options: CleanOptions) -> Cleaned | None:
    """The clean archive, or None for a typed refusal; the workshop sees to it that it is empty."""
    try:
        return workshop.clean(data, options, _LIMITS)
    except ArchiveRefusedError:
        return None


def _check_agreement(cleaned: Cleaned) -> None:
    """The standard library finds the same names, sizes and checksums."""
    with zipfile.ZipFile(io.BytesIO(cleaned.data)) as reader:
        infos = reader.infolist()
        assert reader.testzip() is None
    assert [info.orig_filename for info in infos] == cleaned.kept
    for info, kept in zip(infos, cleaned.report.kept, strict=True):
        assert (info.file_size, f"{info.CRC:08x}") == (kept.size_bytes, kept.crc32)


@_SETTINGS
@given(entries=_entries(), drop_zero=st.booleans())
def test_cleaning_twice_is_cleaning_once(
    entries: list[Entry], workshop: Workshop, *, drop_zero: bool
) -> None:
    """A clean archive is accepted, and comes out the same to the byte, nothing removed."""
    options = CleanOptions(drop_zero_byte_files=drop_zero)
    once = _outcome(workshop, archive(entries), options)
    if once is None:
        return
    twice = _outcome(workshop, once.data, options)
    assert twice is not None
    assert twice.data == once.data
    assert twice.removed == {}
    _check_agreement(once)


@_SETTINGS
@given(entries=_entries())
def test_every_entry_is_either_kept_or_removed(entries: list[Entry], workshop: Workshop) -> None:
    """Nothing gets lost between the two lists, whose names are those that came in."""
    cleaned = _outcome(workshop, archive(entries), CleanOptions())
    if cleaned is not None:
        names = [entry.name.decode() for entry in entries]
        assert sorted([*cleaned.kept, *cleaned.removed]) == sorted(names)


@_SETTINGS
@given(
    data=st.sampled_from(_SMALL),
    changes=st.lists(st.tuples(st.integers(min_value=0), st.integers(0, 255)), max_size=4),
    cut=st.one_of(st.just(0), st.integers(0, 60)),
    tail=st.one_of(st.just(b""), st.binary(max_size=8)),
)
def test_damaged_archives_end_in_success_or_a_typed_refusal(
    data: bytes, changes: list[tuple[int, int]], cut: int, tail: bytes, workshop: Workshop
) -> None:
    """Any bytes changed, cut or added; what is accepted all the same agrees with zipfile."""
    spoiled = bytearray(data)
    for place, value in changes:
        if spoiled:
            spoiled[place % len(spoiled)] = value
    del spoiled[max(0, len(spoiled) - cut) :]
    spoiled += tail
    cleaned = _outcome(workshop, bytes(spoiled), CleanOptions())
    if cleaned is not None:
        _check_agreement(cleaned)


@_SETTINGS
@given(data=st.binary(max_size=200), magic=st.sampled_from([b"", b"PK\x03\x04", b"PK\x05\x06"]))
def test_arbitrary_bytes_are_refused_with_a_type(
    data: bytes, magic: bytes, workshop: Workshop
) -> None:
    """Noise is no archive, whatever it starts with."""
    _outcome(workshop, magic + data, CleanOptions())


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_a_cleaned_case_is_clean(case: Path, workshop: Workshop) -> None:
    """Each accepted case is unchanged by a second clean."""
    once = _outcome(workshop, case.read_bytes(), CleanOptions())
    if once is not None:
        twice = workshop.clean(once.data)
        assert (twice.data, twice.removed) == (once.data, {})
