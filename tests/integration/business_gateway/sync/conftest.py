"""The gateway's parts towards the platform, on a database of the test's own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from business_gateway.adapters.outbound.command_publisher import CommandPublisher
from business_gateway.adapters.outbound.control_plane import ControlPlaneClient
from business_gateway.adapters.outbound.postgres.callback_store import (
    PostgresNewsStore,
    QueuedInbox,
)
from business_gateway.adapters.outbound.postgres.command_store import (
    CommandOutboxStore,
    PostgresCommandOrders,
)
from business_gateway.adapters.outbound.postgres.stale_order_store import PostgresStaleOrders
from business_gateway.command_policy import command_policy
from business_gateway.core.callbacks.compensation import Compensation, CompensationConfig
from foundation.clock import ManualClock
from foundation.outbox.pump import OutboxPump
from foundation.postgres.pool import Database
from tests.integration.business_gateway.sync.desk import Desk
from tests.integration.business_gateway.sync.platform import (
    APPLICATION_ID,
    Platform,
    client_of,
    served,
)


@dataclass
class Heard:
    """What the parts announced."""

    announced: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)

    def announce(self, order_id: str) -> None:
        self.announced.append(order_id)

    def gap_seen(self, order_id: str) -> None:
        self.gaps.append(order_id)


@dataclass
class Sync:
    """One replica's parts, each moved by hand."""

    desk: Desk
    platform: Platform
    client: ControlPlaneClient
    inbox: QueuedInbox
    pump: OutboxPump
    compensation: Compensation
    clock: ManualClock
    heard: Heard

    async def make_due(self) -> None:
        """Let every open command be due, as if its back-off had passed."""
        await self.desk.database.fetch(
            "update command_outbox set available_at = tdp_now() where status = 'FAILED'"
        )

    async def fall_quiet(self, seconds: float = 120.0) -> None:
        """Let every order have been quiet for longer, and the next sweep be due."""
        await self.desk.database.fetch(
            "update orders set quiet_since = quiet_since - $1 * interval '1 second'", seconds
        )
        self.clock.advance(seconds)


@pytest.fixture
def platform() -> Platform:
    return Platform()


@pytest.fixture
async def sync(gateway_database: Database, platform: Platform) -> AsyncIterator[Sync]:
    """The parts against a platform that serves."""
    async with served(platform) as port, replica(gateway_database, platform, port) as parts:
        yield parts


@asynccontextmanager
async def replica(
    database: Database, platform: Platform, port: int, **config: float
) -> AsyncIterator[Sync]:
    """One replica's parts, its queue running, against a platform on a port."""
    heard, clock = Heard(), ManualClock()
    policy = command_policy(claim_ttl_s=30.0, backoff_cap_s=60.0)
    settings = CompensationConfig(APPLICATION_ID, **config)  # type: ignore[arg-type] # figures only
    async with client_of(port) as client, asyncio.TaskGroup() as group:
        inbox = QueuedInbox(PostgresNewsStore(database), heard, heard)
        group.create_task(inbox.batcher.run(), name="inbox")
        publisher = CommandPublisher(client, PostgresCommandOrders(database), inbox, heard)
        yield Sync(
            desk=Desk(database),
            platform=platform,
            client=client,
            inbox=inbox,
            pump=OutboxPump(CommandOutboxStore(database, policy, heard), publisher, policy, clock),
            compensation=Compensation(
                PostgresStaleOrders(database), client, inbox, clock, settings
            ),
            clock=clock,
            heard=heard,
        )
        await inbox.batcher.stop()
