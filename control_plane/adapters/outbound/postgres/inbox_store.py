"""The attempt inbox in PostgreSQL: events, and all that they change, in one transaction a batch."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from control_plane.adapters.outbound.postgres.engine_store import AdvanceWithin
from control_plane.adapters.outbound.postgres.outcome_writer import LockedAttempts, OutcomeWriter
from control_plane.core.executions.domain import AttemptId
from control_plane.core.executions.outcomes import (
    Aftermath,
    AttemptFacts,
    Ending,
    Settlement,
    failed,
    settled,
    stopped,
)
from control_plane.core.executions.reports import (
    ReportVerdict,
    ResultSeen,
    judge_success,
    refusal_after,
    refusal_of,
)
from control_plane.core.nodes.domain import (
    ArtifactsReported,
    EventFate,
    NodeEvent,
    WorkFailed,
    WorkStopped,
    WorkSucceeded,
)
from control_plane.core.nodes.ports import Accepted, OutputSchemas
from foundation.failpoints import failpoint
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "inbox.sql", "outcomes.sql")


@dataclass(slots=True)
class _Batch:
    """What is decided of a batch so far: a fate an event, an ending an attempt."""

    events: dict[str, NodeEvent]
    repeats: dict[str, int]
    fates: dict[str, EventFate] = field(default_factory=dict)
    endings: dict[AttemptId, tuple[AttemptFacts, Ending]] = field(default_factory=dict)
    late: list[NodeEvent] = field(default_factory=list)
    """Events that follow their attempt's final one within the batch."""

    def open_events(self) -> Iterable[NodeEvent]:
        """The events that may have an effect and whose fate is not known, in order."""
        late = {event.event_id for event in self.late}
        return (
            event
            for event in self.events.values()
            if event.event_id not in self.fates and event.event_id not in late
        )

    def refuse_late(self) -> None:
        """Refuse what follows a final event, as if it had come in a batch of its own."""
        for event in self.late:
            _, ending = self.endings[AttemptId(event.attempt_id)]
            self.refuse(event, refusal_after(ending))

    def refuse(self, event: NodeEvent, reason: str) -> None:
        self.fates[event.event_id] = EventFate(event.event_id, accepted=False, reason=reason)

    def apply(self, event: NodeEvent, facts: AttemptFacts, verdict: ReportVerdict) -> None:
        self.fates[event.event_id] = EventFate(event.event_id, verdict.accepted, verdict.reason)
        if verdict.ending is not None:
            self.endings[facts.attempt_id] = (facts, verdict.ending)


class PostgresInboxStore:
    """Implements InboxStore."""

    def __init__(
        self,
        database: Database,
        outcomes: OutcomeWriter,
        schemas: OutputSchemas,
        advance_within: AdvanceWithin,
    ) -> None:
        self._database = database
        self._outcomes = outcomes
        self._schemas = schemas
        self._advance_within = advance_within

    async def accept(self, events: Sequence[NodeEvent]) -> Accepted:
        """Store events and what they change; see the port."""

        async def run(connection: Connection) -> Accepted:
            return await self._accept_in(connection, events)

        await failpoint("accept.commit.before")
        result = await self._database.run_transaction(run)
        await failpoint("accept.commit.after")
        return result

    async def reject(self, event: NodeEvent, reason: str) -> EventFate:
        """Store an event that cannot be applied; see the port."""
        fate = EventFate(event.event_id, accepted=False, reason=reason)
        batch = _Batch({event.event_id: event}, {}, {event.event_id: fate})
        async with self._database.transaction() as connection:
            stored = await _store(connection, batch, with_payload=False)
        return stored[event.event_id]

    async def settle(self, settlements: Sequence[Settlement]) -> Aftermath:
        """End pending results; see the port."""

        async def run(connection: Connection) -> Aftermath:
            return await self.settle_in(connection, settlements)

        await failpoint("commit.settle.before")
        aftermath = await self._database.run_transaction(run)
        await failpoint("commit.settle.after")
        return aftermath

    async def settle_in(
        self, connection: Connection, settlements: Sequence[Settlement]
    ) -> Aftermath:
        """End pending results in the caller's transaction, which holds no locks yet."""
        given = {one.attempt_id: one for one in settlements}
        locked = await self._outcomes.lock(connection, list(given))
        endings = [
            (facts, settled(facts, given[facts.attempt_id].failure))
            for facts in locked.facts.values()
            if facts.pending_result
        ]
        if endings:
            await connection.execute(
                _SQL.settle_artifacts,
                [facts.attempt_id for facts, _ in endings],
                ["COMMITTED" if ending.end is None else "ABANDONED" for _, ending in endings],
            )
        return await self._outcomes.end(connection, endings, locked.now)

    async def _accept_in(self, connection: Connection, events: Sequence[NodeEvent]) -> Accepted:
        batch = _folded(events)
        attempt_ids = sorted({event.attempt_id for event in batch.events.values()})
        locked = await self._outcomes.lock(connection, attempt_ids)
        for row in await connection.fetch(_SQL.known_events, list(batch.events)):
            fate = EventFate(str(row["event_id"]), row["accepted"], row["reason"])
            batch.fates[fate.event_id] = fate
        _refuse_unfit(batch, locked)
        counts = await _report_artifacts(connection, batch)
        await self._judge_finals(batch, locked, counts)
        stored = await _store(connection, batch)
        endings = list(batch.endings.values())
        aftermath = await self._outcomes.end(connection, endings, locked.now, makes_due=False)
        fates = [stored[event.event_id] for event in events]
        return await self._advanced(connection, Accepted(fates, aftermath))

    async def _advanced(self, connection: Connection, accepted: Accepted) -> Accepted:
        """Advance what the batch changed while its locks are held: that saves a transaction."""
        changed = accepted.aftermath.execution_ids
        if not changed:
            return accepted
        advanced = await self._advance_within(connection, sorted(changed))
        left = sorted(changed - advanced.sequences.keys())
        if left:
            await connection.execute(_SQL.make_due, left)
        aftermath = replace(accepted.aftermath, execution_ids=frozenset(left))
        return replace(accepted, aftermath=aftermath, advanced=advanced)

    async def _judge_finals(
        self, batch: _Batch, locked: LockedAttempts, counts: Mapping[str, int]
    ) -> None:
        for event in list(batch.open_events()):
            facts = locked.facts[AttemptId(event.attempt_id)]
            batch.apply(event, facts, await self._verdict(event, facts, counts))
        batch.refuse_late()

    async def _verdict(
        self, event: NodeEvent, facts: AttemptFacts, counts: Mapping[str, int]
    ) -> ReportVerdict:
        match event.fact:
            case ArtifactsReported():
                return ReportVerdict(accepted=True)
            case WorkSucceeded() as done:
                return await self._judge_success(facts, done, counts.get(event.attempt_id, 0))
            case WorkFailed() as work:
                return _ended(
                    failed(
                        facts.stop_reason,
                        work.failure,
                        infrastructure=work.infrastructure,
                        next_delay_s=work.next_delay_s,
                        usage_json=work.usage_json,
                        log_tail=work.log_tail,
                    )
                )
            case WorkStopped() as stop:
                return _ended(
                    stopped(facts.stop_reason, stop.stop_reason, usage_json=stop.usage_json)
                )

    async def _judge_success(
        self, facts: AttemptFacts, done: WorkSucceeded, reported_count: int
    ) -> ReportVerdict:
        problem = await self._schemas.problem_of(
            facts.capability, facts.capability_version, done.output_json
        )
        result = ResultSeen(
            done.output_json, done.artifact_count, done.collection_ref, reported_count, problem
        )
        return judge_success(facts, result, done.usage_json)


def _ended(ending: Ending) -> ReportVerdict:
    return ReportVerdict(accepted=True, ending=ending)


def _folded(events: Sequence[NodeEvent]) -> _Batch:
    batch = _Batch({}, defaultdict(int))
    for event in events:
        if event.event_id in batch.events:
            batch.repeats[event.event_id] += 1
        else:
            batch.events[event.event_id] = event
    return batch


def _refuse_unfit(batch: _Batch, locked: LockedAttempts) -> None:
    final: set[str] = set()
    for event in list(batch.open_events()):
        facts = locked.facts.get(AttemptId(event.attempt_id))
        reason = refusal_of(facts, event.node_id, event.lease_version)
        if reason:
            batch.refuse(event, reason)
        elif event.attempt_id in final:
            batch.late.append(event)
        elif not isinstance(event.fact, ArtifactsReported):
            # Whatever is made of it, nothing that follows it counts.
            final.add(event.attempt_id)


async def _report_artifacts(connection: Connection, batch: _Batch) -> Mapping[str, int]:
    """Note the uploads of the batch; return how many each attempt with a result has reported."""
    rows: dict[tuple[str, str, str], tuple[object, ...]] = {}
    counted: set[str] = set()
    for event in batch.open_events():
        match event.fact:
            case ArtifactsReported(artifacts):
                for one in artifacts:
                    rows[event.attempt_id, event.boot_id, one.relative_path] = (
                        event.attempt_id,
                        event.boot_id,
                        one.relative_path,
                        one.resource_ref,
                        one.size_bytes,
                        one.sha256,
                        one.media_type,
                    )
            case WorkSucceeded():
                counted.add(event.attempt_id)
            case _:
                pass
    if not rows and not counted:
        return {}
    columns = [list(column) for column in zip(*rows.values(), strict=True)] or [[]] * 7
    found = await connection.fetch(_SQL.report_artifacts, *columns, sorted(counted))
    return {str(row["attempt_id"]): row["reported_count"] for row in found}


async def _store(
    connection: Connection, batch: _Batch, *, with_payload: bool = True
) -> Mapping[str, EventFate]:
    rows: list[Record] = await connection.fetch(
        _SQL.store_events,
        *_columns(batch, with_payload=with_payload),
    )
    # A concurrent batch can only have stored events of attempts that do not exist: those of
    # existing ones wait for the execution's lock.
    return {
        str(row["event_id"]): EventFate(str(row["event_id"]), row["accepted"], row["reason"])
        for row in rows
    }


def _columns(batch: _Batch, *, with_payload: bool) -> list[list[object]]:
    rows = [
        (
            event.event_id,
            event.node_id,
            event.attempt_id,
            event.lease_version,
            event.incarnation_id,
            event.kind.value,
            fate.accepted,
            fate.reason,
            event.payload_json() if with_payload and not fate.accepted else None,
            batch.repeats.get(event.event_id, 0),
        )
        for event in batch.events.values()
        for fate in (batch.fates[event.event_id],)
    ]
    return [list(column) for column in zip(*rows, strict=True)]
