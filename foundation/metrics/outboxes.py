"""What every process tells of its outboxes: how much waits, for how long, and what came of it."""

from collections.abc import Awaitable, Iterator, Mapping
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from foundation.outbox.model import OutboxDepth
from foundation.outbox.pump import OutboxPump

_OUTCOMES: Final = ("claimed", "PUBLISHED", "FAILED", "DEAD", "QUARANTINED", "stale")


class MeasuredOutbox(Protocol):
    """A store of one outbox that counts what is open in it."""

    def depth(self) -> Awaitable[OutboxDepth]:
        """Count the rows by state, without history."""
        ...


class OutboxMetrics:
    """Gauges and counters over outboxes, by name; `refresh` asks their stores."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._stores: dict[str, MeasuredOutbox] = {}
        self._pumps: dict[str, OutboxPump] = {}
        self._rows = Gauge(
            "tdp_outbox_rows",
            "Rows of an outbox that are not delivered, by status.",
            ["outbox", "status"],
            registry=registry,
        )
        self._age = Gauge(
            "tdp_outbox_oldest_age_seconds",
            "Age of the oldest row that is neither delivered nor given up; 0 without one.",
            ["outbox"],
            registry=registry,
        )
        registry.register(_PumpCounts(self._pumps))

    def add(self, name: str, store: MeasuredOutbox, pump: OutboxPump) -> None:
        """Measure one outbox from now on."""
        self._stores[name] = store
        self._pumps[name] = pump

    async def refresh(self) -> None:
        """Ask every store what is open."""
        for name, store in self._stores.items():
            depth = await store.depth()
            for status in ("pending", "publishing", "failed", "dead", "quarantined"):
                self._rows.labels(name, status.upper()).set(getattr(depth, status))
            self._age.labels(name).set(depth.oldest_open_age_s or 0.0)


class _PumpCounts(Collector):
    """Counters that the pumps of this process keep anyway."""

    def __init__(self, pumps: Mapping[str, OutboxPump]) -> None:
        self._pumps = pumps

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            "tdp_outbox_outcomes",
            "Rows that this process claimed, and what its marks made of them.",
            labels=["outbox", "outcome"],
        )
        for name, pump in self._pumps.items():
            for outcome in _OUTCOMES:
                family.add_metric([name, outcome.upper()], pump.counts[outcome])
        yield family
