"""JournalStore over one SQLite file: whole transactions, with many writes in each."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, assert_never

from foundation.postgres.named_sql import NamedSql
from foundation.sqlite.database import LocalDatabase
from node_agent.core.journal.domain import (
    CommandKind,
    DrainMark,
    FinishAttempt,
    ForgetAttempt,
    Identify,
    Identity,
    JournalContents,
    KeepAttempt,
    KeepOrder,
    MarkDrain,
    MarkSequence,
    Probe,
    ReportArtifacts,
    RunSpec,
    SaveCheckpoint,
    StartAttempt,
    StopReason,
    StoredAttempt,
    Write,
)
from node_agent.core.journal.events import NewEvent, fact_to_json

_SQL: Final = NamedSql.load("node_agent.sql.queries", "journal.sql")


class SqliteJournal:
    """See JournalStore; the file has its migrations and is open."""

    def __init__(self, database: LocalDatabase) -> None:
        """Use an open file."""
        self._database = database

    async def create_identity(self, incarnation_id: str) -> None:
        """Give a new journal its incarnation; an old one keeps its own."""

        def create(connection: sqlite3.Connection) -> None:
            connection.execute(_SQL.create_identity, {"incarnation_id": incarnation_id})

        await self._database.transaction(create)

    async def load(self) -> JournalContents:
        """See JournalStore."""
        return await self._database.read(_load)

    async def apply(self, writes: Sequence[Write]) -> None:
        """See JournalStore."""

        def apply_all(connection: sqlite3.Connection) -> None:
            for write in writes:
                _apply(connection, write)

        await self._database.transaction(apply_all)


def _load(connection: sqlite3.Connection) -> JournalContents:
    identity = connection.execute(_SQL.identity).fetchone()
    paths: defaultdict[str, set[str]] = defaultdict(set)
    for row in connection.execute(_SQL.artifact_paths):
        paths[row["attempt_id"]].add(row["relative_path"])
    (event_count,) = connection.execute(_SQL.event_count).fetchone()
    return JournalContents(
        identity=Identity(
            identity["incarnation_id"], identity["node_id"], identity["credential_sha256"]
        ),
        last_command_sequence=identity["last_command_sequence"],
        drain=DrainMark(identity["drain_grace_s"]) if identity["is_draining"] else None,
        attempts=tuple(
            _attempt(row, frozenset(paths[row["attempt_id"]]))
            for row in connection.execute(_SQL.attempts).fetchall()
        ),
        event_count=event_count,
    )


def _attempt(row: sqlite3.Row, paths: frozenset[str]) -> StoredAttempt:
    stop_reason = row["stop_reason"]
    return StoredAttempt(
        spec=RunSpec.from_json(row["spec"]),
        was_started=bool(row["is_started"]),
        is_finished=bool(row["is_finished"]),
        stop_reason=None if stop_reason is None else StopReason(stop_reason),
        run_timeout_s=row["run_timeout_s"],
        checkpoint_json=row["checkpoint"],
        artifact_paths=paths,
    )


def _apply(connection: sqlite3.Connection, write: Write) -> None:
    match write:
        case KeepAttempt():
            _keep_attempt(connection, write)
        case FinishAttempt(event):
            _finish(connection, write, event)
        case StartAttempt(attempt_id):
            connection.execute(_SQL.start_attempt, {"attempt_id": attempt_id})
        case MarkSequence(sequence):
            connection.execute(_SQL.mark_sequence, {"sequence": sequence})
        case Probe():
            connection.execute(_SQL.probe)
        case SaveCheckpoint(attempt_id, document_json):
            values = {"attempt_id": attempt_id, "document": document_json}
            connection.execute(_SQL.save_checkpoint, values)
        case ReportArtifacts():
            _report_artifacts(connection, write)
        case KeepOrder():
            _keep_order(connection, write)
        case ForgetAttempt(attempt_id):
            connection.execute(_SQL.forget_attempt, {"attempt_id": attempt_id})
        case MarkDrain(drain):
            grace_s = 0.0 if drain is None else drain.grace_s
            mark = {"is_draining": drain is not None, "grace_s": grace_s}
            connection.execute(_SQL.mark_drain, mark)
        case Identify(node_id, credential_sha256):
            values = {"node_id": node_id, "credential_sha256": credential_sha256}
            connection.execute(_SQL.identify, values)
        case _ as unreachable:
            assert_never(unreachable)


def _keep_attempt(connection: sqlite3.Connection, write: KeepAttempt) -> None:
    spec = write.spec
    command = {
        "sequence": write.sequence,
        "command_id": write.command_id,
        "kind": CommandKind.RUN.value,
        "attempt_id": spec.attempt_id,
        "document": spec.to_json(),
    }
    connection.execute(_SQL.keep_command, command)
    values = {
        "attempt_id": spec.attempt_id,
        "lease_version": spec.lease_version,
        "sequence": write.sequence,
        "is_started": write.is_started,
        "run_timeout_s": spec.run_timeout_s,
    }
    connection.execute(_SQL.keep_attempt, values)


def _keep_order(connection: sqlite3.Connection, write: KeepOrder) -> None:
    changes: dict[str, object] = {"stop_reason": write.stop_reason}
    statement = _SQL.stop_attempt
    if write.kind is CommandKind.EXTEND:
        changes = {"extension_s": write.extension_s}
        statement = _SQL.extend_attempt
    command = {
        "sequence": write.sequence,
        "command_id": write.command_id,
        "kind": write.kind.value,
        "attempt_id": write.attempt_id,
        "document": json.dumps(changes),
    }
    connection.execute(_SQL.keep_order, command)
    connection.execute(statement, {**changes, "attempt_id": write.attempt_id})


def _finish(connection: sqlite3.Connection, write: FinishAttempt, event: NewEvent) -> None:
    connection.execute(_SQL.finish_attempt, {"attempt_id": event.attempt_id})
    key = event.attempt_id if write.waits_for_earlier else None
    _append(connection, event, ordering_key=key, is_final=True)


def _report_artifacts(connection: sqlite3.Connection, write: ReportArtifacts) -> None:
    event = write.event
    for path in write.relative_paths:
        values = {"attempt_id": event.attempt_id, "relative_path": path}
        connection.execute(_SQL.report_artifact, values)
    _append(connection, event, ordering_key=event.attempt_id, is_final=False)


def _append(
    connection: sqlite3.Connection, event: NewEvent, *, ordering_key: str | None, is_final: bool
) -> None:
    values = {
        "outbox_id": event.event_id,
        "ordering_key": ordering_key,
        "payload": fact_to_json(event.fact),
        "attempt_id": event.attempt_id,
        "lease_version": event.lease_version,
        "boot_id": event.boot_id,
        "occurred_at": event.occurred_at,
        "is_final": is_final,
    }
    connection.execute(_SQL.append_event, values)
