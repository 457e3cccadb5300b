"""Durations in definitions: text such as `1h30m` or `500ms`, or a number of seconds."""

import re
from datetime import timedelta
from typing import Final

DURATION_MAX: Final = timedelta(days=365)

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


def parse_duration(value: object) -> timedelta:
    """Return the duration; raise ValueError saying what is expected for anything else."""
    seconds = _seconds(value)
    if not 0 <= seconds <= DURATION_MAX.total_seconds():
        raise ValueError(f"{value} is out of range: 0 to {DURATION_MAX.days} days")
    return timedelta(milliseconds=round(seconds * 1_000))


def _seconds(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    text = str(value)
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no duration: write for example 30s, 5m or 1h30m")
    return sum(float(amount) * _SECONDS[unit] for amount, unit in _PART.findall(text))
