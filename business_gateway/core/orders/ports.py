"""What the use cases of orders need from outside."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from business_gateway.core.idempotency import RequestIdentity
from business_gateway.core.orders.domain import (
    NewCommand,
    NewOrder,
    Order,
    OrderChange,
    OrderId,
    SubmitFacts,
)
from business_gateway.core.orders.evidence import GatewayFacts, PlatformEvidence
from business_gateway.core.orders.state_machine import OrderStatus
from foundation.wakeup import Wakeup


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What a request was answered: the order's document as JSON text, and whether by replay."""

    order_id: OrderId
    document: str
    replayed: bool


@dataclass(frozen=True, slots=True)
class CancelChange:
    """What cancelling does to an order: its new status, and what to tell the platform.

    `withdraw` removes the SUBMIT row, so that nothing is ever submitted.
    """

    status: OrderStatus
    kind: str
    withdraw: bool = False
    command: NewCommand | None = None


@dataclass(frozen=True, slots=True)
class OpenOrders:
    """How many orders are where, those that are over left out; the time is in seconds."""

    by_status: Mapping[str, int]
    gap_count: int
    quiet_s_max: float


CancelRule = Callable[[Order, SubmitFacts | None], CancelChange | None]
RerunRule = Callable[[Order], NewCommand]


class OrderStore(Protocol):
    """Orders, their commands and the requests about them, each method one transaction.

    Methods with an identity answer a finished request again from its record, before any other
    check; IdempotencyKeyReusedError for another request under the key, RequestInProgressError
    while the first one runs. A refusal leaves nothing behind.
    """

    async def create(
        self, identity: RequestIdentity, order: NewOrder, command: NewCommand
    ) -> StoredAnswer:
        """Store order, SUBMIT and record; SourceAssetNotReadyError."""
        ...

    async def cancel(
        self, identity: RequestIdentity, order_id: OrderId, rule: CancelRule
    ) -> StoredAnswer:
        """Apply the rule under the locks of the SUBMIT row and the order; OrderNotFoundError."""
        ...

    async def rerun(
        self, identity: RequestIdentity, order_id: OrderId, rule: RerunRule
    ) -> StoredAnswer:
        """Begin another run under the order's lock; OrderNotFoundError, or what the rule raises."""
        ...

    async def get(self, order_id: OrderId) -> Order:
        """Read one; OrderNotFoundError."""
        ...

    async def page(
        self, status: OrderStatus | None, before_id: OrderId | None, limit: int
    ) -> Sequence[Order]:
        """Read up to `limit` orders, newest first, older than `before_id` where given."""
        ...

    async def changes_after(
        self, order_id: OrderId, version: int, limit: int
    ) -> Sequence[OrderChange]:
        """Read versions after `version`, ascending."""
        ...

    async def gateway_facts(self, order_id: OrderId) -> GatewayFacts:
        """Read what proves the gateway's own rungs; OrderNotFoundError."""
        ...


class OrderCounter(Protocol):
    """Counts what is open; its cost grows with what is open, or waits for people."""

    async def count_open(self) -> OpenOrders:
        """Count everything once."""
        ...


class OrderChangeFeed(Protocol):
    """Tells streams that an order may have a new version."""

    def watch(self, order_id: OrderId) -> AbstractContextManager[Wakeup]:
        """A wake-up that rises whenever the order changed, and when streams must end."""
        ...

    @property
    def closed(self) -> bool:
        """Whether the process stops, so that streams must end."""
        ...


class OrderChangeAnnouncer(Protocol):
    """Is told, after the commit, which orders changed."""

    def announce(self, order_id: str) -> None:
        """Wake the streams of this order; cheap where there are none."""
        ...


class CommandAnnouncer(Protocol):
    """Is told, after the commit, that the command outbox has a new row."""

    def commands_added(self) -> None:
        """Wake the command pump."""
        ...


class EvidenceSource(Protocol):
    """The platform's part of an order's evidence."""

    async def get_evidence(self, order_id: str) -> PlatformEvidence | None:
        """Return its rungs, None where it has never heard of the order.

        Raises UnavailableError or another TdpError when it cannot be asked now.
        """
        ...
