"""Times at the border: moments and seconds inside, Timestamp and Duration in messages."""

from datetime import UTC, datetime
from typing import overload

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

_NANOSECONDS_PER_S = 1e9


@overload
def timestamp(moment: datetime) -> Timestamp: ...


@overload
def timestamp(moment: datetime | None) -> Timestamp | None: ...


def timestamp(moment: datetime | None) -> Timestamp | None:
    """Return the message for a moment; None stays unset."""
    if moment is None:
        return None
    message = Timestamp()
    message.FromDatetime(moment)
    return message


def moment_of(message: Timestamp) -> datetime:
    """Return the moment that a message stands for, in UTC; ValueError for one out of range."""
    return message.ToDatetime(tzinfo=UTC)


def duration(seconds: float) -> Duration:
    """Return the message for a number of seconds."""
    message = Duration()
    message.FromNanoseconds(int(seconds * _NANOSECONDS_PER_S))
    return message


def seconds_of(message: Duration) -> float:
    """Return the seconds that a message stands for; a negative duration counts as none."""
    return max(message.ToNanoseconds() / _NANOSECONDS_PER_S, 0.0)
