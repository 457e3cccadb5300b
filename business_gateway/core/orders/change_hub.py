"""Who watches which order in this process, and the waking of them."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from business_gateway.core.orders.domain import OrderId
from foundation.wakeup import Wakeup


class OrderChangeHub:
    """OrderChangeFeed and OrderChangeAnnouncer within one process and event loop.

    A stream reads from the database in any case, so that changes made by other replicas reach
    it too, only later: whoever hears of those calls `announce` as well.
    """

    def __init__(self) -> None:
        self._watching: defaultdict[str, set[Wakeup]] = defaultdict(set)
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

    def announce(self, order_id: str) -> None:
        """See OrderChangeAnnouncer."""
        for wakeup in self._watching.get(order_id, ()):
            wakeup.set()

    def close(self) -> None:
        """Let every stream end; idempotent."""
        self._closed = True
        for wakeups in self._watching.values():
            for wakeup in wakeups:
                wakeup.set()
