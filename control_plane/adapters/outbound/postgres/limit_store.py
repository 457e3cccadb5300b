"""Slots of limits in the caller's transaction: taken, freed, and whoever waits for them woken."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from control_plane.core.executions.outcomes import Aftermath
from control_plane.core.scheduling.limits import LimitBoard, LimitState, LimitUse
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database

_SQL: Final = NamedSql.load("control_plane.sql.queries", "limits.sql")
_DROPPED_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class TakenSlots:
    """That a holder, an attempt or an execution, starts with these slots."""

    holder_id: str
    uses: Sequence[LimitUse]


async def lock_limits(
    connection: Connection, uses: Iterable[LimitUse]
) -> tuple[LimitBoard, datetime | None]:
    """Lock the keys and read their slots; return also the time, None without a key."""
    counts: Mapping[str, int] = {one.identity: one.count for one in uses}
    if not counts:
        return LimitBoard(), None
    await connection.execute(_SQL.lock_keys, list(counts), list(counts.values()))
    rows = await connection.fetch(_SQL.read_slots, list(counts))
    states = {row["limit_key"]: LimitState(row["taken_at"], row["waiting_count"]) for row in rows}
    return LimitBoard(states), rows[0]["now"]


async def take_slots(connection: Connection, taken: Sequence[TakenSlots]) -> None:
    """Store that slots of locked keys are taken."""
    rows = [(use.identity, one.holder_id, use.per_s) for one in taken for use in one.uses]
    if rows:
        columns = [list(column) for column in zip(*rows, strict=True)]
        await connection.execute(_SQL.take_slots, *columns)


async def free_slots(connection: Connection, holder_ids: Sequence[str]) -> Aftermath:
    """Free what holders that are over held, and wake as many as may start now.

    The holders' executions are locked. Slots of rates stay until their time has passed.
    """
    if not holder_ids:
        return Aftermath()
    rows = await connection.fetch(_SQL.keys_held, holder_ids)
    keys = [row["limit_key"] for row in rows]
    if not keys:
        return Aftermath()
    await connection.fetch(_SQL.lock_known_keys, keys)
    await connection.execute(_SQL.free_slots, holder_ids)
    return await wake_waiting(connection, keys)


async def wake_waiting(connection: Connection, keys: Sequence[str]) -> Aftermath:
    """Make due, for each key, as many of those that wait for it as it has free slots."""
    if not keys:
        return Aftermath()
    woken = [row["execution_id"] for row in await connection.fetch(_SQL.wake_waiting, keys)]
    return Aftermath(
        execution_ids=frozenset(one for one in woken if one is not None),
        asks_again=None in woken,
    )


async def sweep_limits(database: Database) -> Aftermath:
    """Wake whoever waits for a free slot, should a wake-up be lost, and forget what is over."""

    async def run(connection: Connection) -> Aftermath:
        await connection.execute(_SQL.drop_expired_slots, _DROPPED_MAX)
        await connection.execute(_SQL.drop_idle_keys, _DROPPED_MAX)
        rows = await connection.fetch(_SQL.keys_with_waiting)
        return await wake_waiting(connection, [row["limit_key"] for row in rows])

    return await database.run_transaction(run)
