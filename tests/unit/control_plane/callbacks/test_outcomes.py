"""What an endpoint's answer means for a delivery."""

from datetime import UTC, datetime

import pytest

from control_plane.core.callbacks.domain import outcome_of_status
from foundation.outbox.model import Delivered, Held, Retry

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_success_is_delivered(status: int) -> None:
    """Any 2xx acknowledges."""
    assert outcome_of_status(status, None, "https://a", NOW) == Delivered()


@pytest.mark.parametrize("status", [301, 302, 307, 400, 401, 404, 500, 502])
def test_anything_else_is_tried_again(status: int) -> None:
    """Redirects are not followed, and no refusal is final."""
    outcome = outcome_of_status(status, "7", "https://a", NOW)
    assert isinstance(outcome, Retry)
    assert outcome.retry_after_s is None
    assert outcome.counts_attempt


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "expected_s"),
    [
        ("7", 7.0),
        ("999999999", 86_400.0),
        ("soon", None),
        ("²", None),
        (None, None),
        ("Sat, 31 Jan 2026 12:01:30 GMT", 90.0),
        ("Sat, 31 Jan 2026 11:00:00 GMT", 0.0),
        ("Sat, 31 Jan 2099 11:00:00 GMT", 86_400.0),
        ("Sat, 31 Jan 2026 11:00:00", None),
    ],
)
def test_retry_after_is_honoured_within_a_day(
    status: int, header: str | None, expected_s: float | None
) -> None:
    """429 and 503 say when to try again; nonsense is ignored and a day is the most."""
    outcome = outcome_of_status(status, header, "https://a", NOW)
    assert isinstance(outcome, Retry)
    assert outcome.retry_after_s == expected_s


def test_gone_holds_the_endpoint() -> None:
    """410 switches the endpoint off without counting an attempt."""
    assert isinstance(outcome_of_status(410, None, "https://a", NOW), Held)
