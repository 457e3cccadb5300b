"""Live changes: every version once, in order, woken or found."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from business_gateway.core.orders.change_hub import OrderChangeHub
from business_gateway.core.orders.domain import Order, OrderChange, OrderId
from business_gateway.core.orders.journeys import Journeys
from business_gateway.core.orders.state_machine import OrderStatus
from tests.unit.business_gateway.orders.test_rules import NOW, ORDER_ID, an_order


class Store:
    """The versions of one order."""

    def __init__(self) -> None:
        self.version = 1

    async def get(self, _order_id: OrderId) -> Order:
        return an_order(version=self.version)

    async def changes_after(
        self, order_id: OrderId, version: int, limit: int
    ) -> Sequence[OrderChange]:
        return [
            OrderChange(order_id, one, "EVENT", OrderStatus.PROCESSING, "", 1, 0, "", NOW)
            for one in range(version + 1, self.version + 1)
        ][:limit]


def _journeys(store: Store, hub: OrderChangeHub, recheck_s: float) -> Journeys:
    return Journeys(store, None, hub, recheck_s=recheck_s)  # type: ignore[arg-type]  # only what is used


async def test_a_change_that_nobody_announced_is_found_later() -> None:
    """Another replica's change shows at the next look; until then the stream says it lives."""
    store, hub = Store(), OrderChangeHub()
    async with aclosing(_journeys(store, hub, 0.01).changes(ORDER_ID, None)) as changes:
        first = await anext(changes)
        assert first is not None
        assert first.version == 1
        assert await anext(changes) is None
        store.version = 3
        seen = [one.version async for one in _some(changes, 2)]
        assert seen == [2, 3]
    assert hub.watched_count == 0


async def test_a_long_history_comes_in_batches_without_gaps() -> None:
    """More versions than one read brings are told one after the other, each once."""
    store, hub = Store(), OrderChangeHub()
    store.version = 1_001
    async with aclosing(_journeys(store, hub, 1_000).changes(ORDER_ID, 1)) as changes:
        seen = [one.version async for one in _some(changes, 1_000)]
    assert seen == list(range(2, 1_002))


async def test_a_stream_ends_when_the_hub_closes() -> None:
    """Whoever waits is let go, and a new stream ends at once."""
    store, hub = Store(), OrderChangeHub()
    async with aclosing(_journeys(store, hub, 1_000).changes(ORDER_ID, 0)) as changes:
        await anext(changes)
        hub.close()
        assert [one async for one in changes] == []
    async with aclosing(_journeys(store, hub, 1_000).changes(ORDER_ID, 0)) as changes:
        assert [one async for one in changes] == []


async def _some(
    changes: AsyncGenerator[OrderChange | None, None], count: int
) -> AsyncIterator[OrderChange]:
    while count:
        change = await anext(changes)
        if change is not None:
            yield change
            count -= 1
