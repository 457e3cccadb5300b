"""What the half of the gateway that talks with the platform gives to the other half."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fastapi import APIRouter

from business_gateway.core.console.ports import PlatformDesk
from business_gateway.core.orders.ports import CommandAnnouncer, EvidenceSource
from foundation.grpc.server import GrpcService
from foundation.lifecycle import Service
from foundation.outbox.postgres_store import PostgresOutboxStore
from foundation.outbox.pump import OutboxPump


@dataclass(frozen=True, slots=True)
class SyncParts:
    """Made by `business_gateway.sync_bootstrap.build_sync`, composed by bootstrap.

    `services` run with the process, started in order before the servers. `open_methods` are
    gRPC methods or prefixes that check their caller themselves (callbacks by signature).
    `body_bytes_max` bounds bodies by REST path where the default does not fit. `outboxes` are
    measured, by name.
    """

    evidence: EvidenceSource
    commands: CommandAnnouncer
    desk: PlatformDesk
    services: Sequence[Service] = ()
    routers: Sequence[APIRouter] = ()
    grpc_services: Sequence[GrpcService] = ()
    open_methods: Sequence[str] = ()
    body_bytes_max: Mapping[str, int] = field(default_factory=dict)
    outboxes: Mapping[str, tuple[PostgresOutboxStore, OutboxPump]] = field(default_factory=dict)
