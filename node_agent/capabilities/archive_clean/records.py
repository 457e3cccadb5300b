"""The records of a ZIP file as bytes: layouts, parsing and packing of headers.

Layouts follow PKWARE APPNOTE 6.3.10: local header 4.3.7, data descriptor 4.3.9, central
header 4.3.12, Zip64 end records 4.3.14 and 4.3.15, end record 4.3.16, extra fields 4.5.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

LOCAL_MAGIC, CENTRAL_MAGIC, DESCRIPTOR_MAGIC = b"PK\x03\x04", b"PK\x01\x02", b"PK\x07\x08"
END_MAGIC, END64_MAGIC, LOCATOR64_MAGIC = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"

LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR64 = struct.Struct("<4sIQI")

# A field that holds nothing but ones has its value in the Zip64 extra field or record.
FULL_16, FULL_32 = 0xFFFF, 0xFFFFFFFF

FLAG_ENCRYPTED, FLAG_DESCRIPTOR, FLAG_PATCHED = 0x0001, 0x0008, 0x0020
FLAG_STRONG, FLAG_UTF8, FLAG_MASKED = 0x0040, 0x0800, 0x2000
# Bits 1 and 2 belong to the method: deflate's level, LZMA's end marker.
FLAGS_OF_METHOD, FLAG_LZMA_END_MARKER = 0x0006, 0x0002

STORED, DEFLATED, BZIP2, LZMA, AES = 0, 8, 12, 14, 99

EXTRA_ZIP64, EXTRA_NTFS, EXTRA_TIMESTAMP = 0x0001, 0x000A, 0x5455
EXTRA_UNICODE_COMMENT, EXTRA_UNICODE_PATH = 0x6375, 0x7075

_EXTRA_HEADER = struct.Struct("<HH")


class RecordError(Exception):
    """Bytes that do not form the record they should; the reader turns it into a refusal."""


@dataclass(frozen=True, slots=True)
class CentralHeader:
    """One entry of the central directory, with its Zip64 values already in place."""

    made_by: int
    flags: int
    method: int
    time: int
    date: int
    crc: int
    packed_size_bytes: int
    size_bytes: int
    internal_attributes: int
    external_attributes: int
    offset: int
    disk: int
    raw_name: bytes
    extra: Mapping[int, bytes]
    raw_comment: bytes


@dataclass(frozen=True, slots=True)
class LocalHeader:
    """The header before an entry's data, as it stands (sizes from Zip64 where it says so)."""

    flags: int
    method: int
    crc: int
    packed_size_bytes: int
    size_bytes: int
    raw_name: bytes
    extra: Mapping[int, bytes]
    header_size_bytes: int


def extra_blocks(extra: bytes) -> dict[int, bytes]:
    """Extra fields by id, the first of each; padding and cut-off rests are passed over.

    Being strict here would refuse honest archives: aligners pad with zeros, and nothing is
    believed on the word of an extra field that the data does not confirm.
    """
    blocks: dict[int, bytes] = {}
    at = 0
    while at + _EXTRA_HEADER.size <= len(extra):
        kind, length = _EXTRA_HEADER.unpack_from(extra, at)
        at += _EXTRA_HEADER.size
        if at + length > len(extra):
            break
        blocks.setdefault(kind, extra[at : at + length])
        at += length
    return blocks


def packed_extra(blocks: Mapping[int, bytes]) -> bytes:
    """Extra fields as bytes, in the order given."""
    return b"".join(
        _EXTRA_HEADER.pack(kind, len(payload)) + payload for kind, payload in blocks.items()
    )


def parse_central(directory: bytes, at: int) -> tuple[CentralHeader, int]:
    """The central header at a position, and where the next one starts."""
    if directory[at : at + 4] != CENTRAL_MAGIC or at + CENTRAL.size > len(directory):
        raise RecordError(f"no whole central header at byte {at} of the central directory")
    fields = CENTRAL.unpack_from(directory, at)
    (_, made_by, _, flags, method, time, date, crc, packed, size) = fields[:10]
    (name_length, extra_length, comment_length, disk, internal, external, offset) = fields[10:]
    name_at = at + CENTRAL.size
    extra_at = name_at + name_length
    comment_at = extra_at + extra_length
    end = comment_at + comment_length
    if end > len(directory):
        raise RecordError(f"the central header at byte {at} runs past the central directory")
    extra = extra_blocks(directory[extra_at:comment_at])
    size, packed, offset = _wide(extra, size, packed, offset)
    header = CentralHeader(
        made_by=made_by,
        flags=flags,
        method=method,
        time=time,
        date=date,
        crc=crc,
        packed_size_bytes=packed,
        size_bytes=size,
        internal_attributes=internal,
        external_attributes=external,
        offset=offset,
        disk=0 if disk == FULL_16 else disk,
        raw_name=directory[name_at:extra_at],
        extra=extra,
        raw_comment=directory[comment_at:end],
    )
    return header, end


def parse_local(fixed: bytes, variable: bytes) -> LocalHeader:
    """The local header from its fixed part and what follows it (name and extra fields)."""
    _, _, flags, method, _, _, crc, packed, size, name_length, _ = LOCAL.unpack(fixed)
    extra = extra_blocks(variable[name_length:])
    if EXTRA_ZIP64 in extra:
        size, packed = _wide(extra, size, packed)
    return LocalHeader(
        flags=flags,
        method=method,
        crc=crc,
        packed_size_bytes=packed,
        size_bytes=size,
        raw_name=variable[:name_length],
        extra=extra,
        header_size_bytes=LOCAL.size + len(variable),
    )


def local_variable_length(fixed: bytes) -> int:
    """How many bytes of name and extra fields follow the fixed part of a local header."""
    name_length, extra_length = struct.unpack_from("<HH", fixed, LOCAL.size - 4)
    return int(name_length) + int(extra_length)


def _wide(extra: Mapping[int, bytes], *narrow: int) -> tuple[int, ...]:
    """Values with those taken from the Zip64 field that their 32-bit fields leave to it."""
    payload, at, values = extra.get(EXTRA_ZIP64, b""), 0, []
    for value in narrow:
        if value != FULL_32:
            values.append(value)
        elif at + 8 <= len(payload):
            values.append(int.from_bytes(payload[at : at + 8], "little"))
            at += 8
        else:
            raise RecordError("a 32-bit field defers to a Zip64 value that is not there")
    return tuple(values)


def descriptor_forms(header: CentralHeader) -> tuple[bytes, ...]:
    """Every way to write this entry's data descriptor: signed or not, 4- or 8-byte sizes."""
    sizes = (header.packed_size_bytes, header.size_bytes)
    wide = struct.pack("<I2Q", header.crc, *sizes)
    if max(sizes) > FULL_32:
        return (DESCRIPTOR_MAGIC + wide, wide)
    narrow = struct.pack("<3I", header.crc, *sizes)
    return (DESCRIPTOR_MAGIC + narrow, narrow, DESCRIPTOR_MAGIC + wide, wide)
