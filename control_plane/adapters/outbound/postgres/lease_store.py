"""Leases in PostgreSQL: one statement a tick, expiry that repeats its predicate under the lock."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import structlog

from control_plane.adapters.outbound.postgres.outcome_writer import OutcomeWriter
from control_plane.core.executions.attempt_state import StopReason
from control_plane.core.executions.domain import ExecutionId, StepKey, StepRef
from control_plane.core.executions.outcomes import Aftermath, StopOrder, expired
from control_plane.core.nodes.domain import (
    ExpiryRound,
    HeartbeatList,
    ProgressMark,
    SessionRef,
    TickResult,
    lease,
)
from control_plane.core.nodes.leases import LeaseFigures, ListedLease
from foundation.batching import strikes_whole_batch
from foundation.failpoints import failpoint
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "leases.sql", "outcomes.sql")
EXPIRY_BATCH_SIZE_MAX: Final = 200
_log = structlog.stdlib.get_logger(__name__)


class PostgresLeaseStore:
    """Implements LeaseStore.

    `heartbeats` is the reserved, small pool on which ticks run, so that a loaded process still
    renews; everything else uses `database`.
    """

    def __init__(
        self,
        database: Database,
        heartbeats: Database,
        outcomes: OutcomeWriter,
        figures: LeaseFigures,
        *,
        replica_id: str,
        version: str,
    ) -> None:
        self._database = database
        self._heartbeats = heartbeats
        self._outcomes = outcomes
        self._ttl = timedelta(seconds=figures.lease_ttl_s)
        self._replica_id = replica_id
        self._version = version

    async def tick(
        self, sessions: Sequence[SessionRef], lists: Sequence[HeartbeatList]
    ) -> TickResult:
        """Renew the listed leases that are due; see the port."""
        listed = {
            (one.session.node_id, each.attempt_id): each for one in lists for each in one.leases
        }
        await failpoint("lease.renew.before")
        rows = await self._heartbeats.fetch(
            _SQL.renew_leases,
            self._ttl,
            self._replica_id,
            self._version,
            [one.node_id for one in sessions],
            [one.generation for one in sessions],
            [node_id for node_id, _ in listed],
            [attempt_id for _, attempt_id in listed],
            [each.lease_version for each in listed.values()],
        )
        await failpoint("lease.renew.after")
        return _tick_result(rows)

    async def expire(self) -> tuple[ExpiryRound, Aftermath]:
        """End attempts whose leases ran out; see the port."""
        judged = await self._database.fetchrow(_SQL.judge_guard, self._ttl)
        assert judged is not None, "the migration made the row of lease_guard"
        as_of, held = judged["as_of"], judged["hold_until"] > judged["as_of"]
        due_in_s: float | None = judged["due_in_s"]
        if due_in_s is None or held or due_in_s > 0:
            held_for_s = (judged["hold_until"] - as_of).total_seconds()
            wait_s = None if due_in_s is None else max(due_in_s, held_for_s)
            return ExpiryRound(0, wait_s, more=False), Aftermath()
        found = await self._database.fetch(_SQL.expired_attempts, as_of, EXPIRY_BATCH_SIZE_MAX)
        await failpoint("lease.expire.before")
        count, aftermath = await self._expire_found(found, as_of)
        await failpoint("lease.expire.after")
        more = len(found) == EXPIRY_BATCH_SIZE_MAX and count > 0
        return ExpiryRound(count, None, more=more), aftermath

    async def _expire_found(self, found: Sequence[Record], as_of: object) -> tuple[int, Aftermath]:
        """End what was found; where the batch fails for the sake of one, each by itself."""
        try:
            return await self._expire_together(found, as_of)
        except Exception as error:
            if strikes_whole_batch(error) or len(found) <= 1:
                raise
        count, aftermath = 0, Aftermath()
        for one in found:
            try:
                ended, then = await self._expire_together([one], as_of)
            except Exception as error:
                if strikes_whole_batch(error):
                    raise
                _log.exception("attempt_not_expired", attempt_id=str(one["attempt_id"]))
            else:
                count, aftermath = count + ended, aftermath | then
        return count, aftermath

    async def _expire_together(
        self, found: Sequence[Record], as_of: object
    ) -> tuple[int, Aftermath]:
        async def run(connection: Connection) -> tuple[int, Aftermath]:
            return await self._expire_in(connection, found, as_of)

        return await self._database.run_transaction(run) if found else (0, Aftermath())

    async def _expire_in(
        self, connection: Connection, found: Sequence[Record], as_of: object
    ) -> tuple[int, Aftermath]:
        free = await _lock_free(connection, found)
        ids = [row["attempt_id"] for row in found if row["execution_id"] in free]
        rows = await connection.fetch(_SQL.lock_expired, ids, as_of)
        locked = await self._outcomes.lock_in_locked_executions(
            connection, [row["attempt_id"] for row in rows]
        )
        endings = [(facts, expired(facts.stop_reason)) for facts in locked.facts.values()]
        return len(endings), await self._outcomes.end(connection, endings, locked.now)

    async def stop_overdue(self) -> tuple[ExpiryRound, Aftermath]:
        """Order attempts past their run time-out to stop; see the port."""
        row = await self._database.fetchrow(_SQL.seconds_until_overdue)
        due_in_s: float | None = None if row is None else row["due_in_s"]
        if due_in_s is None or due_in_s > 0:
            return ExpiryRound(0, due_in_s, more=False), Aftermath()
        found = await self._database.fetch(_SQL.overdue_attempts, EXPIRY_BATCH_SIZE_MAX)

        async def run(connection: Connection) -> Aftermath:
            free = await _lock_free(connection, found)
            orders = [_timeout_order(one) for one in found if one["execution_id"] in free]
            return await self._outcomes.stop(connection, orders)

        await failpoint("attempt.stop.before")
        aftermath = await self._database.run_transaction(run)
        await failpoint("attempt.stop.after")
        return ExpiryRound(len(found), None, more=len(found) == EXPIRY_BATCH_SIZE_MAX), aftermath

    async def write_progress(self, marks: Sequence[ProgressMark]) -> frozenset[str]:
        """Raise progress where it grows; see the port."""
        folded: dict[tuple[str, str, int], int] = {}
        for mark in marks:
            key = (mark.attempt_id, mark.node_id, mark.lease_version)
            folded[key] = max(folded.get(key, 0), min(max(mark.progress_percent, 0), 100))
        # An attempt occurs once: only one (node, version) of it can be the stored one.
        rows: list[Record] = []
        for group in _one_an_attempt(folded):
            rows += await self._database.fetch(
                _SQL.write_progress,
                [key[0] for key in group],
                [key[1] for key in group],
                [key[2] for key in group],
                [folded[key] for key in group],
            )
        return frozenset(str(row["execution_id"]) for row in rows)


async def _lock_free(connection: Connection, found: Sequence[Record]) -> set[object]:
    execution_ids = [row["execution_id"] for row in found]
    rows = await connection.fetch(_SQL.lock_free_executions, execution_ids)
    return {row["execution_id"] for row in rows}


def _timeout_order(row: Record) -> StopOrder:
    return StopOrder(
        ExecutionId(str(row["execution_id"])),
        StepRef(StepKey(row["step_key"]), row["item_index"]),
        row["number"],
        StopReason.TIMEOUT,
    )


def _tick_result(rows: Sequence[Record]) -> TickResult:
    renewed: dict[str, list[ListedLease]] = defaultdict(list)
    lost: dict[str, list[ListedLease]] = defaultdict(list)
    replaced: set[str] = set()
    for row in rows:
        node_id = str(row["node_id"])
        if row["outcome"] == "REPLACED":
            replaced.add(node_id)
            continue
        named = renewed if row["outcome"] == "RENEWED" else lost
        named[node_id].append(lease(str(row["attempt_id"]), row["lease_version"]))
    return TickResult(dict(renewed), dict(lost), frozenset(replaced))


def _one_an_attempt(
    folded: dict[tuple[str, str, int], int],
) -> list[list[tuple[str, str, int]]]:
    """Split keys so that no group names an attempt twice (a zombie may report too)."""
    groups: list[dict[str, tuple[str, str, int]]] = []
    for key in folded:
        for group in groups:
            if key[0] not in group:
                group[key[0]] = key
                break
        else:
            groups.append({key[0]: key})
    return [list(group.values()) for group in groups]
