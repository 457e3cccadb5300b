"""What a control plane shows to Prometheus while it works."""

import asyncio
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from control_plane.adapters.inbound.metrics import ControlPlaneMeasures, ControlPlaneMetrics
from control_plane.adapters.outbound.postgres.conservation_reader import (
    PostgresConservationReader,
)
from control_plane.adapters.outbound.postgres.gauge_reader import PostgresGaugeReader
from control_plane.core.conservation.application import Conservation
from control_plane.core.nodes.session import LiveSessions
from control_plane.core.wakeups import LocalHints
from foundation.clock import ManualClock
from foundation.postgres.pool import Database
from tests.fixtures.eventually import eventually
from tests.integration.control_plane.nodes.world import CAPABILITY, World, success
from tests.integration.control_plane.replica import Replica
from tests.integration.control_plane.services.errors import task_request

Samples = dict[tuple[str, ...], float]


def samples_of(text: bytes) -> Samples:
    """Each sample's value by its name and the values of its labels."""
    return {
        (one.name, *one.labels.values()): one.value
        for family in text_string_to_metric_families(text.decode())
        for one in family.samples
    }


async def test_gauges_count_what_is_open(control_database: Database) -> None:
    """Queues, nodes, executions and attempts are counted; a minute-old reading is repeated."""
    world = World(control_database)
    node_id = await world.add_node()
    attempt = await world.new_attempt(node_id)
    await world.add_execution()
    registry, clock = CollectorRegistry(), ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    measures = ControlPlaneMeasures(registry)
    measures.batch("inbox", 3)
    metrics = ControlPlaneMetrics(
        registry,
        PostgresGaugeReader(control_database),
        Conservation(PostgresConservationReader(control_database)),
        LiveSessions(LocalHints()),
        clock,
    )
    shown = samples_of(await metrics.render())
    assert shown["tdp_queue_requests", CAPABILITY, "1.0.0"] == 1
    assert shown["tdp_queue_oldest_age_seconds", CAPABILITY, "1.0.0"] >= 0
    assert shown["tdp_executions_live", "RUNNING"] == 2
    assert shown["tdp_node_slots", "ACTIVE", "SILENT"] == 8
    assert shown["tdp_node_slots_used", "ACTIVE", "SILENT"] == 1
    assert shown["tdp_attempts_live",] == 1
    assert shown["tdp_node_commands_open",] == 1
    assert shown["tdp_batch_items_count", "inbox"] == 1
    assert shown["tdp_conservation_difference", "slots"] == 0
    await world.inbox.accept([success(attempt)])
    await world.rows("update nodes set running_count = 3")
    assert samples_of(await metrics.render())["tdp_attempts_live",] == 1
    clock.advance(60.0)
    shown = samples_of(await metrics.render())
    assert shown["tdp_attempts_live",] == 0
    assert shown["tdp_conservation_difference", "slots"] == 3


async def test_a_replica_measures_its_work(replica: Replica) -> None:
    """The endpoint of a running replica shows its advances and its outboxes."""
    await replica.publish()
    _, key = await replica.register("app")
    await replica.tasks.CreateTask(task_request("1"), metadata=key)

    async def advanced() -> float | None:
        return samples_of(await scraped(replica)).get(("tdp_batch_items_count", "advance"))

    await eventually(advanced)
    shown = samples_of(await scraped(replica))
    assert shown["tdp_node_sessions",] == 0
    for outbox in ("outbox_events", "callback_deliveries", "artifact_commits"):
        assert shown["tdp_outbox_rows", outbox, "DEAD"] == 0
        assert ("tdp_outbox_outcomes_total", outbox, "PUBLISHED") in shown


async def scraped(replica: Replica) -> bytes:
    endpoint = replica.plane.operations.endpoint
    assert endpoint is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n\r\n")[2]
