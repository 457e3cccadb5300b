"""Every bound of the agent, with the relations that must hold between them."""

from typing import Final

from foundation.backoff import exponential_s
from foundation.outbox.policy import OutboxPolicy

# --- What the contract allows. ---
ARTIFACTS_PER_EVENT_MAX: Final = 500
ALLOCATIONS_PER_CALL_MAX: Final = 200
OUTPUT_BYTES_MAX: Final = 256 * 1024
FAILURE_MESSAGE_CHARS_MAX: Final = 4_096
LOG_TAIL_CHARS_MAX: Final = 8 * 1024
PROGRESS_MESSAGE_CHARS_MAX: Final = 200
CHECKPOINT_BYTES_MAX: Final = 256 * 1024

# --- Events on their way. ---
EVENTS_PER_BATCH_MAX: Final = 500
# Far below what a server takes, so that one batch never delays a heartbeat for long.
EVENT_BATCH_BYTES: Final = 1024 * 1024
EVENT_ACK_TIMEOUT_S: Final = 10.0
# How long a send waits for a session before the destination counts as unreachable.
EVENT_SESSION_PATIENCE_S: Final = 30.0
EVENT_PUBLISH_TIMEOUT_S: Final = 40.0
EVENT_CLAIM_TTL_S: Final = 60.0
EVENT_PROBE_INTERVAL_S: Final = 0.5

# --- Sessions. ---
PROGRESS_INTERVAL_S: Final = 1.0
COMMANDS_WAITING_MAX: Final = 10_000
LEAVE_PATIENCE_S: Final = 1.0

# --- Grants. ---
GRANT_CALL_TIMEOUT_S: Final = 20.0
GRANT_RETRY_FOR_S: Final = 60.0
# A grant is asked for anew when this much of it is left, or a third of its life if that is less.
GRANT_MARGIN_S: Final = 60.0
# The server's wall clock may differ from ours, so no grant is handed out twice for longer.
GRANT_REUSE_S_MAX: Final = 30.0

assert EVENT_SESSION_PATIENCE_S < EVENT_PUBLISH_TIMEOUT_S < EVENT_CLAIM_TTL_S
assert EVENT_ACK_TIMEOUT_S < EVENT_SESSION_PATIENCE_S


def node_events_policy(backoff_cap_s: float = 30.0) -> OutboxPolicy:
    """Return the policy of the agent's outbox: 1 s to 30 s, and an event is never given up."""

    def back_off_s(failures: int) -> float:
        return exponential_s(max(failures, 1), base_s=min(1.0, backoff_cap_s), cap_s=backoff_cap_s)

    return OutboxPolicy(
        name="node_events",
        back_off_s=back_off_s,
        claim_ttl_s=EVENT_CLAIM_TTL_S,
        rows_per_publish_max=EVENTS_PER_BATCH_MAX,
        batch_size_max=EVENTS_PER_BATCH_MAX,
        publishes_in_flight_max=2,
        publish_timeout_s=EVENT_PUBLISH_TIMEOUT_S,
        probe_interval_s=EVENT_PROBE_INTERVAL_S,
    )
