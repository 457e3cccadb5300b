"""The outbox of a table in PostgreSQL; one statement and one round trip per operation."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from uuid import UUID, uuid4

from foundation.outbox.model import Claimed, Mark, OutboxDepth, OutboxRow, OutboxStatus
from foundation.outbox.policy import OutboxPolicy
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

# A hook in the marking transaction; it gets the marks that took effect.
MarkHook = Callable[[Connection, Sequence[Mark]], Awaitable[None]]

_DEFERRAL_INTERVAL_S: Final = 5.0
_DEFERRED_ROWS_MAX: Final = 5_000
_COMMON_COLUMNS: Final = frozenset(
    {
        "outbox_id", "ordering_key", "position", "destination", "payload", "status", "attempts",
        "claims", "claim_id", "available_at", "claim_expires_at", "created_at", "published_at",
        "last_error", "held", "redriven",
    }
)  # fmt: skip


class PostgresOutboxStore:
    """OutboxStore and OutboxAdministration over a table with the columns of columns.sql.

    `after_mark`, when given, runs in the transaction that marks, for owners whose own state
    must change with a row's (a DEAD command makes its order need attention). With
    `after_statuses` it hears of batches with such marks only, so that others stay one statement.
    """

    def __init__(
        self,
        database: Database,
        policy: OutboxPolicy,
        *,
        table: str,
        after_mark: MarkHook | None = None,
        after_statuses: frozenset[OutboxStatus] = frozenset(OutboxStatus),
        new_claim_id: Callable[[], UUID] = uuid4,
    ) -> None:
        """Load the statements for `table`, a plain lower-case word."""
        self._database = database
        self._policy = policy
        self._after_mark = after_mark
        self._after_statuses = after_statuses
        self._new_claim_id = new_claim_id
        self._next_deferral_at_s = 0.0
        self._sql = NamedSql.load(
            "foundation.outbox.sql", "postgres.sql", identifiers={"table": table}
        )

    async def claim(self, limit: int) -> Claimed:
        """See OutboxStore."""
        policy = self._policy
        await self._defer_followers()
        records = await self._database.fetch(
            self._sql.claim,
            limit,
            self._new_claim_id(),
            policy.claim_ttl_s,
            policy.claims_max,
            policy.dead_blocks,
        )
        rows = [_row(one) for one in records if one["status"] == OutboxStatus.PUBLISHING]
        aside = (one["outbox_id"] for one in records if one["status"] == OutboxStatus.QUARANTINED)
        return Claimed(tuple(sorted(rows, key=_claim_order)), tuple(aside))

    async def mark(self, marks: Sequence[Mark]) -> frozenset[UUID]:
        """See OutboxStore."""
        if not marks:
            return frozenset()
        told = any(one.status in self._after_statuses for one in marks)
        if self._after_mark is None or not told:
            records = await self._database.fetch(self._sql.mark, *_columns(marks))
            return frozenset(one["outbox_id"] for one in records)
        return await self._database.run_transaction(lambda one: self._mark_and_tell(one, marks))

    async def next_due_in_s(self) -> float | None:
        """See OutboxStore."""
        record = await self._database.fetchrow(self._sql.next_due, self._policy.dead_blocks)
        return None if record is None else float(record["due_in_s"])

    async def release(self, destination: str) -> int:
        """See OutboxStore."""
        # Twice: the first waits for relays that now defer rows behind the held ones, and only
        # the second can see what they deferred.
        first = await self._database.fetch(self._sql.release, destination)
        return len(first) + len(await self._database.fetch(self._sql.release, destination))

    async def redrive(self, outbox_ids: Sequence[UUID]) -> frozenset[UUID]:
        """See OutboxAdministration."""
        records = await self._database.fetch(self._sql.redrive, list(outbox_ids))
        return frozenset(one["outbox_id"] for one in records)

    async def depth(self) -> OutboxDepth:
        """See OutboxAdministration."""
        record = await self._database.fetchrow(self._sql.depth)
        assert record is not None
        return OutboxDepth(**dict(record))

    async def remove_published(self, older_than_s: float, limit: int) -> int:
        """See OutboxAdministration."""
        return len(await self._database.fetch(self._sql.remove_published, older_than_s, limit))

    async def _defer_followers(self) -> None:
        """Keep claims quick where many rows wait behind failed ones, as for a dead endpoint."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._next_deferral_at_s:
            return
        records = await self._database.fetch(
            self._sql.defer_followers, _DEFERRED_ROWS_MAX, self._policy.dead_blocks
        )
        if len(records) < _DEFERRED_ROWS_MAX:
            self._next_deferral_at_s = now_s + _DEFERRAL_INTERVAL_S

    async def _mark_and_tell(
        self, connection: Connection, marks: Sequence[Mark]
    ) -> frozenset[UUID]:
        assert self._after_mark is not None
        records = await connection.fetch(self._sql.mark, *_columns(marks))
        applied = frozenset(one["outbox_id"] for one in records)
        await self._after_mark(connection, [one for one in marks if one.outbox_id in applied])
        return applied


def _columns(marks: Sequence[Mark]) -> tuple[list[object], ...]:
    return (
        [one.outbox_id for one in marks],
        [one.claim_id for one in marks],
        [one.status.value for one in marks],
        [one.attempts_added for one in marks],
        [one.due_in_s for one in marks],
        [one.held for one in marks],
        [one.error for one in marks],
    )


def _row(record: Record) -> OutboxRow:
    return OutboxRow(
        outbox_id=record["outbox_id"],
        ordering_key=record["ordering_key"],
        position=record["position"],
        destination=record["destination"],
        payload=record["payload"],
        attempts=record["attempts"],
        claims=record["claims"],
        claim_id=record["claim_id"],
        created_at=record["created_at"],
        redriven=record["redriven"],
        extra={key: value for key, value in record.items() if key not in _COMMON_COLUMNS},
    )


def _claim_order(row: OutboxRow) -> tuple[object, int]:
    return row.created_at, row.position
