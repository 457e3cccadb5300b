"""Clocks: aware UTC, monotonic, and moved only on demand in tests."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from foundation.clock import ManualClock, SystemClock


def test_system_clock_is_aware_utc_and_monotonic() -> None:
    """The machine's clock answers in UTC and its monotonic reading never goes back."""
    clock = SystemClock()
    assert clock.now().utcoffset() == timedelta(0)
    first, second = clock.monotonic(), clock.monotonic()
    assert second >= first


def test_manual_clock_advances_both_readings() -> None:
    """Advancing moves wall and monotonic time by the same amount."""
    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    before = clock.monotonic()
    clock.advance(90.5)
    assert clock.now() == datetime(2026, 3, 1, 0, 1, 30, 500_000, tzinfo=UTC)
    assert clock.monotonic() - before == 90.5


def test_manual_clock_wall_jump_leaves_monotonic_alone() -> None:
    """A wall clock set back an hour does not touch the monotonic reading."""
    clock = ManualClock()
    before, wall = clock.monotonic(), clock.now()
    clock.jump_wall(-3_600)
    assert (clock.monotonic(), clock.now()) == (before, wall - timedelta(hours=1))


def test_manual_clock_refuses_to_go_back() -> None:
    """A negative advance is refused, with the way to set the wall back in the message."""
    with pytest.raises(ValueError, match="jump_wall"):
        ManualClock().advance(-1)


def test_manual_clock_refuses_naive_time_and_normalises_zones() -> None:
    """A start without a zone is refused; another zone becomes UTC."""
    with pytest.raises(ValueError, match="no time zone"):
        ManualClock(datetime(2026, 1, 1))  # noqa: DTZ001 - the naive value is what is refused
    clock = ManualClock(datetime(2026, 1, 1, 8, tzinfo=timezone(timedelta(hours=8))))
    assert clock.now().isoformat() == "2026-01-01T00:00:00+00:00"
