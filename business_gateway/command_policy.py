"""How the command outbox tries again: 2^n s capped at a minute; DEAD only on a final refusal."""

from typing import Final

from foundation.outbox.policy import OutboxPolicy

COMMAND_OUTBOX: Final = "command"
COMMANDS_PER_PUBLISH_MAX: Final = 100
PUBLISHES_IN_FLIGHT_MAX: Final = 4
PROBE_INTERVAL_S: Final = 5.0
_EXPONENT_MAX: Final = 10


def command_policy(claim_ttl_s: float, backoff_cap_s: float) -> OutboxPolicy:
    """Return the policy; the cap is a setting so that tests converge quickly."""
    return OutboxPolicy(
        name=COMMAND_OUTBOX,
        back_off_s=lambda attempts: min(2.0 ** min(attempts, _EXPONENT_MAX), backoff_cap_s),
        claim_ttl_s=claim_ttl_s,
        # A third of the claim is left for the mark.
        publish_timeout_s=claim_ttl_s * 2 / 3,
        rows_per_publish_max=COMMANDS_PER_PUBLISH_MAX,
        publishes_in_flight_max=PUBLISHES_IN_FLIGHT_MAX,
        probe_interval_s=min(PROBE_INTERVAL_S, backoff_cap_s),
    )
