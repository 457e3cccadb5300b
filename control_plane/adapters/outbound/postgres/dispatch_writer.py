"""Writes what a batch of judged requests comes to, in one statement, and the events it makes."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from control_plane.adapters.outbound.postgres.event_writer import NewEvent, append_events
from control_plane.adapters.outbound.postgres.limit_store import TakenSlots, take_slots
from control_plane.core.engine.deadlines import run_deadline_at
from control_plane.core.executions.domain import (
    ExecutionEvent,
    ExecutionEventType,
    ExecutionId,
    TaskId,
)
from control_plane.core.executions.envelope import envelope
from control_plane.core.executions.execution_state import EXECUTION_MACHINE, ExecutionStatus
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.step_state import STEP_MACHINE, StepStatus
from control_plane.core.nodes.commands import RunPayload
from control_plane.core.scheduling.dispatching import Fate, LockedRequest
from control_plane.core.scheduling.domain import NodeId
from control_plane.core.scheduling.limits import LimitWait
from control_plane.core.scheduling.planning import RequestKey
from control_plane.core.scheduling.ports import DispatchedBatch
from control_plane.core.workflows.domain import Resources, StepDefinition
from foundation.ids import IdSource
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "scheduling.sql")
_ACTOR: Final = "scheduler"
_PAUSED: Final = json.dumps(["The execution is paused; it starts once somebody resumes it."])

# What a request becomes; the rest keeps its claim.
_REQUEST_STATUS: Final = {
    Fate.DISPATCHED: "DISPATCHED",
    Fate.KNOWN: "DISPATCHED",
    Fate.VOIDED: "VOIDED",
    Fate.INPUT_INVALID: "VOIDED",
    Fate.PAUSED: "PENDING",
    Fate.CROWDED: "PENDING",
    Fate.LIMITED: "PENDING",
}


@dataclass(frozen=True, slots=True)
class LockedRow:
    """A locked request with the stored rows that it was read from."""

    facts: LockedRequest
    definition: StepDefinition
    execution: Record
    step: Record

    @property
    def key(self) -> RequestKey:
        """Which attempt of which step it is."""
        return self.facts.placement.request.key

    @property
    def resources(self) -> Resources:
        """What it reserves on its node."""
        return self.facts.placement.request.requirement.affinity.minimum_resources


@dataclass(frozen=True, slots=True)
class DispatchedRow:
    """A locked request and what becomes of it; whether it takes a slot for a child process."""

    row: LockedRow
    fate: Fate
    takes_process_slot: bool
    wait: LimitWait | None = None
    """What a LIMITED one waits for."""


class DispatchWriter:
    """Writes judged batches in the caller's transaction, which holds all the locks."""

    def __init__(self, ids: IdSource, lease_ttl_s: float, parked_s: float) -> None:
        """`parked_s` is how long the requests of paused executions rest."""
        self._ids = ids
        self._lease_ttl = timedelta(seconds=lease_ttl_s)
        self._parked_s = parked_s

    async def write(
        self,
        connection: Connection,
        judged: Sequence[DispatchedRow],
        sequences: dict[NodeId, int],
        now: datetime,
    ) -> DispatchedBatch:
        """Write the batch; `sequences` are those of the nodes' newest commands."""
        placed = [one.row for one in judged if one.fate is Fate.DISPATCHED]
        in_process = [one.takes_process_slot for one in judged if one.fate is Fate.DISPATCHED]
        refused = [one.row for one in judged if one.fate is Fate.INPUT_INVALID]
        starting = {
            row.key.execution_id: row
            for row in placed
            if row.facts.execution_status is not ExecutionStatus.RUNNING
        }
        late = {one.row.key.execution_id for one in judged if one.fate is Fate.LATE}
        to_advance = frozenset(late | {row.key.execution_id for row in refused})
        numbers = dict(sequences)
        attempt_ids = [self._ids.new_id() for _ in placed]
        attempts = [
            self._attempt(row, attempt_id, numbers, now)
            for row, attempt_id in zip(placed, attempt_ids, strict=True)
        ]
        await take_slots(
            connection,
            [
                TakenSlots(attempt_id, row.facts.placement.request.limits)
                for row, attempt_id in zip(placed, attempt_ids, strict=True)
            ],
        )
        await connection.execute(
            _SQL.dispatch,
            self._lease_ttl,
            *_columns(attempts, 19),
            *_columns(list(self._requests(judged, now)), 8),
            *_columns([_refusal(row) for row in refused], 4),
            *_columns(_executions(starting, to_advance), 3),
            *_columns(_nodes(placed, numbers), 7),
            in_process,
            _process_counts(placed, in_process),
        )
        events = [self._started(row, now) for row in starting.values()]
        await append_events(connection, self._ids, events)
        known = [one.row.facts.attempt_node_id for one in judged if one.fate is Fate.KNOWN]
        return DispatchedBatch(
            fates={one.row.key: one.fate for one in judged},
            node_ids=frozenset(row.facts.placement.node_id for row in placed)
            | frozenset(node_id for node_id in known if node_id is not None),
            started=frozenset(starting),
            to_advance=to_advance,
        )

    def _attempt(
        self, row: LockedRow, attempt_id: str, numbers: dict[NodeId, int], now: datetime
    ) -> Sequence[object]:
        STEP_MACHINE.path(row.facts.step_status, StepStatus.RUNNING)
        node_id = row.facts.placement.node_id
        numbers[node_id] += 1
        deadline_at = run_deadline_at(row.definition.timeouts, row.step["ready_at"] or now, now)
        needs = row.resources
        key = row.key
        return (
            attempt_id,
            key.execution_id,
            key.step.step_key,
            key.step.item_index,
            key.attempt_number,
            row.execution["task_id"],
            row.execution["application_id"],
            node_id,
            deadline_at,
            needs.cpu_millis,
            needs.memory_bytes,
            needs.disk_bytes,
            needs.gpu_count,
            self._ids.new_id(),
            numbers[node_id],
            _payload(row, attempt_id, (deadline_at - now).total_seconds()),
            _ACTOR,
            json.dumps({"attempt": key.attempt_number, "node_id": node_id}),
            bool(row.facts.placement.request.limits),
        )

    def _requests(
        self, judged: Sequence[DispatchedRow], now: datetime
    ) -> Iterable[Sequence[object]]:
        for one in judged:
            status = _REQUEST_STATUS.get(one.fate)
            if status is not None:
                waiting = self._waiting(one, now)
                yield (*_place(one.row), one.row.key.attempt_number, status, *waiting)

    def _waiting(self, one: DispatchedRow, now: datetime) -> tuple[float, str | None, str | None]:
        """Return for how long a request rests, why, and for which key of a limit."""
        if one.fate is Fate.PAUSED:
            return self._parked_s, _PAUSED, None
        if one.wait is None:
            return 0.0, None, None
        until = one.wait.until
        rest_s = self._parked_s if until is None else max((until - now).total_seconds(), 0.0)
        reasons = json.dumps([one.wait.sentence], ensure_ascii=False)
        return rest_s, reasons, one.wait.identity

    def _started(self, row: LockedRow, now: datetime) -> NewEvent:
        stored, event_id = row.execution, self._ids.new_id()
        event = ExecutionEvent(
            application_id=stored["application_id"],
            task_id=TaskId(stored["task_id"]),
            execution_id=row.key.execution_id,
            external_ref=stored["external_ref"],
            sequence=stored["last_sequence"] + 1,
            run=stored["run"],
            status=ExecutionStatus.RUNNING,
            progress=stored["progress_percent"],
        )
        return NewEvent(
            execution_id=row.key.execution_id,
            event_id=event_id,
            sequence=event.sequence,
            type=ExecutionEventType.STARTED,
            status=ExecutionStatus.RUNNING,
            progress_percent=event.progress,
            envelope=envelope(event, ExecutionEventType.STARTED, event_id, now),
            application_id=stored["application_id"],
            with_callback=stored["with_callback"],
        )


def _place(row: LockedRow) -> tuple[str, str, int]:
    return row.key.execution_id, row.key.step.step_key, row.key.step.item_index


def _payload(row: LockedRow, attempt_id: str, run_timeout_s: float) -> str:
    key, heartbeat = row.key, row.definition.timeouts.heartbeat
    return RunPayload(
        attempt_id=attempt_id,
        # The step instance's counter: it is raised with each attempt and not by renewals.
        lease_version=key.attempt_number,
        task_id=row.execution["task_id"],
        execution_id=key.execution_id,
        step_key=key.step.step_key,
        item_index=key.step.item_index,
        attempt_number=key.attempt_number,
        capability=row.definition.capability,
        capability_version=row.definition.capability_version,
        input_json=row.step["input"] or "null",
        run_timeout_s=run_timeout_s,
        heartbeat_timeout_s=0.0 if heartbeat is None else heartbeat.total_seconds(),
        memory_bytes_max=row.resources.memory_bytes,
        traceparent=row.execution["traceparent"],
    ).to_json()


def _refusal(row: LockedRow) -> Sequence[object]:
    STEP_MACHINE.path(row.facts.step_status, StepStatus.FAILED)
    failure = Failure(
        "INPUT_INVALID", row.facts.input_problem, row.key.step.step_key, row.key.step.item_index
    )
    return (*_place(row), failure.to_json())


def _executions(
    starting: Mapping[ExecutionId, LockedRow], to_advance: frozenset[ExecutionId]
) -> list[Sequence[object]]:
    return [
        (execution_id, _moves(starting.get(execution_id)), execution_id in to_advance)
        for execution_id in sorted(starting.keys() | to_advance)
    ]


def _moves(row: LockedRow | None) -> int:
    """Count the moves of an execution that begins to run: QUEUED may lie between."""
    if row is None:
        return 0
    queued = EXECUTION_MACHINE.path(row.facts.execution_status, ExecutionStatus.QUEUED)
    running = EXECUTION_MACHINE.path(ExecutionStatus.QUEUED, ExecutionStatus.RUNNING)
    return len(queued) + len(running)


def _nodes(placed: Sequence[LockedRow], numbers: dict[NodeId, int]) -> list[Sequence[object]]:
    taken: defaultdict[NodeId, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    for row in placed:
        needs = row.resources
        sums = taken[row.facts.placement.node_id]
        amounts = (1, needs.cpu_millis, needs.memory_bytes, needs.disk_bytes, needs.gpu_count)
        for place, amount in enumerate(amounts):
            sums[place] += amount
    return [(node_id, *sums, numbers[node_id]) for node_id, sums in sorted(taken.items())]


def _process_counts(placed: Sequence[LockedRow], in_process: Sequence[bool]) -> list[int]:
    """Count the process slots that are taken, by ascending node as `_nodes` has them."""
    counts = dict.fromkeys(sorted(row.facts.placement.node_id for row in placed), 0)
    for row, takes in zip(placed, in_process, strict=True):
        counts[row.facts.placement.node_id] += takes
    return list(counts.values())


def _columns(rows: Sequence[Sequence[object]], count: int) -> list[list[object]]:
    """Turn rows into columns; `count` of them where there is no row."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(count)]
