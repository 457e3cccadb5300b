"""Where time comes from: a clock is handed in, so that tests and simulations own it."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Source of wall and monotonic time."""

    def now(self) -> datetime:
        """Wall time, aware, in UTC. It may jump: never measure a duration with it."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back, unaffected by wall jumps."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now(self) -> datetime:
        """Wall time of the machine, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Monotonic seconds of the machine."""
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told to, for tests and simulations."""

    __slots__ = ("_monotonic_s", "_now")

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        """Start at `now` (must be aware) with a monotonic reading of 1,000 s."""
        self._now = _in_utc(now)
        self._monotonic_s = 1_000.0

    def now(self) -> datetime:
        """Wall time last set, in UTC."""
        return self._now

    def monotonic(self) -> float:
        """Monotonic seconds reached by `advance`."""
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        """Move both clocks forward; a negative step is refused with ValueError."""
        if seconds < 0:
            message = f"cannot advance by {seconds} s: use jump_wall to move the wall clock back"
            raise ValueError(message)
        self._now += timedelta(seconds=seconds)
        self._monotonic_s += seconds

    def jump_wall(self, seconds: float) -> None:
        """Move the wall clock alone, forward or back, as an administrator or NTP would."""
        self._now += timedelta(seconds=seconds)


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        message = f"{moment.isoformat()} has no time zone: pass an aware datetime"
        raise ValueError(message)
    return moment.astimezone(UTC)
