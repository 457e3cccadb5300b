"""The sealed secrets of applications on PostgreSQL, for sealing them again."""

from collections.abc import Sequence
from typing import Final

from control_plane.core.applications.application import (
    callback_secret_place,
    provider_secret_place,
)
from control_plane.core.applications.resealing import SealedSecret
from foundation.ids import NIL_ID
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Database

_SQL: Final = NamedSql.load("control_plane.sql.queries", "secrets.sql")


class PostgresSealedSecrets:
    """Implements SealedSecrets."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, after_id: str, limit: int) -> Sequence[SealedSecret]:
        """Read the secrets of up to `limit` applications after an id, by ascending id."""
        rows = await self._database.fetch(_SQL.sealed_secrets, after_id or NIL_ID, limit)
        found = []
        for row in rows:
            for column, place in (
                ("callback_secret", callback_secret_place),
                ("resource_provider_secret", provider_secret_place),
            ):
                if row[column] is not None:
                    found.append(SealedSecret(place(row["application_id"]), row[column]))
        return found

    async def replace(self, secret: SealedSecret, sealed: bytes) -> bool:
        """Keep the secret as `sealed`; False where another one was set meanwhile."""
        rows = await self._database.fetch(
            _SQL.replace_secret, secret.place.row, secret.place.column, secret.sealed, sealed
        )
        return bool(rows)

    async def live_grants_without(self, mark: bytes) -> int:
        """Count the grants that still last and do not begin with the current key's mark."""
        (row,) = await self._database.fetch(_SQL.live_grants_without, mark)
        return int(row["found"])
