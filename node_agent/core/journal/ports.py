"""What the agent needs of its journal's store."""

from collections.abc import Sequence
from typing import Protocol

from node_agent.core.journal.domain import JournalContents, Write


class JournalStore(Protocol):
    """One local file. Whatever it raises as LocalDatabaseError, nothing of the call was written."""

    async def load(self) -> JournalContents:
        """Read everything that a new process has to know."""
        ...

    async def apply(self, writes: Sequence[Write]) -> None:
        """Do all writes in their order, in one transaction; on disk when it returns."""
        ...


class Journal(Protocol):
    """The journal as the rest of the agent writes it: in batches, one after the other."""

    @property
    def disk_is_full(self) -> bool:
        """Whether the last transaction found no room."""
        ...

    async def submit(self, writes: Sequence[Write]) -> None:
        """Store the writes together; on disk when it returns. Raises LocalDiskFullError."""
        ...

    async def submit_in_any_case(self, writes: Sequence[Write]) -> None:
        """Store the writes, however long the disk stays full."""
        ...
