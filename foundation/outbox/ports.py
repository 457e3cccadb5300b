"""What the pump needs: a store of rows and a publisher."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from foundation.outbox.model import Claimed, Mark, OutboxDepth, OutboxRow, Outcome


class OutboxStore(Protocol):
    """Rows of one outbox table. Every time is decided by the store's own clock.

    Methods raise a TdpError with `retryable` when the store cannot be reached; the pump then
    tries again. Any other error ends the pump.
    """

    async def claim(self, limit: int) -> Claimed:
        """Take up to `limit` due rows, in one short statement; none twice at a time.

        Due are PENDING and FAILED rows at their time and PUBLISHING rows whose claim expired,
        by available_at, created_at, position; but no row that an earlier undelivered one with
        its ordering key blocks. Each claim counts; a row claimed `claims_max` times without a
        mark becomes QUARANTINED instead of being returned.
        """
        ...

    async def mark(self, marks: Sequence[Mark]) -> frozenset[UUID]:
        """Apply the marks whose row is PUBLISHING under that very claim; return their ids.

        The others change nothing: the row was taken over, or marked already. A mark sets the
        claims back to 0. No row may occur twice in `marks`.
        """
        ...

    async def next_due_in_s(self) -> float | None:
        """Seconds until some row is claimable, 0 when one is now, None when no row is open."""
        ...

    async def release(self, destination: str) -> int:
        """Make the held rows of a destination due at once; return their number."""
        ...


class OutboxAdministration(Protocol):
    """What operators do with an outbox."""

    async def redrive(self, outbox_ids: Sequence[UUID]) -> frozenset[UUID]:
        """Make DEAD and QUARANTINED rows PENDING and due, attempts 0; return those it changed."""
        ...

    async def depth(self) -> OutboxDepth:
        """Count the rows by state, without history."""
        ...

    async def remove_published(self, older_than_s: float, limit: int) -> int:
        """Remove up to `limit` delivered rows of that age, oldest first; return their number."""
        ...


class Publisher(Protocol):
    """Hands rows to their next owner, outside any transaction."""

    async def publish(self, rows: Sequence[OutboxRow]) -> Sequence[Outcome]:
        """Return one outcome for each row, in order.

        May be called again with the same row: the receiver de-duplicates by outbox_id. An
        exception counts as Retry for all rows, a time-out too. Only a publisher with a single
        internal destination may answer DestinationUnreachable.
        """
        ...
