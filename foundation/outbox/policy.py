"""What differs between the four outboxes, and the pure rule from an outcome to a mark."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from foundation.outbox.model import (
    ERROR_LENGTH_MAX,
    Dead,
    Delivered,
    DestinationUnreachable,
    Held,
    Mark,
    OutboxRow,
    OutboxStatus,
    Outcome,
    Retry,
)

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_STAGES = ("claim", "publish", "mark")


@dataclass(frozen=True, slots=True)
class OutboxPolicy:
    """Parameters of one outbox. All times are in seconds.

    `back_off_s` maps the counted failures so far, the latest included (so at least 1, or 0
    when none was counted), to the wait before the next try. After `attempts_max` counted
    failures a row is DEAD; None: never. With `dead_blocks`, DEAD and QUARANTINED rows go on
    blocking the later rows of their key until they are driven again.
    """

    name: str
    back_off_s: Callable[[int], float]
    attempts_max: int | None = None
    dead_blocks: bool = False
    claim_ttl_s: float = 60.0
    claims_max: int = 20
    batch_size_max: int = 500
    rows_per_publish_max: int = 500
    publishes_in_flight_max: int = 1
    publish_timeout_s: float = 40.0
    probe_interval_s: float = 5.0
    idle_poll_s: float = 5.0

    def __post_init__(self) -> None:
        """Refuse figures that contradict each other, with ValueError."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"outbox name {self.name!r} is not a lower-case word")
        if self.publish_timeout_s >= self.claim_ttl_s:
            raise ValueError(
                f"publish_timeout_s {self.publish_timeout_s} must be below claim_ttl_s "
                f"{self.claim_ttl_s}: else another relay takes over what is still being published"
            )
        sizes = (self.batch_size_max, self.rows_per_publish_max, self.publishes_in_flight_max)
        attempts_max = 1 if self.attempts_max is None else self.attempts_max
        if min(*sizes, self.claims_max, attempts_max) < 1:
            raise ValueError(f"outbox {self.name}: sizes and maxima start at 1")

    @property
    def failpoints(self) -> tuple[str, ...]:
        """Names of the pump's failpoints for this outbox, for the process's table."""
        return tuple(
            f"{self.name}.{stage}.{side}" for stage in _STAGES for side in ("before", "after")
        )


def mark_for(row: OutboxRow, outcome: Outcome, policy: OutboxPolicy) -> Mark:
    """Decide the next state of a claimed row from what publishing it came to."""
    match outcome:
        case Delivered():
            return Mark(row.outbox_id, row.claim_id, OutboxStatus.PUBLISHED)
        case Dead(error):
            return _mark(row, OutboxStatus.DEAD, error, attempts_added=1)
        case DestinationUnreachable(error):
            due_in_s = policy.probe_interval_s
            return _mark(row, OutboxStatus.FAILED, error, due_in_s=due_in_s, held=True)
        case Held(error, recheck_after_s):
            return _mark(row, OutboxStatus.FAILED, error, due_in_s=recheck_after_s, held=True)
        case Retry():
            return _mark_for_retry(row, outcome, policy)
        case _ as unreachable:
            assert_never(unreachable)


def _mark_for_retry(row: OutboxRow, outcome: Retry, policy: OutboxPolicy) -> Mark:
    added = 1 if outcome.counts_attempt else 0
    attempts = row.attempts + added
    if added and policy.attempts_max is not None and attempts >= policy.attempts_max:
        return _mark(row, OutboxStatus.DEAD, outcome.error, attempts_added=added)
    due_in_s = max(policy.back_off_s(attempts), outcome.retry_after_s or 0.0)
    return _mark(row, OutboxStatus.FAILED, outcome.error, attempts_added=added, due_in_s=due_in_s)


def _mark(
    row: OutboxRow,
    status: OutboxStatus,
    error: str,
    *,
    attempts_added: int = 0,
    due_in_s: float = 0.0,
    held: bool = False,
) -> Mark:
    # PostgreSQL refuses NUL in text, and errors quote what others sent.
    text = error.replace("\x00", "\\0")[:ERROR_LENGTH_MAX]
    return Mark(row.outbox_id, row.claim_id, status, attempts_added, due_in_s, held, text)
