"""The outbox of a table in a local SQLite file, for the one process that owns the file."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID, uuid4

from foundation.clock import Clock
from foundation.outbox.model import Claimed, Mark, OutboxDepth, OutboxRow, OutboxStatus
from foundation.outbox.policy import OutboxPolicy
from foundation.postgres.named_sql import NamedSql
from foundation.sqlite.database import LocalDatabase

_COMMON_COLUMNS: Final = frozenset(
    {
        "outbox_id", "ordering_key", "position", "destination", "payload", "status", "attempts",
        "claims", "claim_id", "available_at", "created_at", "published_at", "last_error", "held",
        "redriven",
    }
)  # fmt: skip


class SqliteOutboxStore:
    """OutboxStore and OutboxAdministration over a table with the columns of columns_sqlite.sql.

    Due times are the clock's monotonic seconds: call `recover` once after opening the file.
    Delivered rows are removed as they are marked, unless `keep_published`.
    """

    def __init__(
        self,
        database: LocalDatabase,
        policy: OutboxPolicy,
        clock: Clock,
        *,
        table: str,
        keep_published: bool = False,
        new_claim_id: Callable[[], UUID] = uuid4,
    ) -> None:
        """Load the statements for `table`, a plain lower-case word."""
        self._database = database
        self._policy = policy
        self._clock = clock
        self._keep_published = keep_published
        self._new_claim_id = new_claim_id
        self._sql = NamedSql.load(
            "foundation.outbox.sql", "sqlite.sql", identifiers={"table": table}
        )

    async def recover(self) -> int:
        """Make all open rows due, claimed ones too: whoever held them is gone; their number."""
        return await self._change(self._sql.recover, {})

    async def claim(self, limit: int) -> Claimed:
        """See OutboxStore."""
        values = {
            "row_limit": limit,
            "claim_id": str(self._new_claim_id()),
            "claim_ttl_s": self._policy.claim_ttl_s,
            "claims_max": self._policy.claims_max,
            "dead_blocks": self._policy.dead_blocks,
        }

        def claim(connection: sqlite3.Connection) -> list[sqlite3.Row]:
            return connection.execute(self._sql.claim, self._timed(values)).fetchall()

        records = await self._database.transaction(claim)
        rows = [_row(one) for one in records if one["status"] == OutboxStatus.PUBLISHING]
        aside = [one for one in records if one["status"] == OutboxStatus.QUARANTINED]
        rows.sort(key=lambda row: row.position)
        return Claimed(tuple(rows), tuple(UUID(one["outbox_id"]) for one in aside))

    async def mark(self, marks: Sequence[Mark]) -> frozenset[UUID]:
        """See OutboxStore."""
        if not marks:
            return frozenset()

        def mark_all(connection: sqlite3.Connection) -> frozenset[UUID]:
            return frozenset(one.outbox_id for one in marks if self._mark(connection, one))

        return await self._database.transaction(mark_all)

    async def next_due_in_s(self) -> float | None:
        """See OutboxStore."""
        values = {"dead_blocks": self._policy.dead_blocks}

        def ask(connection: sqlite3.Connection) -> float | None:
            record = connection.execute(self._sql.next_due, self._timed(values)).fetchone()
            return None if record is None else float(record["due_in_s"])

        return await self._database.read(ask)

    async def release(self, destination: str) -> int:
        """See OutboxStore."""
        return await self._change(self._sql.release, {"destination": destination})

    async def redrive(self, outbox_ids: Sequence[UUID]) -> frozenset[UUID]:
        """See OutboxAdministration."""

        def redrive_all(connection: sqlite3.Connection) -> frozenset[UUID]:
            def redrive(outbox_id: UUID) -> bool:
                values = self._timed({"outbox_id": str(outbox_id)})
                return connection.execute(self._sql.redrive, values).rowcount == 1

            return frozenset(one for one in outbox_ids if redrive(one))

        return await self._database.transaction(redrive_all)

    async def depth(self) -> OutboxDepth:
        """See OutboxAdministration."""

        def count(connection: sqlite3.Connection) -> dict[str, object]:
            return dict(connection.execute(self._sql.depth).fetchone())

        counts = await self._database.read(count)
        oldest = counts.pop("oldest_open_created_at")
        age_s = None
        if oldest is not None:
            created_at = datetime.fromisoformat(str(oldest))
            age_s = (self._clock.now() - created_at).total_seconds()
        return OutboxDepth(
            **{name: int(str(number)) for name, number in counts.items()}, oldest_open_age_s=age_s
        )

    async def remove_published(self, older_than_s: float, limit: int) -> int:
        """See OutboxAdministration."""
        before = self._clock.now() - timedelta(seconds=older_than_s)
        values = {"before": before.isoformat(), "row_limit": limit}
        return await self._change(self._sql.remove_published, values)

    def _mark(self, connection: sqlite3.Connection, mark: Mark) -> bool:
        removes = mark.status is OutboxStatus.PUBLISHED and not self._keep_published
        statement = self._sql.remove_delivered if removes else self._sql.mark
        values = {
            "outbox_id": str(mark.outbox_id),
            "claim_id": str(mark.claim_id),
            "status": mark.status.value,
            "attempts_added": mark.attempts_added,
            "due_in_s": mark.due_in_s,
            "held": mark.held,
            "error": mark.error,
            "wall_time": self._clock.now().isoformat(),
        }
        return connection.execute(statement, self._timed(values)).rowcount == 1

    async def _change(self, statement: str, values: Mapping[str, object]) -> int:
        return await self._database.transaction(
            lambda connection: connection.execute(statement, self._timed(values)).rowcount
        )

    def _timed(self, values: Mapping[str, object]) -> dict[str, object]:
        return {**values, "now_s": self._clock.monotonic()}


def _row(record: sqlite3.Row) -> OutboxRow:
    return OutboxRow(
        outbox_id=UUID(record["outbox_id"]),
        ordering_key=record["ordering_key"],
        position=record["position"],
        destination=record["destination"],
        payload=record["payload"],
        attempts=record["attempts"],
        claims=record["claims"],
        claim_id=UUID(record["claim_id"]),
        created_at=datetime.fromisoformat(record["created_at"]),
        redriven=bool(record["redriven"]),
        extra={key: record[key] for key in record.keys() if key not in _COMMON_COLUMNS},  # noqa: SIM118 - iterating a sqlite3.Row gives its values
    )
