"""How the control plane's outboxes try again; the schedules are those of the interface's guide."""

from random import Random

from control_plane.limits import CALLBACKS_IN_FLIGHT_MAX, PUBLISH_SHARE_OF_CLAIM
from foundation.backoff import DELIVERY_SCHEDULE_S, jittered_s
from foundation.outbox.policy import OutboxPolicy

EVENT_ATTEMPTS_MAX = 20
EVENT_EXPONENT_MAX = 10
COMMIT_BACKOFF_S_MAX = 60.0
COMMIT_CLAIM_S_MIN = 10.0
"""A provider reads the bytes again to verify them, so even a test gives it some time."""


def event_policy(claim_ttl_s: float, cap_s: float) -> OutboxPolicy:
    """Return the policy of outbox_events: 2^n s up to 2^10, DEAD after 20 counted failures."""
    return OutboxPolicy(
        name="outbox",
        back_off_s=lambda attempts: min(2.0 ** min(attempts, EVENT_EXPONENT_MAX), cap_s),
        attempts_max=EVENT_ATTEMPTS_MAX,
        claim_ttl_s=claim_ttl_s,
        publish_timeout_s=_publish_timeout_s(claim_ttl_s),
        rows_per_publish_max=200,
        publishes_in_flight_max=2,
        probe_interval_s=min(5.0, cap_s),
    )


def callback_policy(claim_ttl_s: float, cap_s: float, random: Random) -> OutboxPolicy:
    """Return the policy of callback_deliveries: the delivery schedule with jitter, then DEAD.

    One row at a time and many side by side; core/callbacks/isolation.py says how many of one
    endpoint.
    """

    def back_off_s(attempts: int) -> float:
        place = min(attempts, len(DELIVERY_SCHEDULE_S) - 1)
        return min(jittered_s(max(DELIVERY_SCHEDULE_S[place], 1.0), random), cap_s)

    return OutboxPolicy(
        name="callback",
        back_off_s=back_off_s,
        attempts_max=len(DELIVERY_SCHEDULE_S),
        claim_ttl_s=claim_ttl_s,
        publish_timeout_s=_publish_timeout_s(claim_ttl_s),
        rows_per_publish_max=1,
        publishes_in_flight_max=CALLBACKS_IN_FLIGHT_MAX,
    )


def commit_policy(claim_ttl_s: float, cap_s: float) -> OutboxPolicy:
    """Return the policy of artifact_commits: 2^n s up to a minute, never given up.

    What waits for it is a finished step; the execution's own time-out ends the wait.
    """
    cap = min(COMMIT_BACKOFF_S_MAX, cap_s)
    claim_s = max(claim_ttl_s, COMMIT_CLAIM_S_MIN)
    return OutboxPolicy(
        name="artifacts",
        back_off_s=lambda attempts: min(2.0 ** min(attempts, EVENT_EXPONENT_MAX), cap),
        claim_ttl_s=claim_s,
        publish_timeout_s=_publish_timeout_s(claim_s),
        rows_per_publish_max=1,
        publishes_in_flight_max=16,
    )


def _publish_timeout_s(claim_ttl_s: float) -> float:
    """Leave a third of the claim for the mark."""
    return claim_ttl_s * PUBLISH_SHARE_OF_CLAIM
