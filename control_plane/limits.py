"""Bounds of the control plane that more than one part relies on, with the relations they keep.

Lease times have a place of their own, core/nodes/leases/figures.py, since settings change them.
"""

from datetime import timedelta
from typing import Final

# --- Documents and pages. ---
DOCUMENT_BYTES_MAX: Final = 256 * 1024
DOCUMENT_DEPTH_MAX: Final = 64
DEFINITION_BYTES_MAX: Final = 1024 * 1024
PAGE_SIZE_DEFAULT: Final = 50
PAGE_SIZE_MAX: Final = 1_000
# Steps, attempts, timeline and events: the parts of one task.
PARTS_PAGE_SIZE_DEFAULT: Final = 200
PAGE_BYTES_MAX: Final = 1024 * 1024
PAGE_TOKEN_CHARS_MAX: Final = 1_000
FILTER_CHARS_MAX: Final = 1_000

# --- Intake. ---
TASK_NAME_CHARS_MAX: Final = 200
EXTERNAL_REF_CHARS_MAX: Final = 200
PRIORITY_MAX: Final = 100
LABEL_COUNT_MAX: Final = 32
LABEL_CHARS_MAX: Final = 63

# --- Schedules. ---
SCHEDULES_PER_APPLICATION_MAX: Final = 1_000
# Settled runs of one schedule that stay to be shown.
SCHEDULE_RUNS_KEPT: Final = 200

# --- Sessions. ---
HELLO_TIMEOUT_S: Final = 10.0
WRITE_STALL_S: Final = 20.0
EVENT_BATCHES_IN_FLIGHT_MAX: Final = 8
# Messages that may wait for one node to read; a node that lets more pile up is cut off.
OUTGOING_COUNT_MAX: Final = 256
# Far below what a peer takes, so that one batch never delays a heartbeat's answer for long.
COMMAND_BATCH_BYTES: Final = 1024 * 1024
SCHEMA_BYTES_MAX: Final = 64 * 1024
CAPABILITIES_MAX: Final = 1_000
HELD_ATTEMPTS_MAX: Final = 10_000
SLOTS_MAX: Final = 10_000
EVENTS_PER_BATCH_MAX: Final = 1_000
ARTIFACTS_PER_EVENT_MAX: Final = 500
LOG_TAIL_CHARS_MAX: Final = 8 * 1024

# --- Grants and artifacts. ---
GRANT_TTL_MAX: Final = timedelta(minutes=15)
ARTIFACT_PATH_BYTES_MAX: Final = 1_024
ARTIFACT_TYPE_CHARS_MAX: Final = 100
ARTIFACTS_PER_CALL_MAX: Final = 200
ARTIFACTS_PER_COMMIT_PART_MAX: Final = 500
PROVIDER_TIMEOUT_S: Final = 10.0
# A commit reads the bytes again to verify them.
COMMIT_TIMEOUT_S: Final = 35.0

# --- Outboxes and callbacks. ---
CLAIM_TTL_S_DEFAULT: Final = 60.0
# What is left of a claim after it is for the mark.
PUBLISH_SHARE_OF_CLAIM: Final = 2 / 3
CALLBACK_TIMEOUT_S: Final = 15.0
CALLBACK_RESPONSE_BYTES_MAX: Final = 16 * 1024
RETRY_AFTER_S_MAX: Final = 86_400.0
# A replica may not have heard yet that an endpoint was enabled again.
DISABLED_RECHECK_S: Final = 30.0

CALLBACKS_IN_FLIGHT_MAX: Final = 128
# Of those, what one endpoint may hold that has not answered lately, and one that fails.
SILENT_IN_FLIGHT_MAX: Final = 32
FAILING_IN_FLIGHT_MAX: Final = 2
# When what found no room looks again; an endpoint that takes something calls it earlier.
SILENT_RECHECK_S: Final = 1.0
FAILING_RECHECK_S: Final = 30.0

# Channels that are kept open to providers, and to callback endpoints.
CHANNELS_MAX: Final = 64

assert PAGE_SIZE_DEFAULT <= PARTS_PAGE_SIZE_DEFAULT <= PAGE_SIZE_MAX
# The largest document fits a definition, a page and a batch of commands.
assert min(DEFINITION_BYTES_MAX, PAGE_BYTES_MAX, COMMAND_BATCH_BYTES) >= DOCUMENT_BYTES_MAX
# What one call allocates fits one event, and what one event reports fits one part of a commit.
assert ARTIFACTS_PER_CALL_MAX <= ARTIFACTS_PER_EVENT_MAX <= ARTIFACTS_PER_COMMIT_PART_MAX
# A call that takes its whole time must end while its row is still claimed.
assert CALLBACK_TIMEOUT_S < PUBLISH_SHARE_OF_CLAIM * CLAIM_TTL_S_DEFAULT
assert PROVIDER_TIMEOUT_S < COMMIT_TIMEOUT_S < PUBLISH_SHARE_OF_CLAIM * CLAIM_TTL_S_DEFAULT
# Many endpoints must fall silent at once before the relay has no room for the others.
assert FAILING_IN_FLIGHT_MAX < SILENT_IN_FLIGHT_MAX <= CALLBACKS_IN_FLIGHT_MAX // 4
# A grant outlasts the calls that ask for it.
assert timedelta(seconds=PROVIDER_TIMEOUT_S) < GRANT_TTL_MAX
