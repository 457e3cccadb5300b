"""Identities: UUIDv7 text (RFC 9562) made by an injected source, and their validation."""

import os
import re
import threading
from collections.abc import Callable
from typing import Final, Protocol

from foundation.clock import Clock
from foundation.errors import InvalidArgumentError

NIL_ID: Final = "00000000-0000-0000-0000-000000000000"
_SHAPE = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TAIL_BITS = 74
_STEP_BYTES = 4


class IdSource(Protocol):
    """Makes new identities."""

    def new_id(self) -> str:
        """Return a UUIDv7 in lower-case text, greater than every one made here before."""
        ...


class SystemIds:
    """UUIDv7 from the clock's milliseconds and operating-system randomness.

    Monotonic within the process, even when the wall clock stands or goes back: the 74
    bits behind the time then grow by a random step (RFC 9562, section 6.2, method 2).
    """

    __slots__ = ("_clock", "_lock", "_millis", "_random_bytes", "_tail")

    def __init__(self, clock: Clock, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        """Take the time from `clock` and randomness from `random_bytes(count)`."""
        self._clock = clock
        self._random_bytes = random_bytes
        self._lock = threading.Lock()
        self._millis = -1
        self._tail = 0

    def new_id(self) -> str:
        """Return the next UUIDv7; safe to call from several threads."""
        millis = int(self._clock.now().timestamp() * 1_000)
        with self._lock:
            if millis > self._millis:
                self._start(millis)
            else:
                self._step()
            return _layout(self._millis, self._tail)

    def _start(self, millis: int) -> None:
        self._millis = millis
        # One bit of head-room is left free, so that steps seldom overflow into the time.
        self._tail = int.from_bytes(self._random_bytes(10)) >> (80 - _TAIL_BITS + 1)

    def _step(self) -> None:
        self._tail += 1 + int.from_bytes(self._random_bytes(_STEP_BYTES))
        if self._tail >> _TAIL_BITS:
            self._start(self._millis + 1)


class SequentialIds:
    """UUIDv7-shaped ids counting from 1, for tests that want to read them."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        """Start before the first id."""
        self._count = 0

    def new_id(self) -> str:
        """Return the next id: `00000000-0000-7000-8000-000000000001`, and so on."""
        self._count += 1
        return _layout(0, self._count)


def _layout(millis: int, tail: int) -> str:
    high, low = tail >> 62, tail & ((1 << 62) - 1)
    value = (millis << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_id(text: str) -> bool:
    """Whether the text is a UUID of any version in the usual form, and not nil."""
    return _SHAPE.fullmatch(text) is not None and text != NIL_ID


def parse_id(text: str, field: str) -> str:
    """Return the UUID in lower case; raise InvalidArgumentError naming `field` otherwise.

    Any version is accepted, since business systems make ids too; the nil UUID is not.
    """
    if text == NIL_ID:
        description = "is the nil UUID, which names nothing: pass the real id"
        raise InvalidArgumentError.of_field(field, description, reason="ID_NIL")
    if not _SHAPE.fullmatch(text):
        description = f"{text[:64]!r} is not a UUID: expected 8-4-4-4-12 hexadecimal digits"
        raise InvalidArgumentError.of_field(field, description, reason="ID_MALFORMED")
    return text.lower()
