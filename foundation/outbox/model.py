"""What an outbox row is, what publishing it can come to, and how it is then marked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeAlias
from uuid import UUID

ERROR_LENGTH_MAX: Final = 2_000


class OutboxStatus(StrEnum):
    """State of a row.

    PENDING -> PUBLISHING -> PUBLISHED | FAILED | DEAD; FAILED -> PUBLISHING;
    PUBLISHING -> PUBLISHING (taken over after the claim's expiry) | QUARANTINED;
    DEAD, QUARANTINED -> PENDING (driven again).
    """

    PENDING = "PENDING"
    PUBLISHING = "PUBLISHING"
    FAILED = "FAILED"
    PUBLISHED = "PUBLISHED"
    DEAD = "DEAD"
    QUARANTINED = "QUARANTINED"


OPEN_STATUSES: Final = frozenset(
    {OutboxStatus.PENDING, OutboxStatus.PUBLISHING, OutboxStatus.FAILED}
)
SET_ASIDE_STATUSES: Final = frozenset({OutboxStatus.DEAD, OutboxStatus.QUARANTINED})


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A row as claimed; columns.sql says what each column means.

    `attempts` are the counted failures before this claim. `extra` holds the table's own
    columns by name.
    """

    outbox_id: UUID
    ordering_key: str | None
    position: int
    destination: str
    payload: str
    attempts: int
    claims: int
    claim_id: UUID
    created_at: datetime
    redriven: bool = False
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Claimed:
    """What one claim took: rows to publish, and the ids that it set aside instead."""

    rows: tuple[OutboxRow, ...] = ()
    quarantined_ids: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class Delivered:
    """The next owner has it, durably."""


@dataclass(frozen=True, slots=True)
class Retry:
    """It failed, or its outcome is unknown; it is tried again by the policy's back-off.

    `retry_after_s` is the least wait that the receiver asked for, in seconds.
    """

    error: str
    counts_attempt: bool = True
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Dead:
    """Refused for good: no retry can help."""

    error: str


@dataclass(frozen=True, slots=True)
class DestinationUnreachable:
    """The outbox's single internal destination did not answer; says nothing about the row."""

    error: str


@dataclass(frozen=True, slots=True)
class Held:
    """The row's destination is switched off: uncounted, due when the destination is released.

    It is looked at again after `recheck_after_s` in any case, so that a release that was lost,
    or came just before this answer, delays it and no more.
    """

    error: str
    recheck_after_s: float = 3_600.0


Outcome: TypeAlias = Delivered | Retry | Dead | DestinationUnreachable | Held


@dataclass(frozen=True, slots=True)
class Mark:
    """The answer to one claim: the row's next state. Takes effect only under that claim.

    `due_in_s` counts from the database's now and matters only for FAILED.
    """

    outbox_id: UUID
    claim_id: UUID
    status: OutboxStatus
    attempts_added: int = 0
    due_in_s: float = 0.0
    held: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class OutboxDepth:
    """How many rows are where, without history; ages in seconds."""

    pending: int
    publishing: int
    failed: int
    dead: int
    quarantined: int
    oldest_open_age_s: float | None
