"""Writes ZIP records byte by byte, so that an example can be wrong in exactly one way.

Layouts follow PKWARE APPNOTE.TXT 6.3.x: local header 4.3.7, data
descriptor 4.3.9, central header 4.3.12, Zip64 end records 4.3.14 and 4.3.15, end
of central directory 4.3.16, Zip64 extra field 4.5.3, traditional encryption 6.1.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

STORED, SHRUNK, IMPLODED, DEFLATED, DEFLATE64 = 0, 1, 6, 8, 9
BZIP2, LZMA, ZSTD, AES = 12, 14, 93, 99

FLAG_ENCRYPTED, FLAG_DESCRIPTOR, FLAG_STRONG = 0x0001, 0x0008, 0x0040
FLAG_UTF8, FLAG_MASKED = 0x0800, 0x2000

# "Version made by": the host system in the high byte, the specification version in the low one.
MADE_BY_UNIX = 0x031E
MADE_BY_MAC_FINDER = 0x0315
MADE_BY_DOS = 0x0014
MADE_BY_NTFS = 0x0A3F

LOCAL_MAGIC, CENTRAL_MAGIC = b"PK\x03\x04", b"PK\x01\x02"
DESCRIPTOR_MAGIC, END_MAGIC = b"PK\x07\x08", b"PK\x05\x06"
END64_MAGIC, LOCATOR64_MAGIC = b"PK\x06\x06", b"PK\x06\x07"
FULL_16, FULL_32 = 0xFFFF, 0xFFFFFFFF

MODE_FILE, MODE_DIRECTORY, MODE_SYMLINK = 0o100644, 0o040755, 0o120777
DOS_DIRECTORY = 0x10


def dos_date(year: int, month: int, day: int) -> int:
    """Pack a date as MS-DOS does; the parts are not checked, so bad dates can be made."""
    return (year - 1980) << 9 | month << 5 | day


def dos_time(hour: int, minute: int, second: int) -> int:
    """Pack a time as MS-DOS does, in steps of two seconds; not checked either."""
    return hour << 11 | minute << 5 | second // 2


def extra(kind: int, payload: bytes) -> bytes:
    """One extra field block: id, length, payload."""
    return struct.pack("<HH", kind, len(payload)) + payload


def unicode_path(stored_name: bytes, text: str, crc: int | None = None) -> bytes:
    """Info-ZIP Unicode Path (0x7075): the CRC ties it to the stored name it replaces."""
    checked = zlib.crc32(stored_name) if crc is None else crc
    return extra(0x7075, struct.pack("<BI", 1, checked) + text.encode())


def zip64_extra(*values: int) -> bytes:
    """Zip64 extended information (0x0001) holding the given 64-bit values."""
    return extra(0x0001, struct.pack(f"<{len(values)}Q", *values))


def unix_mode(mode: int) -> int:
    """External attributes as Unix hosts write them: mode above, MS-DOS bits below."""
    directory = DOS_DIRECTORY if mode & 0o170000 == 0o040000 else 0
    return mode << 16 | directory


def deflate(data: bytes, level: int = 9) -> bytes:
    """A raw deflate stream."""
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


@dataclass(frozen=True)
class Entry:
    """One member. `local` and `central` override single fields of one of the two headers."""

    name: bytes
    data: bytes = b""
    method: int = STORED
    flags: int = 0
    made_by: int = MADE_BY_UNIX
    needed: int = 20
    date: int = dos_date(2024, 5, 17)
    time: int = dos_time(10, 30, 0)
    attributes: int = unix_mode(MODE_FILE)
    local_extra: bytes = b""
    central_extra: bytes = b""
    comment: bytes = b""
    packed: bytes | None = None
    descriptor: str = ""
    local: Mapping[str, int | bytes] = field(default_factory=dict)
    central: Mapping[str, int | bytes] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        """The bytes between local header and descriptor."""
        if self.packed is not None:
            return self.packed
        return deflate(self.data) if self.method == DEFLATED else self.data

    @property
    def fields(self) -> dict[str, int | bytes]:
        """What an honest central header would say."""
        return {
            "needed": self.needed,
            "flags": self.flags | (FLAG_DESCRIPTOR if self.descriptor else 0),
            "method": self.method,
            "crc": zlib.crc32(self.data),
            "packed_size": len(self.body),
            "size": len(self.data),
            "name": self.name,
        }


def text_entry(name: str, data: bytes | str = b"", **changes: Any) -> Entry:
    """A member named by a string: UTF-8, with the language flag when it is not ASCII."""
    raw = name.encode()
    flags = 0 if raw.isascii() else FLAG_UTF8
    body = data.encode() if isinstance(data, str) else data
    return replace(Entry(raw, body, flags=flags), **changes)


def folder_entry(name: str, **changes: Any) -> Entry:
    """A stored directory; the name ends with a slash."""
    return text_entry(name, **{"attributes": unix_mode(MODE_DIRECTORY), **changes})


def local_part(entry: Entry) -> bytes:
    """Local header, body and descriptor."""
    values = dict(entry.fields)
    if entry.descriptor:
        values.update(crc=0, packed_size=0, size=0)
    values.update(entry.local)
    name = values["name"]
    assert isinstance(name, bytes)
    header = struct.pack(
        "<4s5H3I2H",
        LOCAL_MAGIC,
        values["needed"],
        values["flags"],
        values["method"],
        entry.time,
        entry.date,
        values["crc"],
        values["packed_size"],
        values["size"],
        len(name),
        len(entry.local_extra),
    )
    return header + name + entry.local_extra + entry.body + descriptor_part(entry)


def descriptor_part(entry: Entry) -> bytes:
    """The data descriptor: `signed`, `unsigned`, or either with `64` for 8-byte sizes."""
    if not entry.descriptor:
        return b""
    values = entry.fields
    sizes = "QQ" if entry.descriptor.endswith("64") else "II"
    record = struct.pack(f"<I{sizes}", values["crc"], values["packed_size"], values["size"])
    return (DESCRIPTOR_MAGIC if entry.descriptor.startswith("signed") else b"") + record


def central_part(entry: Entry, offset: int) -> bytes:
    """Central header of an entry whose local header starts at the offset."""
    values = {**entry.fields, "offset": offset, "disk": 0, **entry.central}
    name = values["name"]
    assert isinstance(name, bytes)
    header = struct.pack(
        "<4s6H3I5H2I",
        CENTRAL_MAGIC,
        entry.made_by,
        values["needed"],
        values["flags"],
        values["method"],
        entry.time,
        entry.date,
        values["crc"],
        values["packed_size"],
        values["size"],
        len(name),
        len(entry.central_extra),
        len(entry.comment),
        values["disk"],
        0,
        entry.attributes,
        values["offset"],
    )
    return header + name + entry.central_extra + entry.comment


def end_part(count: int, size: int, offset: int, comment: bytes = b"", disk: int = 0) -> bytes:
    """End of central directory."""
    counts = (disk, disk, count, count)
    fixed = struct.pack("<4s4H2IH", END_MAGIC, *counts, size, offset, len(comment))
    return fixed + comment


def end64_part(count: int, size: int, offset: int) -> bytes:
    """Zip64 end record and its locator; the record follows the central directory."""
    record = struct.pack("<4sQ2H2I4Q", END64_MAGIC, 44, 45, 45, 0, 0, count, count, size, offset)
    return record + struct.pack("<4sIQI", LOCATOR64_MAGIC, 0, offset + size, 1)


def archive(
    entries: Sequence[Entry],
    *,
    comment: bytes = b"",
    prefix: bytes = b"",
    suffix: bytes = b"",
    shifted: bool = True,
    zip64_end: bool = False,
) -> bytes:
    """A whole archive. With `shifted` the offsets count the prefix, without they ignore it."""
    body, directory, start = b"", b"", len(prefix) if shifted else 0
    for entry in entries:
        directory += central_part(entry, start + len(body))
        body += local_part(entry)
    return (
        assemble(
            prefix + body, directory, len(entries), start + len(body), comment, zip64_end=zip64_end
        )
        + suffix
    )


def assemble(
    body: bytes,
    directory: bytes,
    count: int,
    offset: int,
    comment: bytes = b"",
    *,
    zip64_end: bool = False,
) -> bytes:
    """Join hand-made parts."""
    if not zip64_end:
        return body + directory + end_part(count, len(directory), offset, comment)
    end = end_part(FULL_16, FULL_32, FULL_32, comment)
    return body + directory + end64_part(count, len(directory), offset) + end


def zip_crypto(data: bytes, password: bytes, check: int) -> bytes:
    """Traditional PKWARE encryption with a fixed, not random, 12-byte header."""
    keys = [0x12345678, 0x23456789, 0x34567890]

    def step(byte: int) -> None:
        keys[0] = _crc_step(keys[0], byte)
        keys[1] = ((keys[1] + (keys[0] & 0xFF)) * 134775813 + 1) & FULL_32
        keys[2] = _crc_step(keys[2], keys[1] >> 24)

    for byte in password:
        step(byte)
    out = bytearray()
    for byte in bytes(range(11)) + bytes([check]) + data:
        mixed = (keys[2] | 2) & FULL_16
        out.append(byte ^ (mixed * (mixed ^ 1) >> 8 & 0xFF))
        step(byte)
    return bytes(out)


def _crc_step(crc: int, byte: int) -> int:
    """One CRC-32 step without the usual inversions, as the cipher's keys use it."""
    return ~zlib.crc32(bytes([byte]), ~crc & FULL_32) & FULL_32
