"""Back-off: growth, cap, jitter and fixed schedules."""

from random import Random, SystemRandom

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.backoff import (
    DELIVERY_SCHEDULE_S,
    BackoffPolicy,
    exponential_s,
    jittered_s,
    scheduled_s,
)


def test_exponential_doubles_up_to_the_cap() -> None:
    """The waits double from the base and stop growing at the cap."""
    waits = [exponential_s(n, base_s=1.0, cap_s=30.0) for n in range(8)]
    assert waits == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_exponential_survives_any_count() -> None:
    """A million failures in a row wait the cap, not an overflow."""
    assert exponential_s(1_000_000, base_s=1.0, cap_s=30.0) == 30.0


def test_negative_failures_are_refused() -> None:
    """A negative count is a programming error and is named."""
    with pytest.raises(ValueError, match="-1"):
        exponential_s(-1, base_s=1.0, cap_s=30.0)


@given(st.floats(0.0, 1e6), st.randoms(), st.floats(0.0, 1.0))
def test_jitter_stays_within_its_fraction(delay_s: float, random: Random, fraction: float) -> None:
    """Jitter moves a wait by at most the fraction, either way."""
    jittered = jittered_s(delay_s, random, fraction=fraction)
    assert delay_s * (1 - fraction) - 1e-6 <= jittered <= delay_s * (1 + fraction) + 1e-6


def test_jitter_spreads() -> None:
    """Two hundred jittered waits are not one herd."""
    random = SystemRandom()
    waits = {round(jittered_s(10.0, random), 3) for _ in range(200)}
    assert len(waits) > 150


def test_schedule_runs_out() -> None:
    """The delivery schedule gives its ten waits in order, then None."""
    waits = [scheduled_s(n, DELIVERY_SCHEDULE_S) for n in range(11)]
    assert waits == [*DELIVERY_SCHEDULE_S, None]
    assert sum(DELIVERY_SCHEDULE_S) > 3 * 86_400


@given(st.integers(0, 100), st.randoms())
def test_policy_never_exceeds_its_cap(failures: int, random: Random) -> None:
    """The policy's jitter does not push a wait over the cap."""
    assert 0.0 <= BackoffPolicy().delay_s(failures, random) <= 30.0
