"""Refusals beyond the case collection: limits, hidden data, contradicting headers."""

import bz2
import io
import lzma
import pickle
import struct
import zipfile
import zlib
from dataclasses import replace

import pytest

from node_agent.capabilities.archive_clean import (
    ArchiveRefusedError,
    CleanLimits,
    RefusalReason,
    source,
)
from tests.cases.builders.zip_builder import (
    BZIP2,
    DEFLATED,
    END_MAGIC,
    FLAG_ENCRYPTED,
    FLAG_UTF8,
    FULL_32,
    LZMA,
    Entry,
    archive,
    assemble,
    central_part,
    deflate,
    end_part,
    folder_entry,
    local_part,
    text_entry,
    unix_mode,
    zip64_extra,
)
from tests.unit.node_agent.archive_clean.cleaning import Workshop

_TEXT = b"the same line again\n" * 200


def _lzma_entry(*, marked: bool, dictionary: int = 1 << 16, size: int | None = None) -> Entry:
    """An LZMA entry asking for a dictionary; without its marker the stream is cut in it."""
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": 1 << 16, "lc": 3, "lp": 0, "pb": 2}]
    stream = lzma.compress(_TEXT, format=lzma.FORMAT_RAW, filters=filters)
    header = struct.pack("<BBHBI", 9, 20, 5, 93, dictionary)
    fields = {} if size is None else {"size": size}
    return Entry(
        b"a.txt",
        _TEXT,
        LZMA,
        flags=0x0002 if marked else 0,
        packed=header + (stream if marked else stream[:-1]),
        local=fields,
        central=fields,
    )


def _reason(workshop: Workshop, data: bytes, limits: CleanLimits | None = None) -> RefusalReason:
    return workshop.refusal(data, limits).refusal


@pytest.mark.parametrize(
    ("limits", "value"),
    [
        (CleanLimits(entries_max=1), "2"),
        (CleanLimits(inflated_bytes_max=7_999), "8000"),
        (CleanLimits(entry_bytes_max=3_999), "4000"),
        (CleanLimits(ratio_max=3, ratio_free_bytes_max=3_999), "4000"),
        (CleanLimits(directory_bytes_max=101), "102"),
    ],
)
def test_each_limit_refuses_and_names_the_value(
    limits: CleanLimits, value: str, workshop: Workshop
) -> None:
    """One step beyond each bound; the message holds what was found."""
    entries = [text_entry(name, _TEXT, method=DEFLATED) for name in ("a.txt", "b.txt")]
    refused = workshop.refusal(archive(entries), limits)
    assert refused.refusal is RefusalReason.TOO_LARGE
    assert value in refused.message


def test_exactly_at_the_limits_is_fine(workshop: Workshop) -> None:
    """Bounds are the largest values allowed."""
    entry = text_entry("a.txt", _TEXT, method=DEFLATED)
    packed = len(entry.body)
    limits = CleanLimits(
        entries_max=1,
        inflated_bytes_max=4_000,
        entry_bytes_max=4_000,
        ratio_max=-(-4_000 // packed),
        ratio_free_bytes_max=1,
        directory_bytes_max=51,
    )
    assert workshop.clean(archive([entry]), limits=limits).kept == ["a.txt"]


def test_a_limit_below_one_is_refused() -> None:
    """A settings mistake shows at the start and not on every archive."""
    with pytest.raises(ValueError, match="entries_max"):
        CleanLimits(entries_max=0)


def test_a_stream_longer_than_declared_stops_at_once(workshop: Workshop) -> None:
    """Bytes are counted as they inflate: a lie about the size is not unpacked to its end."""
    claims = {"size": 10}
    bomb = text_entry("a", bytes(64 << 20), method=DEFLATED, local=claims, central=claims)
    refused = workshop.refusal(archive([bomb]))
    assert refused.refusal is RefusalReason.MALFORMED
    assert "stopped at 262144" in refused.message


@pytest.mark.parametrize("method", [DEFLATED, BZIP2])
@pytest.mark.parametrize("surplus", [b"\x00", b"hidden" * 100_000])
def test_data_behind_the_end_of_a_stream_is_refused(
    method: int, surplus: bytes, workshop: Workshop
) -> None:
    """What no reader shows may not travel along, whether in the same chunk or a later one."""
    stream = deflate(_TEXT) if method == DEFLATED else bz2.compress(_TEXT)
    data = archive([text_entry("a", _TEXT, method=method, packed=stream + surplus)])
    assert _reason(workshop, data) is RefusalReason.MALFORMED


@pytest.mark.parametrize("method", [DEFLATED, BZIP2])
def test_data_behind_a_stream_that_fills_its_chunk_is_refused(
    method: int, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The surplus comes in a chunk of its own, which the decoder never sees."""
    stream = deflate(_TEXT) if method == DEFLATED else bz2.compress(_TEXT)
    monkeypatch.setattr(source, "CHUNK_BYTES", len(stream))
    data = archive([text_entry("a", _TEXT, method=method, packed=stream + b"hidden")])
    assert _reason(workshop, data) is RefusalReason.MALFORMED


@pytest.mark.parametrize("method", [DEFLATED, BZIP2, LZMA])
def test_a_stream_that_breaks_off_is_refused(method: int, workshop: Workshop) -> None:
    """Even where all declared bytes have come out, the end mark has to be there."""
    streams = {
        DEFLATED: deflate(_TEXT),
        BZIP2: bz2.compress(_TEXT),
        LZMA: _lzma_entry(marked=True).body,
    }
    for length in (0, len(streams[method]) // 2, len(streams[method]) - 2):
        cut = streams[method][:length]
        data = archive([text_entry("a", _TEXT, method=method, packed=cut, flags=2)])
        assert _reason(workshop, data) is RefusalReason.MALFORMED


@pytest.mark.parametrize("marked", [True, False])
def test_lzma_is_read_with_and_without_end_marker(*, marked: bool, workshop: Workshop) -> None:
    """Without one, the declared size ends the stream."""
    cleaned = workshop.clean(archive([_lzma_entry(marked=marked)]))
    assert cleaned.report.kept[0].crc32 == f"{zlib.crc32(_TEXT):08x}"


def test_an_lzma_window_is_bounded(workshop: Workshop) -> None:
    """A header may ask for 4 GiB of memory; it gets what the entry can use, or is refused."""
    greedy = _lzma_entry(marked=True, dictionary=FULL_32)
    assert workshop.clean(archive([greedy])).kept == ["a.txt"]
    limits = CleanLimits(lzma_dictionary_bytes_max=4_096, ratio_max=10_000)
    large = _lzma_entry(marked=True, dictionary=FULL_32, size=5_000)
    assert _reason(workshop, archive([large]), limits) is RefusalReason.TOO_LARGE


def test_impossible_lzma_properties_are_refused(workshop: Workshop) -> None:
    """The library's own complaint becomes a refusal."""
    sound = _lzma_entry(marked=True)
    for header in (struct.pack("<BBHBI", 9, 20, 5, 255, 1), struct.pack("<BBHBI", 9, 20, 6, 93, 1)):
        data = archive([replace(sound, packed=header + sound.body[9:])])
        assert _reason(workshop, data) is RefusalReason.MALFORMED


def test_bytes_between_entries_are_refused(workshop: Workshop) -> None:
    """A file that the directory does not list is still there for a streaming reader."""
    listed, hidden = text_entry("a", "x"), text_entry("hidden", "y")
    body = local_part(hidden) + local_part(listed)
    directory = central_part(listed, len(local_part(hidden)))
    data = assemble(body, directory, 1, len(body))
    assert _reason(workshop, data) is RefusalReason.MALFORMED
    body = local_part(listed) + local_part(hidden)
    data = assemble(body, central_part(listed, 0), 1, len(body))
    assert _reason(workshop, data) is RefusalReason.MALFORMED


def test_two_entries_on_one_body_overlap(workshop: Workshop) -> None:
    """The simplest overlap: the same offset twice."""
    entry = text_entry("a", "x")
    directory = central_part(entry, 0) + central_part(text_entry("b", "x"), 0)
    data = assemble(local_part(entry), directory, 2, len(local_part(entry)))
    assert _reason(workshop, data) is RefusalReason.OVERLAPPING_ENTRIES


def test_an_offset_behind_the_data_is_refused(workshop: Workshop) -> None:
    """An entry may not lie in the central directory or beyond the file."""
    one, two = text_entry("a", "x"), text_entry("b", "x")
    body = local_part(one)
    for offset in (len(body), 1 << 30):
        directory = central_part(one, 0) + central_part(two, offset)
        data = assemble(body, directory, 2, len(body))
        assert _reason(workshop, data) is RefusalReason.MALFORMED


def test_a_wrong_data_descriptor_is_refused(workshop: Workshop) -> None:
    """Its values are checked and not only its length."""
    data = bytearray(archive([text_entry("a", "xyz", descriptor="signed")]))
    data[data.index(b"PK\x07\x08") + 4] ^= 1
    assert _reason(workshop, bytes(data)) is RefusalReason.MALFORMED


def test_an_announced_descriptor_must_be_there(workshop: Workshop) -> None:
    """A local header without sizes and nothing after the data leaves streaming readers lost."""
    entry = text_entry("a", "xyz", flags=8, local={"size": 0, "packed_size": 0, "crc": 0})
    assert _reason(workshop, archive([entry])) is RefusalReason.MALFORMED


@pytest.mark.parametrize(
    "local",
    [
        {"method": DEFLATED},
        {"crc": 1},
        {"flags": FLAG_UTF8 | FLAG_ENCRYPTED},
        {"flags": 0},
        {"size": FULL_32},
    ],
)
def test_contradicting_local_headers_are_refused(local: dict[str, int], workshop: Workshop) -> None:
    """Method, CRC, encryption, name encoding and sizes are the same in both headers."""
    entry = text_entry("é", "xyz", local=local)
    assert entry.flags == FLAG_UTF8
    assert _reason(workshop, archive([entry])) is RefusalReason.MALFORMED


@pytest.mark.parametrize(
    ("from_end", "value"),
    [
        (-22 + 10, struct.pack("<H", 5)),
        (-22 + 16, struct.pack("<I", 0)),
        (-42 + 4, struct.pack("<I", 1)),
        (-42 + 8, struct.pack("<Q", 1)),
        (-42 + 16, struct.pack("<I", 2)),
        (-98 + 4, struct.pack("<Q", 45)),
        (-98 + 16, struct.pack("<I", 1)),
        (-98 + 24, struct.pack("<Q", 2)),
    ],
)
def test_contradicting_zip64_end_records_are_refused(
    from_end: int, value: bytes, workshop: Workshop
) -> None:
    """Counts, places, disks and lengths agree between the three end records, or nothing does."""
    data = bytearray(archive([text_entry("a", "xyz")], zip64_end=True))
    at = len(data) + from_end
    data[at : at + len(value)] = value
    assert _reason(workshop, bytes(data)) is RefusalReason.MALFORMED


def test_a_comment_that_looks_like_an_end_record_is_refused(workshop: Workshop) -> None:
    """Readers that search from the back would take the archive for an empty one."""
    entries = [text_entry("a", "x")]
    for comment in (end_part(0, 0, 0), b"note " + END_MAGIC + b"!"):
        data = archive(entries, comment=comment)
        assert _reason(workshop, data) is RefusalReason.MALFORMED


def test_a_cut_archive_with_a_whole_one_inside_is_truncated(workshop: Workshop) -> None:
    """The end record of a stored inner archive is not taken for the outer one's."""
    inner = archive([text_entry("inside.txt", "x")])
    outer = archive([text_entry("first", "1" * 50), text_entry("inner.zip", inner)])
    cut = outer[: outer.index(inner) + len(inner) + 10]
    assert _reason(workshop, cut) is RefusalReason.TRUNCATED


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (folder_entry("a/", data=b"hidden"), RefusalReason.MALFORMED),
        (text_entry("a", central={"disk": 3}), RefusalReason.MALFORMED),
        (text_entry("a", "x", central={"size": FULL_32}), RefusalReason.MALFORMED),
        (text_entry("a", central={"offset": FULL_32}), RefusalReason.MALFORMED),
        (text_entry("a", "xy", packed=b"x"), RefusalReason.MALFORMED),
        (text_entry("a", flags=0x40), RefusalReason.ENCRYPTED),
        (text_entry("a", flags=0x20), RefusalReason.UNSUPPORTED_METHOD),
        (text_entry("a", attributes=unix_mode(0o020644)), RefusalReason.SYMLINK),
        (text_entry("a", attributes=0o120777 << 16, made_by=0x14), RefusalReason.SYMLINK),
    ],
)
def test_odd_entries_are_refused(entry: Entry, reason: RefusalReason, workshop: Workshop) -> None:
    """Folders with data, other disks, missing Zip64 values, devices, links of any host."""
    assert _reason(workshop, archive([entry])) is reason


def test_an_empty_folder_may_be_packed(workshop: Workshop) -> None:
    """Some packers deflate the nothing that a folder holds, with a descriptor or without."""
    folder = folder_entry("a/", method=DEFLATED, descriptor="signed")
    assert workshop.clean(archive([folder, text_entry("a/b", "x")])).kept == ["a/", "a/b"]


def test_a_surplus_zip64_field_is_harmless(workshop: Workshop) -> None:
    """Some packers always write it, needed or not."""
    field = zip64_extra(3, 3, 0)
    entry = text_entry("a", "xyz", local_extra=field, central_extra=field)
    cleaned = workshop.clean(archive([entry]))
    with zipfile.ZipFile(io.BytesIO(cleaned.data)) as reader:
        assert (reader.read("a"), reader.getinfo("a").extra) == (b"xyz", b"")


def test_a_refusal_survives_the_way_out_of_a_child_process() -> None:
    """Reason and message are the same after pickling."""
    refused = ArchiveRefusedError(RefusalReason.SYMLINK, "entry 'a' is a link")
    copy = pickle.loads(pickle.dumps(refused))  # noqa: S301 - bytes made on this very line
    assert (copy.reason, copy.message) == ("ARCHIVE_SYMLINK", "entry 'a' is a link")
    assert not copy.retryable


def test_a_message_stays_short_and_on_one_line(workshop: Workshop) -> None:
    """A name of a kilobyte, with line feeds in it, cannot flood or forge a log."""
    refused = workshop.refusal(archive([text_entry("line\n" * 200)]))
    assert len(refused.message) < 300
    assert "\n" not in refused.message
