"""Mutations of seed files, the same ones for the same number and seed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

_INTERESTING: Final = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)
_STEP_COUNTS: Final = (1, 1, 1, 2, 4, 8)
_PIECE_BYTES_MAX: Final = 64


def mutated(seeds: Sequence[bytes], seed: int, number: int) -> bytes:
    """Return one of the seeds with one or a few changes."""
    random = Random(f"{seed}:{number}")
    data = bytearray(random.choice(seeds))
    for _ in range(random.choice(_STEP_COUNTS)):
        random.choice(_CHANGES)(data, random, seeds)
    return bytes(data)


def _flip(data: bytearray, random: Random, _: Sequence[bytes]) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set(data: bytearray, random: Random, _: Sequence[bytes]) -> None:
    if data:
        data[random.randrange(len(data))] = random.randrange(256)


def _number(data: bytearray, random: Random, _: Sequence[bytes]) -> None:
    """Put a number that is often at the edge of a check, in either order of bytes."""
    layout = random.choice(("<H", "<I", ">H", ">I"))
    size_bytes = struct.calcsize(layout)
    if len(data) >= size_bytes:
        start = random.randrange(len(data) - size_bytes + 1)
        value = random.choice(_INTERESTING) & ((1 << 8 * size_bytes) - 1)
        data[start : start + size_bytes] = struct.pack(layout, value)


def _cut(data: bytearray, random: Random, _: Sequence[bytes]) -> None:
    del data[random.randint(0, len(data)) :]


def _remove(data: bytearray, random: Random, _: Sequence[bytes]) -> None:
    start = random.randint(0, len(data))
    del data[start : start + random.randint(1, _PIECE_BYTES_MAX)]


def _repeat(data: bytearray, random: Random, _: Sequence[bytes]) -> None:
    start = random.randint(0, len(data))
    piece = data[start : start + random.randint(1, _PIECE_BYTES_MAX)]
    data[start:start] = piece * random.randint(1, 4)


def _splice(data: bytearray, random: Random, seeds: Sequence[bytes]) -> None:
    """Go on with the end of another seed."""
    other = random.choice(seeds)
    data[random.randint(0, len(data)) :] = other[random.randint(0, len(other)) :]


_CHANGES: Final[Sequence[Callable[[bytearray, Random, Sequence[bytes]], None]]] = (
    # Small changes get deepest, so they are the likeliest.
    *(_flip, _flip, _set, _set, _number, _number, _number),
    *(_cut, _remove, _repeat, _splice),
)
