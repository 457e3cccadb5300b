"""What the page needs from the platform and from the gateway's own tables."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from business_gateway.core.orders.domain import Order
from foundation.wakeup import Wakeup

Document = dict[str, Any]
"""JSON as the contract names its fields; the page reads it, the gateway does not."""


class PlatformDesk(Protocol):
    """The platform as people see it. Raises the TdpError that the platform answered."""

    async def is_operator(self, key: str) -> bool:
        """Whether the key is an operator's; UnavailableError when that cannot be asked now."""
        ...

    async def call(self, method: str, body: Mapping[str, Any], operator_key: str) -> Document:
        """Call `Service/Method` of those that the page uses, in the operator's name.

        RpcNotOfferedError for others, InvalidArgumentError for a body that is not its request,
        OperatorKeyRefusedError where the key is no longer good.
        """
        ...

    async def task_details(self, task_id: str) -> Document:
        """Read one of our own tasks with its steps, attempts, timeline, events and workflow."""
        ...

    async def waiting(self, task_ids: Sequence[str]) -> Mapping[str, Document]:
        """Read by task what each current execution waits for; the unanswered are left out."""
        ...


class ConsoleTables(Protocol):
    """Reads of the gateway's own tables that only the page makes."""

    async def orders(self, order_ids: Sequence[str]) -> Sequence[Order]:
        """Read these orders; unknown ones are left out."""
        ...

    async def queues(self) -> Document:
        """Count the command outbox by status, and list what is dead in it, newest first."""
        ...

    async def callbacks(self, before_event_id: str | None, limit: int) -> Sequence[Document]:
        """Read the newest events received, older than `before_event_id` where given."""
        ...

    async def changes(self, order_id: str) -> Sequence[Document]:
        """Read the newest versions of an order, ascending."""
        ...


class ChangedOrders(Protocol):
    """The ids of orders that changed since they were last taken, at most a few hundred."""

    @property
    def wakeup(self) -> Wakeup:
        """Rises when there is one, and when streams must end."""
        ...

    def take(self) -> tuple[Sequence[str], bool]:
        """Return the ids, and whether more changed than were kept."""
        ...


class AllOrdersFeed(Protocol):
    """Tells streams which orders changed in this process."""

    def watch_all(self) -> AbstractContextManager[ChangedOrders]:
        """Collect changes until the end of the block."""
        ...

    @property
    def closed(self) -> bool:
        """Whether the process stops, so that streams must end."""
        ...
