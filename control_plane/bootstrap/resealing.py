"""Composes and runs the errand that seals secrets again with the newest key."""

import structlog

from control_plane.adapters.outbound.postgres.sealed_secrets import PostgresSealedSecrets
from control_plane.core.applications.resealing import reseal
from control_plane.settings import ControlPlaneSettings
from foundation.postgres.pool import Database, DatabaseConfig

_log = structlog.stdlib.get_logger(__name__)


async def reseal_secrets(settings: ControlPlaneSettings) -> None:
    """Seal again what older keys sealed, and say in the log whether something still needs them."""
    config = DatabaseConfig(
        dsn=settings.database_dsn.get_secret_value(), application_name="tdp-reseal"
    )
    async with Database(config) as database:
        done = await reseal(PostgresSealedSecrets(database), settings.key_ring)
    _log.info(
        "secrets_resealed",
        key_version=settings.key_ring.current,
        secrets=done.secrets,
        grants_left=done.grants_left,
        older_keys_needed=bool(done.grants_left),
    )
