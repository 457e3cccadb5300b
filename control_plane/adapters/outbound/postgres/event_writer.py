"""The one place where execution events are written, with their wake-ups and callbacks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from foundation.ids import IdSource
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection

_SQL: Final = NamedSql.load("control_plane.sql.queries", "events.sql")


@dataclass(frozen=True, slots=True)
class NewEvent:
    """One event, ready to be stored.

    `sequence` continues the execution's, whose row the caller has locked; `envelope` is the
    CloudEvents JSON text that is delivered as it is; `with_callback` says whether the task
    has somewhere to deliver it.
    """

    execution_id: str
    event_id: str
    sequence: int
    type: str
    status: str
    progress_percent: int
    envelope: str
    application_id: str
    with_callback: bool


async def append_events(connection: Connection, ids: IdSource, events: Sequence[NewEvent]) -> None:
    """Store the events in the caller's transaction, in one statement."""
    if not events:
        return
    await connection.execute(
        _SQL.append_events,
        [event.execution_id for event in events],
        [event.event_id for event in events],
        [event.sequence for event in events],
        [event.type for event in events],
        [event.status for event in events],
        [event.progress_percent for event in events],
        [event.envelope for event in events],
        [event.application_id for event in events],
        [event.with_callback for event in events],
        [ids.new_id() for _ in events],
        [ids.new_id() for _ in events],
    )
