"""Moments and seconds, there and back through their messages."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from foundation.grpc.times import duration, moment_of, seconds_of, timestamp


def test_a_moment_comes_back_in_utc() -> None:
    """Microseconds and the instant are kept whatever the zone; the answer is in UTC."""
    moment = datetime(2026, 2, 3, 4, 5, 6, 789_012, timezone(timedelta(hours=9)))
    back = moment_of(timestamp(moment))
    assert (back, back.tzinfo) == (moment, UTC)


def test_no_moment_stays_unset() -> None:
    """None is no message, so that the field is absent on the wire."""
    assert timestamp(None) is None


def test_a_moment_out_of_range_is_refused() -> None:
    """A message past the year 9999 stands for no moment."""
    with pytest.raises(ValueError, match="imestamp"):
        moment_of(Timestamp(seconds=10**12))


def test_seconds_come_back() -> None:
    """Fractions survive the message."""
    assert seconds_of(duration(2.5)) == 2.5
    assert duration(0.000_000_001).nanos == 1


def test_a_negative_duration_is_none() -> None:
    """What a peer says below nothing counts as nothing."""
    assert seconds_of(Duration(seconds=-3)) == 0.0
