"""What an agent shows to Prometheus; docs/metrics.md lists the names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from foundation.clock import Clock
from foundation.metrics.outboxes import OutboxMetrics
from foundation.metrics.refreshing import Refreshed

DEPTH_AGE_S_MAX: Final = 15.0


@dataclass(frozen=True, slots=True)
class AgentReadings:
    """Where the gauges are read, all in memory."""

    slot_count: Callable[[], int]
    unfinished_count: Callable[[], int]
    held_count: Callable[[], int]
    is_in_session: Callable[[], bool]
    is_ready: Callable[[], bool]
    free_disk_bytes: Callable[[], int]


class AgentMetrics:
    """All metrics of one agent. A scrape asks the journal at most once in 15 s."""

    def __init__(self, registry: CollectorRegistry, readings: AgentReadings, clock: Clock) -> None:
        self.registry = registry
        self.outboxes = OutboxMetrics(registry)
        shown = {
            "tdp_agent_slots": ("Attempts that are held at once.", readings.slot_count),
            "tdp_agent_slots_used": ("Attempts that have not ended.", readings.unfinished_count),
            "tdp_agent_attempts_held": (
                "Attempts that have not ended, or whose end is not acknowledged.",
                readings.held_count,
            ),
            "tdp_agent_in_session": ("1 while a session is open.", readings.is_in_session),
            "tdp_agent_ready": ("1 while new work is taken.", readings.is_ready),
            "tdp_agent_disk_free_bytes": (
                "Free bytes where the state folder is.",
                readings.free_disk_bytes,
            ),
        }
        for name, (help_text, read) in shown.items():
            Gauge(name, help_text, registry=registry).set_function(_as_float(read))
        self._depths = Refreshed(self.outboxes.refresh, clock, DEPTH_AGE_S_MAX)

    async def render(self) -> bytes:
        """Return the exposition; TdpError when the journal cannot be read."""
        await self._depths.ensure()
        return generate_latest(self.registry)


def _as_float(read: Callable[[], float]) -> Callable[[], float]:
    return lambda: float(read())
