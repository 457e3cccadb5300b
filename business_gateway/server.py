"""Serves one replica: opens it, runs its services until asked to stop, closes it."""

from importlib.resources import files
from pathlib import Path

import structlog

from business_gateway.bootstrap import Gateway
from business_gateway.settings import GatewaySettings
from business_gateway.sync_bootstrap import build_sync
from foundation.lifecycle import StopRequest, Supervision, run_services
from foundation.postgres.migrations import Migrations

_log = structlog.stdlib.get_logger(__name__)


def migrations(settings: GatewaySettings) -> Migrations:
    """Return the migrations of the gateway's database."""
    folder = Path(str(files("business_gateway.sql").joinpath("migrations")))
    return Migrations(folder, settings.database_dsn.get_secret_value())


async def serve(settings: GatewaySettings, stop_request: StopRequest) -> None:
    """Serve until asked to stop; raises what a service died of."""
    await migrations(settings).check()
    gateway = Gateway(settings, build_sync)
    try:
        await gateway.open()
        supervision = Supervision(
            shutdown_grace_s=settings.shutdown_grace_s,
            on_ready=lambda: _log.info(
                "gateway_ready",
                rest_port=gateway.rest_server.port,
                grpc_port=gateway.grpc_server.port,
            ),
            clock=gateway.clock,
        )
        await run_services(gateway.services(), stop_request, supervision)
    finally:
        await gateway.close()
