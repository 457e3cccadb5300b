"""An order's journey: its evidence, hop by hop, and its changes as they happen."""

from collections.abc import AsyncGenerator
from typing import Final

from business_gateway.core.orders.domain import OrderChange, OrderId
from business_gateway.core.orders.evidence import (
    OrderLadder,
    PlatformEvidence,
    build_order_ladder,
)
from business_gateway.core.orders.ports import EvidenceSource, OrderChangeFeed, OrderStore
from foundation.errors import TdpError
from foundation.ids import parse_id

_BATCH_MAX: Final = 200


class Journeys:
    """Reads what became of an order."""

    def __init__(
        self,
        store: OrderStore,
        platform: EvidenceSource,
        feed: OrderChangeFeed,
        *,
        recheck_s: float,
    ) -> None:
        """`recheck_s` is how often a stream looks for changes that no wake-up announced."""
        self._store = store
        self._platform = platform
        self._feed = feed
        self._recheck_s = recheck_s

    async def ladder(self, order_id: str) -> OrderLadder:
        """Return the ten rungs; OrderNotFoundError. A silent platform is shown, not raised."""
        wanted = OrderId(parse_id(order_id, "order_id"))
        facts = await self._store.gateway_facts(wanted)
        platform: PlatformEvidence | None = None
        try:
            platform = await self._platform.get_evidence(wanted)
        except TdpError as error:
            return build_order_ladder(facts, None, f"{error.reason}: {error.message}")
        return build_order_ladder(facts, platform)

    async def changes(
        self, order_id: str, after_version: int | None
    ) -> AsyncGenerator[OrderChange | None, None]:
        """Yield every version after `after_version` as it appears, None when none did for a while.

        Without a version it begins with the present one. Ends when the process stops. Check
        with `latest` first that the order exists.
        """
        wanted = OrderId(parse_id(order_id, "order_id"))
        seen = after_version
        if seen is None:
            seen = (await self._store.get(wanted)).version - 1
        with self._feed.watch(wanted) as wakeup:
            while not self._feed.closed:
                found = await self._store.changes_after(wanted, seen, _BATCH_MAX)
                for change in found:
                    yield change
                    seen = change.version
                if len(found) < _BATCH_MAX and not await wakeup.wait(self._recheck_s):
                    yield None
