"""Reads what the ladder of an execution is built from."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from control_plane.core.evidence.application import Subject
from control_plane.core.evidence.domain import Disturbance, HopFact, LadderFacts
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "evidence.sql")
_TERMINAL: Final = frozenset({"SUCCEEDED", "FAILED", "CANCELED", "TIMED_OUT", "LOST"})


class PostgresEvidenceReader:
    """Implements EvidenceReader."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def execution_of(self, subject: Subject, owner: str | None) -> str | None:
        """Name the execution that is meant: a task's current one; None if there is none."""
        if subject.task_id:
            row = await self._database.fetchrow(_SQL.execution_of_task, subject.task_id, owner)
        elif subject.execution_id:
            row = await self._database.fetchrow(_SQL.execution_of_id, subject.execution_id, owner)
        else:
            row = await self._database.fetchrow(
                _SQL.execution_of_reference, subject.external_ref, owner
            )
        return None if row is None else str(row[0])

    async def facts(self, execution_id: str) -> LadderFacts:
        """Read every hop's facts."""
        async with self._database.acquire() as connection:
            task = await connection.fetchrow(_SQL.evidence_of_task, execution_id)
            assert task is not None, "executions are removed only by retention"
            steps = await connection.fetchrow(_SQL.evidence_of_steps, execution_id)
            attempts = await connection.fetch(_SQL.evidence_of_attempts, execution_id)
            resumes = await connection.fetch(_SQL.evidence_of_resumes, execution_id)
            inbox = await connection.fetch(_SQL.evidence_of_inbox, execution_id)
            hops = [
                _task_fact(task, execution_id),
                await _outbox_fact(connection, execution_id),
                _steps_fact(steps),
                *_attempt_facts(attempts, steps, resumes),
                _inbox_fact(inbox, attempts),
                await _callback_fact(connection, task, execution_id),
            ]
        return LadderFacts(
            task_id=task["task_id"],
            execution_id=execution_id,
            external_ref=task["external_ref"],
            status=task["status"],
            failure=task["failure"],
            waiting_for=task["waiting_for"],
            hops=hops,
        )

    async def database_time(self) -> datetime:
        """Tell the time by the database's clock."""
        row = await self._database.fetchrow(_SQL.database_time)
        assert row is not None
        moment: datetime = row["now"]
        return moment


def _task_fact(task: Record, execution_id: str) -> HopFact:
    return HopFact(
        hop=2,
        identity=f"task {task['task_id']}, execution {execution_id} (run {task['run']})",
        record=task["task_id"],
        actor=f"application {task['application_id']}",
        durable_at=task["created_at"],
        done_count=1,
        expected_count=1,
    )


async def _outbox_fact(connection: Connection, execution_id: str) -> HopFact:
    row = await connection.fetchrow(_SQL.evidence_of_outbox, execution_id)
    assert row is not None
    if not row["total"]:
        # The first wake-up is written with the execution, and only delivered ones are removed.
        return HopFact(hop=3, done_count=1, expected_count=1, open_reason="removed since")
    return HopFact(
        hop=3,
        identity=f"message {row['first_id'] or ''}",
        record=row["first_id"] or "",
        durable_at=row["durable_at"],
        done_count=row["done"],
        expected_count=row["total"],
        open_reason=row["open_error"] or "",
        disturbances=_pump_disturbances(row),
    )


def _steps_fact(row: Record | None) -> HopFact:
    assert row is not None
    return HopFact(
        hop=4,
        identity=row["shown"] or "",
        durable_at=row["durable_at"],
        done_count=row["total"],
        expected_count=row["total"],
    )


def _attempt_facts(
    attempts: Sequence[Record], steps: Record | None, resumes: Sequence[Record]
) -> list[HopFact]:
    assert steps is not None
    newest = attempts[-1] if attempts else None
    total = len(attempts)
    shown = "" if newest is None else f"attempt {newest['attempt_id']} on {newest['node_name']}"
    acked = [one for one in attempts if one["acked_at"] is not None]
    ended = [one for one in attempts if one["status"] in _TERMINAL or one["pending"]]
    return [
        HopFact(
            hop=5,
            identity=shown,
            record="" if newest is None else newest["attempt_id"],
            durable_at=None if newest is None else newest["dispatched_at"],
            done_count=total,
            expected_count=max(total, steps["requested"]),
            disturbances=_losses(attempts),
        ),
        HopFact(
            hop=6,
            identity="" if not acked else f"command {acked[-1]['command_id']}",
            record="" if not acked else f"sequence {acked[-1]['sequence']}",
            actor="" if not acked else f"node {acked[-1]['node_name']}",
            durable_at=None if not acked else acked[-1]["acked_at"],
            done_count=len(acked),
            expected_count=len([one for one in attempts if one["command_status"] != "VOIDED"]),
            disturbances=_resendings(attempts),
        ),
        HopFact(
            hop=7,
            identity=shown,
            record="" if newest is None else f"lease version {newest['lease_version']}",
            actor="" if newest is None else f"node {newest['node_name']}",
            durable_at=max(
                (one["completed_at"] for one in ended if one["completed_at"]), default=None
            ),
            done_count=len(ended),
            expected_count=total,
            disturbances=_retries(attempts) + _resumes(resumes),
        ),
    ]


def _losses(attempts: Sequence[Record]) -> tuple[Disturbance, ...]:
    return tuple(
        Disturbance(
            "re-leased",
            f"attempt {one['number']} of {one['step_key']} was lost on {one['node_name']}; "
            "its lease went to the next attempt",
            one["completed_at"],
        )
        for one in attempts
        if one["status"] == "LOST"
    )


def _retries(attempts: Sequence[Record]) -> tuple[Disturbance, ...]:
    return tuple(
        Disturbance(
            "retried",
            f"attempt {one['number']} of {one['step_key']} failed on {one['node_name']}: "
            f"{one['failure'][:300]}",
            one["completed_at"],
        )
        for one in attempts
        if one["status"] == "FAILED"
    )


def _resumes(resumes: Sequence[Record]) -> tuple[Disturbance, ...]:
    return tuple(
        Disturbance(
            "replayed",
            f"attempt {one['number']} of {one['step_key']} was resumed by a restarted agent",
            one["occurred_at"],
        )
        for one in resumes
    )


def _resendings(attempts: Sequence[Record]) -> tuple[Disturbance, ...]:
    return tuple(
        Disturbance(
            "replayed",
            f"command {one['sequence']} of {one['node_name']} was sent {one['send_count']} times",
            one["acked_at"],
        )
        for one in attempts
        if (one["send_count"] or 0) > 1
    )


def _inbox_fact(inbox: Sequence[Record], attempts: Sequence[Record]) -> HopFact:
    ends = [one for one in inbox if one["kind"] != "ARTIFACTS"]
    results = [one for one in ends if one["accepted"]]
    done, expected = _reported_counts(ends, attempts)
    refused = tuple(
        Disturbance(
            "fenced",
            f"event {one['event_id']} of attempt {one['attempt_id']} came too late or from the "
            f"wrong lease ({one['reason']}): kept, not applied",
            one["received_at"],
        )
        for one in inbox
        if not one["accepted"]
    )
    repeated = tuple(
        Disturbance(
            "deduplicated",
            f"event {one['event_id']} arrived {one['duplicate_count'] + 1} times",
            one["received_at"],
        )
        for one in inbox
        if one["duplicate_count"]
    )
    return HopFact(
        hop=8,
        identity="" if not results else f"event {results[-1]['event_id']}",
        record="" if not results else results[-1]["event_id"],
        durable_at=None if not results else results[-1]["received_at"],
        done_count=done,
        expected_count=expected,
        disturbances=refused + repeated,
    )


def _reported_counts(ends: Sequence[Record], attempts: Sequence[Record]) -> tuple[int, int]:
    """How many attempts have told their end, and how many have or still will.

    One that ended in silence, or was lost, is waited for by nobody. A refused report counts where
    the attempt has ended all the same.
    """
    heard = {one["attempt_id"] for one in ends}
    accepted = {one["attempt_id"] for one in ends if one["accepted"]}
    kept = [one for one in attempts if one["status"] != "LOST"]
    over = {one["attempt_id"] for one in kept if one["status"] in _TERMINAL}
    expected = {one["attempt_id"] for one in kept} - (over - heard)
    return len(accepted | (heard & over)), len(expected)


async def _callback_fact(connection: Connection, task: Record, execution_id: str) -> HopFact:
    row = await connection.fetchrow(_SQL.evidence_of_callbacks, execution_id)
    assert row is not None
    dead = Disturbance("dead", f"{row['dead']} callbacks were given up: {row['open_error']}", None)
    return HopFact(
        hop=9,
        identity=f"sequences 1 to {row['delivered_sequence'] or 0}",
        record=f"({execution_id}, {row['delivered_sequence'] or 0})",
        durable_at=row["durable_at"],
        done_count=row["done"],
        expected_count=row["total"],
        applicable=task["with_callback"],
        open_reason=row["open_error"] or "",
        disturbances=_pump_disturbances(row) + ((dead,) if row["dead"] else ()),
    )


def _pump_disturbances(row: Record) -> tuple[Disturbance, ...]:
    found: list[Disturbance] = []
    if row["failures"]:
        found.append(Disturbance("retried", f"{row['failures']} failed tries were repeated", None))
    if row["takeovers"]:
        found.append(
            Disturbance("replayed", f"{row['takeovers']} claims were taken over and repeated", None)
        )
    return tuple(found)
