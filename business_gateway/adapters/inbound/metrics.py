"""What a gateway shows to Prometheus; docs/metrics.md lists the names."""

from typing import Final

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from business_gateway.core.orders.ports import OrderCounter
from foundation.clock import Clock
from foundation.metrics.outboxes import OutboxMetrics
from foundation.metrics.refreshing import Refreshed

FACTS_AGE_S_MAX: Final = 15.0


class GatewayMetrics:
    """All metrics of one replica. A scrape asks the database at most once in 15 s."""

    def __init__(self, registry: CollectorRegistry, orders: OrderCounter, clock: Clock) -> None:
        """Every gauge shows what all replicas share; the counters of outboxes this one alone."""
        self.registry = registry
        self.outboxes = OutboxMetrics(registry)
        self._orders = orders
        self._open = Gauge(
            "tdp_orders_open",
            "Orders that are not over, or that wait for a person.",
            ["status"],
            registry=registry,
        )
        self._gaps = Gauge(
            "tdp_orders_with_gap",
            "Orders that have projected an event past one that is missing.",
            registry=registry,
        )
        self._quiet = Gauge(
            "tdp_orders_quiet_seconds",
            "For how long the quietest order that the platform has was not heard of.",
            registry=registry,
        )
        self._facts = Refreshed(self._read, clock, FACTS_AGE_S_MAX)

    async def render(self) -> bytes:
        """Return the exposition; TdpError when the database cannot be asked."""
        await self._facts.ensure()
        return generate_latest(self.registry)

    async def _read(self) -> None:
        counts = await self._orders.count_open()
        self._open.clear()
        for status, count in counts.by_status.items():
            self._open.labels(status).set(count)
        self._gaps.set(counts.gap_count)
        self._quiet.set(counts.quiet_s_max)
        await self.outboxes.refresh()
