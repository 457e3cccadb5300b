"""What retention asks of storage: one bounded batch a call, each its own transaction."""

from datetime import timedelta
from typing import Protocol

from control_plane.core.retention.domain import Place, Swept


class RetentionStore(Protocol):
    """Each method looks at up to `limit` rows after a place, oldest first, and removes what may go.

    What may not go yet is passed over and looked at again by the next pass, so that a batch costs
    the same whatever stays. Rows that somebody else has locked count as staying.
    """

    async def remove_finished(self, age: timedelta, after: Place | None, limit: int) -> Swept:
        """Remove tasks that are over for longer, with their executions and all that hangs on them.

        Never one with a live execution, nor one of which something is still to be told: its
        callbacks, wake-ups and commits are delivered, or it stays.
        """
        ...

    async def remove_records(self, age: timedelta, after: Place | None, limit: int) -> Swept:
        """Remove older idempotency records whose task is gone; those of other things stay."""
        ...

    async def remove_uncommitted(self, age: timedelta, after: Place | None, limit: int) -> Swept:
        """Remove older places of artifacts that were never committed, of attempts that are over."""
        ...

    async def remove_published(self, age: timedelta, limit: int) -> int:
        """Remove older delivered wake-ups; return their number."""
        ...
