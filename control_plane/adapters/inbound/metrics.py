"""What a control plane shows to Prometheus; docs/metrics.md lists the names."""

from datetime import timedelta
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest

from control_plane.core.conservation.application import Conservation
from control_plane.core.conservation.domain import INVARIANTS
from control_plane.core.gauges.domain import GaugeFacts
from control_plane.core.gauges.ports import GaugeReader
from control_plane.core.nodes.session import LiveSessions
from foundation.clock import Clock
from foundation.metrics.outboxes import OutboxMetrics
from foundation.metrics.refreshing import Refreshed

FACTS_AGE_S_MAX: Final = 15.0
CONSERVATION_AGE_S_MAX: Final = 60.0
CONSERVATION_WINDOW: Final = timedelta(minutes=15)
_DELAY_BUCKETS_S: Final = (
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0,
)  # fmt: skip
_BATCH_BUCKETS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)


class ControlPlaneMeasures:
    """Implements Measures: histograms of what this replica does."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._delay = Histogram(
            "tdp_dispatch_delay_seconds",
            "From the making of a request for a node to the attempt that serves it.",
            buckets=_DELAY_BUCKETS_S,
            registry=registry,
        )
        self._batches = Histogram(
            "tdp_batch_items",
            "Items that one transaction of a hop served.",
            ["hop"],
            buckets=_BATCH_BUCKETS,
            registry=registry,
        )

    def batch(self, hop: str, size: int) -> None:
        """See Measures."""
        self._batches.labels(hop).observe(size)

    def dispatch_delay(self, seconds: float) -> None:
        """See Measures."""
        self._delay.observe(max(seconds, 0.0))


class _FactGauges:
    """Gauges over what all replicas share; states that are gone are shown no more."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, help_text: str, *labels: str) -> Gauge:
            return Gauge(name, help_text, labels, registry=registry)

        self._queue = gauge(
            "tdp_queue_requests",
            "Requests that wait for a node; those in back-off are not counted.",
            "capability",
            "version",
        )
        self._never = gauge(
            "tdp_queue_unsatisfiable_requests",
            "Those of them that no known node could ever serve.",
            "capability",
            "version",
        )
        self._age = gauge(
            "tdp_queue_oldest_age_seconds", "Age of the oldest of them.", "capability", "version"
        )
        self._live = gauge("tdp_executions_live", "Executions that are not over.", "status")
        self._paused = gauge("tdp_executions_paused", "Live executions that are paused.")
        self._quarantined = gauge(
            "tdp_executions_quarantined", "Live executions that were set aside after failures."
        )
        self._finished = gauge(
            "tdp_executions_finished_last_minute",
            "Executions that ended within the last minute.",
            "status",
        )
        self._nodes = gauge("tdp_nodes", "Nodes.", "runtime", "management")
        self._slots = gauge("tdp_node_slots", "Slots of nodes.", "runtime", "management")
        self._used = gauge("tdp_node_slots_used", "Slots that are taken.", "runtime", "management")
        self._commands = gauge(
            "tdp_node_commands_open", "Commands that their node has not stored yet."
        )
        self._attempts = gauge("tdp_attempts_live", "Attempts that have not ended.")

    def show(self, facts: GaugeFacts) -> None:
        for shown in (self._queue, self._never, self._age, self._live, self._finished):
            shown.clear()
        for queue in facts.queues:
            labels = (queue.capability, queue.version)
            self._queue.labels(*labels).set(queue.waiting_count)
            self._never.labels(*labels).set(queue.never_count)
            self._age.labels(*labels).set(queue.oldest_age_s)
        for execution in facts.executions:
            self._live.labels(execution.status).set(execution.live_count)
        self._paused.set(sum(one.paused_count for one in facts.executions))
        self._quarantined.set(sum(one.quarantined_count for one in facts.executions))
        for status, count in facts.finished:
            self._finished.labels(status).set(count)
        self._show_nodes(facts)
        self._commands.set(facts.open_command_count)
        self._attempts.set(facts.live_attempt_count)

    def _show_nodes(self, facts: GaugeFacts) -> None:
        for shown in (self._nodes, self._slots, self._used):
            shown.clear()
        for node in facts.nodes:
            labels = (node.runtime, node.management)
            self._nodes.labels(*labels).set(node.node_count)
            self._slots.labels(*labels).set(node.slot_count)
            self._used.labels(*labels).set(node.used_count)


class ControlPlaneMetrics:
    """All metrics of one replica. A scrape asks the database at most once in 15 s."""

    def __init__(
        self,
        registry: CollectorRegistry,
        reader: GaugeReader,
        conservation: Conservation,
        live: LiveSessions,
        clock: Clock,
    ) -> None:
        """Gauges over the database show what all replicas share; the others this replica alone."""
        self.registry = registry
        self.outboxes = OutboxMetrics(registry)
        self._reader = reader
        self._conservation = conservation
        self._gauges = _FactGauges(registry)
        sessions = Gauge(
            "tdp_node_sessions", "Node sessions that are live on this replica.", registry=registry
        )
        sessions.set_function(lambda: len(live))
        self._difference = Gauge(
            "tdp_conservation_difference",
            "By how much an equation of conservation is off in the last 15 minutes; 0 is right.",
            ["equation"],
            registry=registry,
        )
        for one in INVARIANTS:
            self._difference.labels(one.key)
        self._facts = Refreshed(self._read_facts, clock, FACTS_AGE_S_MAX)
        self._balances = Refreshed(self._check, clock, CONSERVATION_AGE_S_MAX)

    async def render(self) -> bytes:
        """Return the exposition; TdpError when the database cannot be asked."""
        await self._facts.ensure()
        await self._balances.ensure()
        return generate_latest(self.registry)

    async def _read_facts(self) -> None:
        self._gauges.show(await self._reader.facts())
        await self.outboxes.refresh()

    async def _check(self) -> None:
        for balance in await self._conservation.check_last(CONSERVATION_WINDOW):
            off = abs(balance.left_count - balance.right_count)
            self._difference.labels(balance.invariant.key).set(max(off, len(balance.differing_ids)))
