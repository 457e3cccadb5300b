"""Ends attempts in the caller's transaction: locks, reads, concludes, writes once for all."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from random import Random
from typing import Final

from control_plane.adapters.outbound.postgres.limit_store import free_slots
from control_plane.adapters.outbound.postgres.snapshots import (
    SnapshotUnreadableError,
    WorkflowSnapshots,
)
from control_plane.core.executions.attempt_state import AttemptStatus, StopReason
from control_plane.core.executions.domain import AttemptId, ExecutionId, StepKey, StepRef
from control_plane.core.executions.outcomes import (
    Aftermath,
    AttemptFacts,
    Conclusion,
    Ending,
    StopOrder,
    aftermath_of,
    conclude,
    never_sent,
)
from control_plane.core.executions.step_state import StepStatus
from foundation.ids import IdSource
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "outcomes.sql")


class OutcomeWriter:
    """The one way in which attempts end in the database."""

    def __init__(self, snapshots: WorkflowSnapshots, ids: IdSource, random: Random) -> None:
        """`random` spreads the waits of retries."""
        self._snapshots = snapshots
        self._ids = ids
        self._random = random

    async def lock(self, connection: Connection, attempt_ids: Sequence[str]) -> "LockedAttempts":
        """Lock the attempts with their executions; unknown ids are left out of the answer."""
        await connection.execute(_SQL.lock_executions_of_attempts, attempt_ids)
        return await self.lock_in_locked_executions(connection, attempt_ids)

    async def lock_in_locked_executions(
        self, connection: Connection, attempt_ids: Sequence[str]
    ) -> "LockedAttempts":
        """Lock attempts of executions that this transaction has locked already."""
        rows = await connection.fetch(_SQL.lock_attempts, attempt_ids)
        facts = (_facts(row) for row in rows)
        return LockedAttempts({one.attempt_id: one for one in facts}, _now(rows))

    async def end(
        self,
        connection: Connection,
        endings: Sequence[tuple[AttemptFacts, Ending]],
        now: datetime | None,
        *,
        makes_due: bool = True,
    ) -> Aftermath:
        """Write the ends of locked attempts, none of which occurs twice.

        `now` is the database's time at which they were locked. Without `makes_due` the caller
        sees to it that the executions are advanced. Raises TransitionForbiddenError
        for an attempt that is over already, SnapshotUnreadableError.
        """
        if not endings:
            return Aftermath()
        assert now is not None, "attempts that were locked came with the time"
        conclusions = [
            await self._concluded(connection, facts, ending, now) for facts, ending in endings
        ]
        holders = [
            one.facts.attempt_id
            for one in conclusions
            if one.facts.holds_slots and one.frees_capacity
        ]
        woken = await free_slots(connection, holders)
        rows = await connection.fetch(
            _SQL.end_attempts,
            *_columns(conclusions),
            [self._ids.new_id() for _ in conclusions],
            makes_due,
            [one.ending.log_tail or None for one in conclusions],
        )
        return woken | aftermath_of(conclusions, (str(row["node_id"]) for row in rows))

    async def stop(self, connection: Connection, orders: Sequence[StopOrder]) -> Aftermath:
        """Order live attempts to stop, and end at once those that their nodes never heard of.

        The caller has locked the executions, and raises its own due times before: attempts
        that end here make their executions due at once. An attempt that was told to stop
        before, that is over or whose result is pending, is left as it is.
        """
        if not orders:
            return Aftermath()
        rows = await connection.fetch(
            _SQL.order_stops,
            [order.execution_id for order in orders],
            [order.ref.step_key for order in orders],
            [order.ref.item_index for order in orders],
            [order.attempt_number for order in orders],
            [order.reason.value for order in orders],
            [self._ids.new_id() for _ in orders],
        )
        told = {str(row["node_id"]) for row in rows if not row["is_voided"]}
        voided = [str(row["attempt_id"]) for row in rows if row["is_voided"]]
        ended = await self._end_unsent(connection, voided) if voided else Aftermath()
        return ended | Aftermath(node_ids=frozenset(told))

    async def _end_unsent(self, connection: Connection, attempt_ids: Sequence[str]) -> Aftermath:
        locked = await self.lock_in_locked_executions(connection, attempt_ids)
        endings = [
            (facts, never_sent(facts.stop_reason or StopReason.CANCEL))
            for facts in locked.facts.values()
        ]
        return await self.end(connection, endings, locked.now)

    async def _concluded(
        self, connection: Connection, facts: AttemptFacts, ending: Ending, now: datetime
    ) -> Conclusion:
        if ending.end is None or not facts.moves_step:
            return conclude(facts, ending, None, now, self._random)
        digest = facts.snapshot_digest
        workflow = (await self._snapshots.get(connection, [digest]))[digest]
        if isinstance(workflow, SnapshotUnreadableError):
            raise workflow
        failure_step = workflow.failure_step
        if failure_step is not None and failure_step.key == facts.ref.step_key:
            # It runs while the execution closes; only a cancel ends it too.
            facts = replace(facts, closing=facts.canceling)
        definition = workflow.steps[facts.ref.step_key].definition
        return conclude(facts, ending, definition, now, self._random)


class LockedAttempts:
    """Locked attempts by id, and the database's time at which they were read."""

    __slots__ = ("facts", "now")

    def __init__(self, facts: Mapping[AttemptId, AttemptFacts], now: datetime | None) -> None:
        """`now` is None where nothing was found."""
        self.facts = facts
        self.now = now


def _now(rows: Sequence[Record]) -> datetime | None:
    return rows[0]["now"] if rows else None


def _facts(row: Record) -> AttemptFacts:
    stop_reason = row["stop_reason"]
    return AttemptFacts(
        attempt_id=AttemptId(str(row["attempt_id"])),
        execution_id=ExecutionId(str(row["execution_id"])),
        ref=StepRef(StepKey(row["step_key"]), row["item_index"]),
        number=row["number"],
        task_id=str(row["task_id"]),
        application_id=str(row["application_id"]),
        node_id=str(row["node_id"]),
        lease_version=row["lease_version"],
        status=AttemptStatus(row["status"]),
        stop_reason=None if stop_reason is None else StopReason(stop_reason),
        pending_result=row["pending_result"] or "",
        holds_slots=row["holds_slots"],
        step_status=StepStatus(row["step_status"]),
        step_attempt_number=row["step_attempt_number"],
        failure_count=row["failure_count"],
        loss_count=row["loss_count"],
        ready_at=row["ready_at"],
        capability=row["capability"],
        capability_version=row["capability_version"],
        closing=row["closing"],
        canceling=row["canceling"],
        snapshot_digest=row["snapshot_digest"],
    )


def _columns(conclusions: Sequence[Conclusion]) -> list[list[object]]:
    """Return the columns of `end_attempts`, in its order up to the command ids."""
    return [list(column) for column in zip(*map(_row, conclusions), strict=True)]


def _row(one: Conclusion) -> tuple[object, ...]:
    facts, ending, step = one.facts, one.ending, one.step
    return (
        facts.attempt_id,
        facts.execution_id,
        facts.ref.step_key,
        facts.ref.item_index,
        facts.number,
        ending.status.value,
        None if ending.failure is None else ending.failure.to_json(),
        ending.usage_json or None,
        one.frees_capacity,
        one.needs_cancel,
        ending.pending_result or None,
        ending.commit or None,
        None if step is None else step.status.value,
        None if step is None else step.attempt_number,
        None if step is None else step.output_json or None,
        None if step is None else step.failure_json or None,
        None if step is None else step.failure_count,
        None if step is None else step.loss_count,
        None if step is None else step.retry_at,
        None if step is None else step.deadline_at,
        one.timeline_type,
        one.timeline_detail,
    )
