"""Composes what operators run a control plane by: metrics, conservation, retention."""

from prometheus_client import CollectorRegistry

from control_plane.adapters.inbound.metrics import ControlPlaneMeasures, ControlPlaneMetrics
from control_plane.adapters.outbound.postgres.conservation_reader import (
    PostgresConservationReader,
)
from control_plane.adapters.outbound.postgres.gauge_reader import PostgresGaugeReader
from control_plane.core.conservation.application import Conservation
from control_plane.core.nodes.session import LiveSessions
from control_plane.settings import ControlPlaneSettings
from foundation.clock import Clock
from foundation.lifecycle import Service
from foundation.metrics.endpoint import MetricsEndpoint
from foundation.postgres.pool import Database


class Operations:
    """Parts that look at the work of the others; `services` run beside them."""

    def __init__(
        self,
        settings: ControlPlaneSettings,
        database: Database,
        live: LiveSessions,
        clock: Clock,
    ) -> None:
        registry = CollectorRegistry()
        self.measures = ControlPlaneMeasures(registry)
        self.conservation = Conservation(PostgresConservationReader(database))
        self.metrics = ControlPlaneMetrics(
            registry, PostgresGaugeReader(database), self.conservation, live, clock
        )

        port = settings.metrics_port
        self.endpoint = (
            None
            if port is None
            else MetricsEndpoint(settings.metrics_host, port, self.metrics.render)
        )

    def services(self) -> list[Service]:
        """Return the endpoint, where one is wanted."""
        return [] if self.endpoint is None else [self.endpoint]
