"""The clean archive: packed bytes as they were, headers that any reader takes one way."""

import hashlib
import io
import struct
import zipfile
import zlib
from dataclasses import replace

import pytest

from node_agent.capabilities.archive_clean import CleanLimits, writer
from node_agent.capabilities.archive_clean.end_records import find_directory
from node_agent.capabilities.archive_clean.entries import Entry as CleanEntry
from node_agent.capabilities.archive_clean.entries import read_archive
from node_agent.capabilities.archive_clean.records import parse_central, parse_local
from node_agent.capabilities.archive_clean.source import ArchiveSource
from tests.cases.builders.zip_builder import (
    DEFLATED,
    FLAG_UTF8,
    MADE_BY_NTFS,
    Entry,
    archive,
    dos_date,
    dos_time,
    extra,
    folder_entry,
    text_entry,
    unicode_path,
    unix_mode,
)
from tests.unit.node_agent.archive_clean.cleaning import Workshop

_GIB = 1 << 30


def read(data: bytes) -> dict[str, tuple[zipfile.ZipInfo, bytes]]:
    """All entries as the standard library sees them."""
    with zipfile.ZipFile(io.BytesIO(data)) as reader:
        return {info.filename: (info, reader.read(info)) for info in reader.infolist()}


def sound_entry(data: bytes) -> CleanEntry:
    """The only entry of an archive, as the cleaner reads it."""
    return read_archive(ArchiveSource(io.BytesIO(data)), CleanLimits()).entries[0]


def test_packed_bytes_are_copied_and_not_packed_again(workshop: Workshop) -> None:
    """A stream no packer of ours would make comes out as it went in."""
    stored_blocks = b"".join(
        struct.pack("<BHH", last, 1, 0xFFFE) + letter
        for last, letter in ((0, b"a"), (0, b"b"), (1, b"c"))
    )
    data = archive([text_entry("odd.txt", b"abc", method=DEFLATED, packed=stored_blocks)])
    assert stored_blocks in workshop.clean(data).data


def test_an_archive_without_junk_comes_out_as_it_is(workshop: Workshop) -> None:
    """What is clean and plainly written already is not touched by a byte."""
    stamp = extra(0x5455, struct.pack("<BI", 1, 1_715_941_800))
    named = unicode_path("海.txt".encode(), "海.txt")
    data = archive(
        [
            folder_entry("a/", local_extra=stamp, central_extra=stamp),
            text_entry("a/b.txt", "text " * 50, method=DEFLATED, comment=b"note"),
            text_entry("海.txt", "x", local_extra=named, central_extra=named),
        ],
        comment=b"commit 0123",
    )
    assert workshop.clean(data).data == data


def test_sizes_after_the_data_move_into_the_header(workshop: Workshop) -> None:
    """Descriptors are gone, and with them the flag, so that streaming readers cope too."""
    data = archive(
        [
            text_entry("a.txt", "alpha " * 40, method=DEFLATED, descriptor="unsigned64"),
            text_entry("b.txt", "beta", descriptor="signed"),
        ]
    )
    clean = workshop.clean(data).data
    local = parse_local(clean[:30], clean[30:35])
    assert (local.flags, local.crc, local.size_bytes) == (0, zlib.crc32(b"alpha " * 40), 240)
    assert [content for _, content in read(clean).values()] == [b"alpha " * 40, b"beta"]


def test_dates_modes_and_comments_survive(workshop: Workshop) -> None:
    """What the user's packer said about a file is still said."""
    entry = text_entry(
        "run.sh",
        "#!/bin/sh\n",
        attributes=unix_mode(0o100755),
        date=dos_date(2001, 2, 3),
        time=dos_time(4, 5, 6),
        comment="déjà vu".encode("cp437"),
    )
    info, _ = read(workshop.clean(archive([entry])).data)["run.sh"]
    assert info.external_attr == unix_mode(0o100755)
    assert info.date_time == (2001, 2, 3, 4, 5, 6)
    assert info.comment.decode() == "déjà vu"


def test_extra_fields_that_could_contradict_are_dropped(workshop: Workshop) -> None:
    """Stale Unicode names, user ids and unknown fields do not reach the result."""
    fields = unicode_path(b"other.txt", "stale.txt") + extra(0x7875, b"\x01\x04" + bytes(4) * 2)
    data = archive([text_entry("a.txt", "a", local_extra=fields, central_extra=fields)])
    info, _ = read(workshop.clean(data).data)["a.txt"]
    assert info.extra == b""


def test_names_are_written_in_utf8_and_say_so(workshop: Workshop) -> None:
    """A legacy name becomes UTF-8 with the language flag, an ASCII name needs none."""
    data = archive([Entry("照片/第一张.txt".encode("gbk"), b"x"), Entry(b"plain.txt", b"y")])
    found = read(workshop.clean(data).data)
    assert [info.flag_bits for info, _ in found.values()] == [FLAG_UTF8, 0]
    assert list(found) == ["照片/第一张.txt", "plain.txt"]


def test_an_undecodable_comment_is_dropped_with_a_warning(workshop: Workshop) -> None:
    """A broken remark costs no file."""
    cleaned = workshop.clean(archive([text_entry("é.txt", "x", comment=b"\xff\xfe")]))
    assert [one.value for one in cleaned.report.kept[0].warnings] == ["COMMENT_DROPPED"]


def test_the_manifest_knows_sizes_and_digests(workshop: Workshop) -> None:
    """Sizes, CRC and SHA-256 are those of the content, reasons those of the rules."""
    text = b"the same again " * 100
    cleaned = workshop.clean(
        archive([text_entry("a.txt", text, method=DEFLATED), text_entry(".DS_Store", "junk")])
    )
    document = cleaned.report.as_document()
    (kept,) = document["kept"]
    assert kept["sha256"] == hashlib.sha256(text).hexdigest()
    assert (kept["size_bytes"], kept["crc32"]) == (1500, f"{zlib.crc32(text):08x}")
    assert kept["packed_size_bytes"] < 100
    assert document["removed"][0]["reason"] == "MACOS_METADATA"
    assert document["content_size_bytes"] == 1500
    assert document["clean_size_bytes"] == len(cleaned.data)


@pytest.mark.parametrize("offset", [0, 5 * _GIB, 0xFFFFFFFF])
@pytest.mark.parametrize("size", [7, 0xFFFFFFFF, 6 * _GIB])
def test_zip64_headers_read_back(size: int, offset: int) -> None:
    """Values beyond 32 bits, and the filler value itself, survive writing and parsing."""
    entry = sound_entry(archive([text_entry("a.bin", "content")]))
    entry = replace(entry, header=replace(entry.header, size_bytes=size, packed_size_bytes=size))
    central, _ = parse_central(writer.central_record(entry, offset), 0)
    record = writer.local_record(entry)
    local = parse_local(record[:30], record[30:])
    assert (central.size_bytes, central.packed_size_bytes, central.offset) == (size, size, offset)
    assert (local.size_bytes, local.packed_size_bytes) == (size, size)


def test_zip64_end_records_read_back() -> None:
    """More entries than 16 bits hold lead to Zip64 end records that are understood again."""
    count = 70_000
    body = b"\x00" * 10
    directory = b"\x00" * 46 * count
    data = body + directory + writer.end_records(count, len(directory), len(body), b"note")
    found = find_directory(ArchiveSource(io.BytesIO(data)))
    assert (found.entries, found.offset, found.comment) == (count, len(body), b"note")


def test_a_windows_archive_keeps_its_host(workshop: Workshop) -> None:
    """Attributes mean what the host says, so the host stays."""
    entry = text_entry("a.txt", "a", made_by=MADE_BY_NTFS, attributes=0x21)
    info, _ = read(workshop.clean(archive([entry])).data)["a.txt"]
    assert (info.create_system, info.external_attr) == (MADE_BY_NTFS >> 8, 0x21)
