"""Counts both sides of the equations of conservation."""

from datetime import datetime
from typing import Final

from control_plane.core.conservation.domain import DIFFERING_IDS_MAX, Balance, Invariant
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Database

_SQL: Final = NamedSql.load("control_plane.sql.queries", "conservation.sql", "evidence.sql")


class PostgresConservationReader:
    """Implements ConservationReader."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def balance(self, invariant: Invariant, start: datetime, end: datetime) -> Balance:
        """Count both sides of what was created in the window."""
        window = (start, end) if invariant.windowed else ()
        row = await self._database.fetchrow(_SQL[f"conservation_{invariant.key}"], *window)
        assert row is not None, "aggregates always answer a row"
        return Balance(
            invariant,
            left_count=row["left_count"],
            right_count=row["right_count"],
            differing_ids=tuple(row["differing_ids"] or ())[:DIFFERING_IDS_MAX],
        )

    async def database_time(self) -> datetime:
        """Tell the time by the database's clock."""
        row = await self._database.fetchrow(_SQL.database_time)
        assert row is not None
        moment: datetime = row["now"]
        return moment
