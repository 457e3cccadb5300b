"""Composes what operators run a control plane by: metrics, conservation, retention."""

from random import Random

from prometheus_client import CollectorRegistry

from control_plane.adapters.inbound.loop_retention import retention_loop
from control_plane.adapters.inbound.metrics import ControlPlaneMeasures, ControlPlaneMetrics
from control_plane.adapters.outbound.postgres.conservation_reader import (
    PostgresConservationReader,
)
from control_plane.adapters.outbound.postgres.gauge_reader import PostgresGaugeReader
from control_plane.adapters.outbound.postgres.retention_store import PostgresRetentionStore
from control_plane.core.conservation.application import Conservation
from control_plane.core.nodes.session import LiveSessions
from control_plane.core.retention.application import Retention
from control_plane.policies import event_policy
from control_plane.settings import ControlPlaneSettings
from foundation.clock import Clock
from foundation.lifecycle import Service
from foundation.metrics.endpoint import MetricsEndpoint
from foundation.outbox.postgres_store import PostgresOutboxStore
from foundation.postgres.pool import Database


class Operations:
    """Parts that look at the work of the others; `services` run beside them."""

    def __init__(
        self,
        settings: ControlPlaneSettings,
        database: Database,
        live: LiveSessions,
        clock: Clock,
        random: Random,
    ) -> None:
        registry = CollectorRegistry()
        self.measures = ControlPlaneMeasures(registry)
        self.conservation = Conservation(
            PostgresConservationReader(database), settings.retention_ages.finished
        )
        self.metrics = ControlPlaneMetrics(
            registry, PostgresGaugeReader(database), self.conservation, live, clock
        )
        self._retention = self._retention_of(settings, database, clock)
        self._random = random
        port = settings.metrics_port
        self.endpoint = (
            None
            if port is None
            else MetricsEndpoint(settings.metrics_host, port, self.metrics.render)
        )

    def services(self) -> list[Service]:
        """Return the loop of retention, and the endpoint where one is wanted."""
        endpoint = [] if self.endpoint is None else [self.endpoint]
        return [retention_loop(self._retention, self._random), *endpoint]

    @staticmethod
    def _retention_of(
        settings: ControlPlaneSettings, database: Database, clock: Clock
    ) -> Retention:
        wake_ups = PostgresOutboxStore(
            database,
            event_policy(settings.claim_ttl_s, settings.backoff_cap_s),
            table="outbox_events",
        )
        store = PostgresRetentionStore(database, wake_ups)
        return Retention(store, settings.retention_ages, clock, batch_size=settings.retention_batch)
