"""What delivering callbacks needs."""

from typing import Protocol

from control_plane.core.callbacks.domain import CallbackTarget
from foundation.outbox.model import Outcome


class CallbackDirectory(Protocol):
    """Finds endpoints, and switches one off."""

    async def target(self, execution_id: str) -> CallbackTarget | None:
        """Return where the execution's events go; None if its application has no secret."""
        ...

    async def disable(self, application_id: str) -> None:
        """Deliver nothing more to the application until its endpoint is set again."""
        ...


class CallbackTransport(Protocol):
    """Hands one signed envelope to an endpoint, once."""

    async def deliver(self, target: CallbackTarget, event_id: str, body: bytes) -> Outcome:
        """Sign the body afresh, send it, and tell what came of it; never raises."""
        ...


class HeldDeliveries(Protocol):
    """Deliveries that wait for their endpoint."""

    async def release(self, destination: str) -> int:
        """Make the application's held deliveries due at once; return their number."""
        ...
