"""What an archive may cost: every bound of archive.clean in one place."""

from dataclasses import dataclass

MIB = 1 << 20
GIB = 1 << 30

# Bytes read, inflated or written at a time; the memory of one clean is a few of these.
CHUNK_BYTES = 256 * 1024

# A stored path, in UTF-8; longer ones do not fit the usual file systems.
NAME_BYTES_MAX = 1024


@dataclass(frozen=True, slots=True)
class CleanLimits:
    """Bounds on one archive; beyond any of them it is refused as ARCHIVE_TOO_LARGE.

    `inflated_bytes_max` holds for the sum of all entries, `entry_bytes_max` for each.
    `ratio_max` (inflated to packed) is asked only of entries larger than
    `ratio_free_bytes_max`. `directory_bytes_max` bounds the central directory, which is the one
    part held in memory whole, and `lzma_dictionary_bytes_max` what an LZMA stream may demand.
    """

    entries_max: int = 10_000
    inflated_bytes_max: int = 2 * GIB
    entry_bytes_max: int = 2 * GIB
    ratio_max: int = 200
    ratio_free_bytes_max: int = MIB
    directory_bytes_max: int = 16 * MIB
    lzma_dictionary_bytes_max: int = 32 * MIB

    def __post_init__(self) -> None:
        """Refuse, in the composition root, bounds that would refuse everything."""
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ValueError(f"limit {name} is {getattr(self, name)}; it must be 1 or more")
