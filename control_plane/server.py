"""Serves one replica: opens it, runs its services until asked to stop, closes it."""

from importlib.resources import files
from pathlib import Path

import structlog

from control_plane.bootstrap import ControlPlane
from control_plane.settings import ControlPlaneSettings
from control_plane.version import VERSION
from foundation.lifecycle import StopRequest, Supervision, run_services
from foundation.postgres.migrations import Migrations

_log = structlog.stdlib.get_logger(__name__)


def migrations(settings: ControlPlaneSettings) -> Migrations:
    """Return the migrations of the control plane's database."""
    folder = Path(str(files("control_plane.sql").joinpath("migrations")))
    return Migrations(folder, settings.database_dsn.get_secret_value())


async def serve(settings: ControlPlaneSettings, stop_request: StopRequest) -> None:
    """Serve until asked to stop; raises what a service died of."""
    await migrations(settings).check()
    replica = ControlPlane(settings)
    try:
        await replica.open()
        supervision = Supervision(
            shutdown_grace_s=settings.shutdown_grace_s,
            on_ready=lambda: _log.info(
                "control_plane_ready",
                version=VERSION,
                replica_id=replica.replica_id,
                grpc_port=replica.server.port,
            ),
            clock=replica.clock,
        )
        await run_services(replica.services(), stop_request, supervision)
    finally:
        await replica.close()
