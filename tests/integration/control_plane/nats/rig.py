"""One replica's wake-up path over a real NATS: pump, publisher, consumer, engine, sweep."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random

from nats.js.client import JetStreamContext

from control_plane.adapters.inbound.loop_engine import engine_loop
from control_plane.adapters.inbound.loop_engine_sweep import engine_sweep_loop
from control_plane.adapters.inbound.nats_engine_consumer import EngineConsumer
from control_plane.adapters.outbound.nats_connection import NatsConnection
from control_plane.adapters.outbound.nats_publisher import JetStreamPublisher
from control_plane.adapters.outbound.nats_wakeups import NatsWakeups
from control_plane.policies import event_policy
from foundation.lifecycle.service import Service
from foundation.outbox.postgres_store import PostgresOutboxStore
from foundation.outbox.pump import OutboxPump
from foundation.postgres.pool import Database
from tests.integration.control_plane.engine.plant import CLOCK, IDS, Plant

STREAM_BYTES_MAX = 8 * 1024 * 1024
_DICE = Random(11)
_PATIENCE_S = 30.0
_GLANCE_S = 0.02


class Rig:
    """A replica that hears of work by NATS; a test runs as much of it as it wants."""

    def __init__(self, database: Database, url: str) -> None:
        self.plant = Plant(database)
        self.hints = self.plant.hints
        self.connection = NatsConnection(url, "test")
        self.consumer = EngineConsumer(
            self.connection,
            self.plant.driver,
            self.hints,
            CLOCK,
            stream_bytes_max=STREAM_BYTES_MAX,
        )
        self.publisher = JetStreamPublisher(self.connection, self.consumer.recheck)
        self.nodes_woken: list[str] = []
        self.wakeups = NatsWakeups(
            self.connection, self.hints, self.nodes_woken.extend, replica_id=IDS.new_id()
        )
        policy = event_policy(60.0, 5.0)
        self.pump = OutboxPump(
            PostgresOutboxStore(database, policy, table="outbox_events"),
            self.publisher,
            policy,
            CLOCK,
            self.hints.outbox,
        )

    @property
    def jetstream(self) -> JetStreamContext:
        """JetStream through the rig's own connection."""
        context: JetStreamContext = self.connection.client.jetstream()
        return context

    def engine(self) -> list[Service]:
        """Return the engine's loop and sweep."""
        return [
            engine_loop(self.plant.driver, self.hints, _DICE),
            engine_sweep_loop(self.plant.driver, _DICE, interval_s=1.0),
        ]

    async def ready(self) -> None:
        """Wait until stream and consumer are there."""
        async with asyncio.timeout(_PATIENCE_S):
            await self.consumer.checked.wait()


class PumpService:
    """The pump as a service."""

    name = "pump"

    def __init__(self, pump: OutboxPump) -> None:
        self._pump = pump

    async def start(self) -> None:
        """Nothing has to be ready."""

    async def run(self) -> None:
        """Run the pump."""
        await self._pump.run()

    async def stop(self) -> None:
        """Stop the pump."""
        await self._pump.stop()


@asynccontextmanager
async def running(*services: Service) -> AsyncIterator[None]:
    """Run services around a test's body, and stop them in reverse order."""
    async with asyncio.TaskGroup() as group:
        for service in services:
            await service.start()
            group.create_task(service.run(), name=service.name)
        try:
            yield
        finally:
            for service in reversed(services):
                await service.stop()


async def until(holds: Callable[[], Awaitable[bool]], *, what: str) -> None:
    """Wait for a state that another process or the database reaches."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            # The state is another process's, which announces nothing.
            while not await holds():  # noqa: ASYNC110
                await asyncio.sleep(_GLANCE_S)
    except TimeoutError:
        raise AssertionError(f"it never came to it that {what}") from None


def statuses_are(plant: Plant, ids: Sequence[str], status: str) -> Callable[[], Awaitable[bool]]:
    """Return whether all of these executions have the status."""

    async def holds() -> bool:
        rows = await plant.database.fetch(
            "select 1 from executions where execution_id = any($1::uuid[]) and status = $2",
            ids,
            status,
        )
        return len(rows) == len(ids)

    return holds
