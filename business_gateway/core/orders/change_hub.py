"""Who watches which order in this process, and the waking of them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from business_gateway.core.orders.domain import OrderId
from foundation.wakeup import Wakeup

CHANGED_ORDERS_MAX: Final = 200


class ChangedOrderIds:
    """Implements ChangedOrders; past its bound it only knows that there were more."""

    def __init__(self) -> None:
        self.wakeup = Wakeup()
        # A dict for its order: what changed first is told first.
        self._ids: dict[str, None] = {}
        self._overflowed = False

    def add(self, order_id: str) -> None:
        """Note a change."""
        if len(self._ids) < CHANGED_ORDERS_MAX:
            self._ids[order_id] = None
        elif order_id not in self._ids:
            self._overflowed = True
        self.wakeup.set()

    def take(self) -> tuple[Sequence[str], bool]:
        """See ChangedOrders."""
        ids, overflowed = list(self._ids), self._overflowed
        self._ids.clear()
        self._overflowed = False
        return ids, overflowed


class OrderChangeHub:
    """OrderChangeFeed, AllOrdersFeed and OrderChangeAnnouncer within one process and event loop.

    A stream reads from the database in any case, so that changes made by other replicas reach
    it too, only later: whoever hears of those calls `announce` as well.
    """

    def __init__(self) -> None:
        self._watching: defaultdict[str, set[Wakeup]] = defaultdict(set)
        self._watching_all: set[ChangedOrderIds] = set()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def watched_count(self) -> int:
        """Number of orders that somebody watches."""
        return len(self._watching)

    @contextmanager
    def watch(self, order_id: OrderId) -> Iterator[Wakeup]:
        """See OrderChangeFeed."""
        wakeup = Wakeup()
        self._watching[order_id].add(wakeup)
        try:
            yield wakeup
        finally:
            self._watching[order_id].discard(wakeup)
            if not self._watching[order_id]:
                del self._watching[order_id]

    @contextmanager
    def watch_all(self) -> Iterator[ChangedOrderIds]:
        """See AllOrdersFeed."""
        changed = ChangedOrderIds()
        self._watching_all.add(changed)
        try:
            yield changed
        finally:
            self._watching_all.discard(changed)

    def announce(self, order_id: str) -> None:
        """See OrderChangeAnnouncer."""
        for wakeup in self._watching.get(order_id, ()):
            wakeup.set()
        for changed in self._watching_all:
            changed.add(order_id)

    def close(self) -> None:
        """Let every stream end; idempotent."""
        self._closed = True
        for wakeups in self._watching.values():
            for wakeup in wakeups:
                wakeup.set()
        for changed in self._watching_all:
            changed.wakeup.set()
