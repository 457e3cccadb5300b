"""How long what is kept, and where a pass over it stands."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

RECORD_AGE_MIN: Final = timedelta(days=31)
"""Idempotency records outlive 30 days, whatever else is removed, and their task."""
UNCOMMITTED_AGE: Final = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class RetentionAges:
    """Ages from which things are removed; None keeps them for ever.

    `finished` counts from a task's end, `published` from a wake-up's delivery.
    """

    finished: timedelta | None
    published: timedelta
    records: timedelta = RECORD_AGE_MIN
    uncommitted: timedelta = UNCOMMITTED_AGE


@dataclass(frozen=True, slots=True)
class Place:
    """The last row that a pass has looked at, by its time and id."""

    moment: datetime
    key: str


@dataclass(frozen=True, slots=True)
class Swept:
    """What one batch came to: rows removed, and where to go on; None at the end of a pass."""

    removed_count: int
    next_place: Place | None
