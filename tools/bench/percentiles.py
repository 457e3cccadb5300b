"""Percentiles of durations, by the nearest rank: always a duration that was really measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Percentiles:
    """The distribution of one duration, in milliseconds."""

    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


def percentiles(durations_s: Iterable[float]) -> Percentiles:
    """Summarise durations given in seconds; ValueError if there is none."""
    ordered = sorted(1_000 * seconds for seconds in durations_s)
    if not ordered:
        raise ValueError("there are no durations to summarise: run at least one sample")

    def at(percent: float) -> float:
        return ordered[math.ceil(percent / 100 * len(ordered)) - 1]

    return Percentiles(len(ordered), at(50), at(95), at(99), ordered[-1])
