"""docs/metrics.md lists what the processes register, no more and no less."""

import re
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry

from business_gateway.adapters.inbound.metrics import GatewayMetrics
from business_gateway.adapters.outbound.postgres.order_counter import PostgresOrderCounter
from control_plane.adapters.inbound.metrics import ControlPlaneMeasures, ControlPlaneMetrics
from control_plane.adapters.outbound.postgres.conservation_reader import (
    PostgresConservationReader,
)
from control_plane.adapters.outbound.postgres.gauge_reader import PostgresGaugeReader
from control_plane.core.conservation.application import Conservation
from control_plane.core.nodes.session import LiveSessions
from control_plane.core.wakeups import LocalHints
from foundation.clock import ManualClock
from foundation.metrics.outboxes import OutboxMetrics
from foundation.postgres.pool import Database, DatabaseConfig
from node_agent.adapters.inbound.metrics import AgentMetrics, AgentReadings
from tests.unit.docs.documents import ROOT, text_of

_PAGE = ROOT / "docs" / "metrics.md"
_ROW = re.compile(r"^\| `(?P<name>tdp_\w+)` \| (?P<type>\w+) \|", re.MULTILINE)
_CLOCK = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
# Never opened: a registry is looked at, nothing is asked.
_DATABASE = Database(DatabaseConfig(dsn="", application_name="test"))


def _listed(title: str) -> dict[str, str]:
    section = text_of(_PAGE).partition(f"## {title}\n")[2].partition("\n## ")[0]
    return {row["name"]: row["type"] for row in _ROW.finditer(section)}


def _registered(registry: CollectorRegistry) -> dict[str, str]:
    suffix = {"counter": "_total"}
    return {f"{one.name}{suffix.get(one.type, '')}": one.type for one in registry.collect()}


def _every_process() -> dict[str, str]:
    registry = CollectorRegistry()
    OutboxMetrics(registry)
    return _registered(registry)


def test_what_every_process_tells_is_listed() -> None:
    """Outboxes are measured alike everywhere."""
    assert _listed("Every process") == _every_process()


def test_the_control_planes_metrics_are_listed() -> None:
    """Names and types of the page are those of the registry."""
    registry = CollectorRegistry()
    ControlPlaneMeasures(registry)
    ControlPlaneMetrics(
        registry,
        PostgresGaugeReader(_DATABASE),
        Conservation(PostgresConservationReader(_DATABASE)),
        LiveSessions(LocalHints()),
        _CLOCK,
    )
    assert _listed("Control plane") | _every_process() == _registered(registry)


def test_the_gateways_metrics_are_listed() -> None:
    """Names and types of the page are those of the registry."""
    metrics = GatewayMetrics(CollectorRegistry(), PostgresOrderCounter(_DATABASE), _CLOCK)
    assert _listed("Business gateway") | _every_process() == _registered(metrics.registry)


def test_the_agents_metrics_are_listed() -> None:
    """Names and types of the page are those of the registry."""
    readings = AgentReadings(
        slot_count=lambda: 4,
        unfinished_count=lambda: 1,
        held_count=lambda: 2,
        is_in_session=lambda: True,
        is_ready=lambda: False,
        free_disk_bytes=lambda: 5,
    )
    metrics = AgentMetrics(CollectorRegistry(), readings, _CLOCK)
    assert _listed("Node agent") | _every_process() == _registered(metrics.registry)
    shown = {
        sample.name: sample.value for one in metrics.registry.collect() for sample in one.samples
    }
    assert shown["tdp_agent_slots_used"] == 1
    assert shown["tdp_agent_in_session"] == 1
    assert shown["tdp_agent_ready"] == 0
