"""Composes the half of the gateway that talks with the platform: commands out, news in."""

from dataclasses import dataclass
from random import Random
from typing import Final

from business_gateway.adapters.inbound.grpc_callback import (
    CALLBACK_METHODS,
    CallbackServicer,
    callback_service,
)
from business_gateway.adapters.inbound.loop_compensation import compensation_loop
from business_gateway.adapters.inbound.rest_callbacks import CALLBACKS_PATH, callback_router
from business_gateway.adapters.outbound.command_publisher import CommandPublisher
from business_gateway.adapters.outbound.console_desk import ConsoleDesk
from business_gateway.adapters.outbound.control_plane import ControlPlaneClient, ControlPlaneConfig
from business_gateway.adapters.outbound.postgres.callback_store import (
    PostgresNewsStore,
    QueuedInbox,
)
from business_gateway.adapters.outbound.postgres.command_store import (
    COMMAND_TABLE,
    CommandOutboxStore,
    PostgresCommandOrders,
)
from business_gateway.adapters.outbound.postgres.stale_order_store import PostgresStaleOrders
from business_gateway.command_policy import command_policy
from business_gateway.core.callbacks.application import CallbackIntake, CallbackRules
from business_gateway.core.callbacks.compensation import Compensation, CompensationConfig
from business_gateway.core.callbacks.envelope import BODY_BYTES_MAX
from business_gateway.core.orders.change_hub import OrderChangeHub
from business_gateway.parts import SyncParts
from business_gateway.settings import GatewaySettings
from foundation.clock import Clock
from foundation.ids import IdSource
from foundation.lifecycle import Service
from foundation.lifecycle.running import RunningService
from foundation.outbox.pump import OutboxPump
from foundation.postgres.pool import Database
from foundation.wakeup import Wakeup

RPC_TIMEOUT_S_MAX: Final = 15.0
GAP_GRACE_S_MAX: Final = 1.0


@dataclass(frozen=True, slots=True)
class CommandWakeup:
    """Implements CommandAnnouncer: wakes this replica's command pump."""

    wakeup: Wakeup

    def commands_added(self) -> None:
        """See CommandAnnouncer."""
        self.wakeup.set()


class _Gaps:
    """Passes gaps on to the compensation, which is made after the inbox that sees them."""

    def __init__(self) -> None:
        self.listener: Compensation | None = None

    def gap_seen(self, order_id: str) -> None:
        if self.listener is not None:
            self.listener.gap_seen(order_id)


def build_sync(
    settings: GatewaySettings,
    database: Database,
    _ids: IdSource,
    clock: Clock,
    changes: OrderChangeHub,
) -> SyncParts:
    """Return the services, entrances and announcers; nothing runs before they are started."""
    random = Random()  # noqa: S311 - spreads waits, guards no secret
    platform = ControlPlaneClient(_control_plane_config(settings))
    gaps = _Gaps()
    inbox = QueuedInbox(PostgresNewsStore(database), changes, gaps)
    compensation = Compensation(
        PostgresStaleOrders(database), platform, inbox, clock, _compensation_config(settings)
    )
    gaps.listener = compensation
    policy = command_policy(settings.claim_ttl_s, settings.backoff_cap_s)
    commands = CommandOutboxStore(database, policy, changes)
    publisher = CommandPublisher(platform, PostgresCommandOrders(database), inbox, changes)
    pump = OutboxPump(commands, publisher, policy, clock)
    intake = CallbackIntake(_callback_rules(settings), inbox, clock)
    services: tuple[Service, ...] = (
        platform,
        RunningService("callback-inbox", inbox.batcher),
        RunningService("command-pump", pump),
        compensation_loop(
            compensation,
            random,
            sleep_s_max=max(settings.quiet_order_s, settings.sweep_interval_s),
            backoff_cap_s=min(settings.backoff_cap_s, settings.sweep_interval_s),
        ),
    )
    return SyncParts(
        evidence=platform,
        commands=CommandWakeup(pump.wakeup),
        desk=ConsoleDesk(platform),
        services=services,
        routers=(callback_router(intake),),
        grpc_services=(callback_service(CallbackServicer(intake)),),
        open_methods=(CALLBACK_METHODS,),
        body_bytes_max={CALLBACKS_PATH: BODY_BYTES_MAX},
        outboxes={COMMAND_TABLE: (commands, pump)},
    )


def _control_plane_config(settings: GatewaySettings) -> ControlPlaneConfig:
    return ControlPlaneConfig(
        address=settings.control_plane_address,
        api_key=settings.control_plane_api_key.get_secret_value(),
        tls=settings.control_plane_tls,
        ca_path=settings.control_plane_ca_path,
        # Below the time-out of a publish, so that a slow call fails alone.
        timeout_s=min(RPC_TIMEOUT_S_MAX, settings.claim_ttl_s / 2),
    )


def _compensation_config(settings: GatewaySettings) -> CompensationConfig:
    return CompensationConfig(
        application_id=settings.application_id,
        quiet_s=settings.quiet_order_s,
        sweep_interval_s=settings.sweep_interval_s,
        gap_grace_s=min(GAP_GRACE_S_MAX, settings.sweep_interval_s),
        orders_max=settings.sweep_orders_max,
    )


def _callback_rules(settings: GatewaySettings) -> CallbackRules:
    return CallbackRules(
        application_id=settings.application_id,
        secrets=settings.callback_secrets,
        drop=settings.drop_callbacks,
    )
