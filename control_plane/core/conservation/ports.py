"""What conservation needs: a reader that counts both sides of an equation in one snapshot."""

from datetime import datetime
from typing import Protocol

from control_plane.core.conservation.domain import Balance, Invariant


class ConservationReader(Protocol):
    """Counts durable facts; never by reading more than the window or what is live."""

    async def balance(self, invariant: Invariant, start: datetime, end: datetime) -> Balance:
        """Count both sides, in one statement, of what was created from `start` to before `end`.

        Raises DatabaseBusyError where the window holds more than can be counted in time.
        """
        ...

    async def database_time(self) -> datetime:
        """Tell the time by the database's clock."""
        ...
