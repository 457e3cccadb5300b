"""Percentiles by the nearest rank."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.bench.percentiles import percentiles

DURATIONS = st.lists(st.floats(0, 1_000), min_size=1, max_size=300)


def test_ranks_of_a_hundred() -> None:
    """Of one to a hundred milliseconds, each percentile is its own number."""
    found = percentiles(number / 1_000 for number in range(1, 101))
    assert found.count == 100
    assert found.max_ms == pytest.approx(100)
    assert (found.p50_ms, found.p95_ms, found.p99_ms) == pytest.approx((50, 95, 99))


def test_one_duration_is_all_of_them() -> None:
    """A single sample is every percentile."""
    found = percentiles([0.25])
    assert (found.p50_ms, found.p99_ms, found.max_ms) == (250, 250, 250)


@given(DURATIONS)
def test_percentiles_are_measured_and_ordered(durations_s: list[float]) -> None:
    """Each is one of the durations, and none is above the next."""
    found = percentiles(durations_s)
    chosen = [found.p50_ms, found.p95_ms, found.p99_ms, found.max_ms]
    assert chosen == sorted(chosen)
    assert set(chosen) <= {1_000 * one for one in durations_s}


def test_no_durations_are_refused() -> None:
    """Nothing can be said about nothing."""
    with pytest.raises(ValueError, match="no durations"):
        percentiles([])
