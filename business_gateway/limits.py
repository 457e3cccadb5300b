"""Every bound of the gateway that is not a setting, with the relations that must hold."""

from typing import Final

JSON_BODY_BYTES_MAX: Final = 64 * 1024
# How often a live stream looks for changes that no wake-up of this process announced, and so
# also how often it says that it lives.
STREAM_RECHECK_S: Final = 5.0
UPLOAD_URL_VALID_S: Final = 3_600
VERIFICATION_TTL_S: Final = 900.0
GRANT_VALID_S_MIN: Final = 60
GRANT_VALID_S_MAX: Final = 900
DOWNLOAD_VALID_S: Final = 300
HASHES_MAX: Final = 4
REST_STOP_GRACE_S: Final = 5.0
REST_CONNECTIONS_MAX: Final = 2_000
KEEP_ALIVE_S: Final = 30
LEFTOVERS_SWEEP_S: Final = 600.0
LEFTOVERS_BATCH: Final = 200

assert GRANT_VALID_S_MIN <= DOWNLOAD_VALID_S <= GRANT_VALID_S_MAX
