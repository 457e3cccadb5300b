"""How long to wait before the next try: pure functions and one frozen policy."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

# Waits before the 1st, 2nd, … delivery to another party's endpoint, which may be down for
# days: 0, 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h (Standard Webhooks' advice).
DELIVERY_SCHEDULE_S: Final[tuple[float, ...]] = (
    0.0, 5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0,
)  # fmt: skip


def exponential_s(failures: int, *, base_s: float, cap_s: float, factor: float = 2.0) -> float:
    """Seconds to wait after the n-th failure in a row: base, base * factor, … up to cap.

    Zero failures wait zero seconds. Raises ValueError for a negative count.
    """
    if failures < 0:
        message = f"failures is {failures}: it counts from 0"
        raise ValueError(message)
    if failures == 0:
        return 0.0
    try:
        return min(cap_s, base_s * factor ** (failures - 1))
    except OverflowError:
        return cap_s


def jittered_s(delay_s: float, random: Random, *, fraction: float = 0.2) -> float:
    """Spread a wait evenly over delay * [1 - fraction, 1 + fraction]."""
    return delay_s * (1.0 + fraction * (2.0 * random.random() - 1.0))


def scheduled_s(tries_done: int, schedule_s: Sequence[float]) -> float | None:
    """Seconds to wait before the next try of a fixed schedule, or None when it is used up.

    `tries_done` counts the tries already made: 0 asks for the wait before the first.
    """
    return schedule_s[tries_done] if tries_done < len(schedule_s) else None


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Exponential back-off with a cap and jitter; waits in seconds."""

    base_s: float = 1.0
    cap_s: float = 30.0
    factor: float = 2.0
    jitter_fraction: float = 0.2

    def delay_s(self, failures: int, random: Random) -> float:
        """Seconds to wait after the n-th failure in a row, jittered, never above the cap."""
        delay_s = exponential_s(failures, base_s=self.base_s, cap_s=self.cap_s, factor=self.factor)
        return min(self.cap_s, jittered_s(delay_s, random, fraction=self.jitter_fraction))
