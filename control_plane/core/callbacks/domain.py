"""Where a callback goes, and what an endpoint's answer means for the delivery."""

from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

from control_plane.limits import FAILING_RECHECK_S, RETRY_AFTER_S_MAX, SILENT_RECHECK_S
from foundation.outbox.model import Dead, Delivered, Held, Outcome, Retry

GONE: Final = 410
TOO_MANY_REQUESTS: Final = 429
UNAVAILABLE: Final = 503


@dataclass(frozen=True, slots=True)
class CallbackTarget:
    """The endpoint of one task and its application's signing secret; never logged."""

    application_id: str
    url: str
    secret: bytes = field(repr=False)
    disabled: bool


def outcome_of_status(
    status: int, retry_after: str | None, url_shown: str, now: datetime
) -> Outcome:
    """Return what an HTTP answer means: 2xx stored, 410 disables, the rest is tried again.

    Redirects are not followed. Only 429 and 503 are believed about when to try again.
    """
    if 200 <= status < 300:  # noqa: PLR2004 - the class of an HTTP status
        return Delivered()
    error = f"{url_shown} answered {status}"
    if status == GONE:
        return Held(f"{error}: the endpoint is gone, set it again to enable it")
    if status in (TOO_MANY_REQUESTS, UNAVAILABLE):
        return Retry(error, retry_after_s=_retry_after_s(retry_after, now))
    return Retry(error)


def no_target() -> Outcome:
    """Return the outcome for a delivery whose application has no secret to sign with."""
    return Dead("the application has no callback secret: set its callback endpoint")


def no_room(*, failing: bool) -> Outcome:
    """Return the outcome for a delivery that its endpoint has no room for; it is not counted."""
    if failing:
        return Held(
            "waits: the endpoint fails, and is tried by two deliveries at a time",
            recheck_after_s=FAILING_RECHECK_S,
        )
    return Held("waits: the endpoint answers slowly", recheck_after_s=SILENT_RECHECK_S)


def _retry_after_s(text: str | None, now: datetime) -> float | None:
    """Return the seconds that a Retry-After header asks for, a number or a date; at most a day."""
    if text is None:
        return None
    if text.strip().isdecimal():
        return min(float(text.strip()), RETRY_AFTER_S_MAX)
    try:
        wait_s = (parsedate_to_datetime(text) - now).total_seconds()
    except (TypeError, ValueError):
        return None
    return min(max(wait_s, 0.0), RETRY_AFTER_S_MAX)
