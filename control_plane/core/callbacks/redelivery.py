"""Callbacks as people see them: listed with what came of them, and delivered again."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from control_plane.core.bulk import (
    DRY_RUN_COUNT_MAX,
    BulkAnswer,
    BulkPart,
    dry_run_answer,
    run_to_end,
)
from control_plane.core.executions.bulk import asked_filter
from control_plane.core.executions.filters import TaskFilter
from control_plane.core.executions.queries import ExecutionQueries, owner_of_list
from control_plane.core.idempotency import RequestIdentity, principal_text, request_identity
from control_plane.core.wakeups import LocalHints
from foundation.canonical_json import request_hash
from foundation.errors import InvalidArgumentError
from foundation.outbox.model import OPEN_STATUSES, SET_ASIDE_STATUSES, OutboxStatus
from foundation.principals import Principal, Scope

LOG_ENTRIES_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One thing that came of a delivery: failed, dead, delivered or redelivered."""

    kind: str
    detail: str
    occurred_at: datetime


@dataclass(frozen=True, slots=True)
class CallbackView:
    """One delivery; `position` is its place in the list."""

    callback_id: str
    event_id: str
    event_type: str
    application_id: str
    task_id: str
    execution_id: str
    sequence: int
    position: int
    status: OutboxStatus
    attempt_count: int
    held: bool
    redelivered: bool
    last_error: str
    created_at: datetime
    due_at: datetime
    delivered_at: datetime | None
    log: tuple[LogEntry, ...]


@dataclass(frozen=True, slots=True)
class CallbackSelection:
    """Which deliveries a list shows; None means any application's, any execution's."""

    owner: str | None
    execution_id: str | None
    statuses: frozenset[OutboxStatus]


@dataclass(frozen=True, slots=True)
class RedeliveryRequest:
    """A redelivery as it was asked for."""

    idempotency_key: str
    application_id: str
    execution_id: str
    filter: str
    include_delivered: bool
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Redelivery:
    """A checked redelivery: of one execution, or of the tasks that a filter finds."""

    identity: RequestIdentity
    owner: str | None
    execution_id: str | None
    wanted: TaskFilter
    statuses: frozenset[OutboxStatus]
    actor: str


class CallbackStore(Protocol):
    """Reads deliveries and makes finished ones due again."""

    async def page(
        self, selection: CallbackSelection, before: int | None, limit: int
    ) -> Sequence[CallbackView]:
        """Read up to `limit` deliveries before a position, newest first."""
        ...

    async def count(self, act: Redelivery, count_max: int) -> int:
        """Count what a redelivery would come to, up to `count_max`."""
        ...

    async def advance(self, act: Redelivery) -> BulkPart:
        """Do the next part of a redelivery, oldest first, with how far it came.

        IdempotencyKeyReusedError where the key stands for another request.
        """
        ...


class Callbacks:
    """What TaskService does with callbacks."""

    def __init__(self, store: CallbackStore, queries: ExecutionQueries, hints: LocalHints) -> None:
        self._store = store
        self._queries = queries
        self._hints = hints

    async def selection(
        self,
        principal: Principal,
        application_id: str,
        execution_id: str,
        status: OutboxStatus | None,
    ) -> CallbackSelection:
        """Check what a list is asked for; ExecutionNotFoundError."""
        owner = owner_of_list(principal, application_id)
        if not execution_id:
            if status is OutboxStatus.PUBLISHED:
                raise InvalidArgumentError.of_field(
                    "status", "is DELIVERED: name the execution_id whose callbacks are meant"
                )
            statuses = OPEN_STATUSES | SET_ASIDE_STATUSES if status is None else {status}
            return CallbackSelection(owner, None, frozenset(statuses))
        execution = await self._queries.execution(principal, execution_id)
        statuses = frozenset(OutboxStatus) if status is None else frozenset({status})
        return CallbackSelection(owner, execution.execution_id, statuses)

    async def page(
        self, selection: CallbackSelection, before: int | None, limit: int
    ) -> Sequence[CallbackView]:
        """Read up to `limit` deliveries before a position, newest first."""
        return await self._store.page(selection, before, limit)

    async def redeliver(self, principal: Principal, request: RedeliveryRequest) -> BulkAnswer:
        """Make finished deliveries due again; ExecutionNotFoundError, FilterInvalidError."""
        act = await self._checked(principal, request)
        if request.dry_run:
            return dry_run_answer(await self._store.count(act, DRY_RUN_COUNT_MAX))
        return await run_to_end(lambda: self._store.advance(act), self._announce)

    def _announce(self, part: BulkPart) -> None:
        if part.progress.changed:
            self._hints.callbacks.set()

    async def _checked(self, principal: Principal, request: RedeliveryRequest) -> Redelivery:
        principal.require_scope(Scope.SUBMIT)
        owner = owner_of_list(principal, request.application_id)
        if bool(request.execution_id) == bool(request.filter):
            raise InvalidArgumentError.of_field(
                "execution_id", "name either an execution_id or a filter, and not both"
            )
        hashed = request_hash(
            "RedeliverCallbacks",
            {
                "application_id": request.application_id,
                "execution_id": request.execution_id,
                "filter": request.filter,
                "include_delivered": request.include_delivered,
            },
        )
        identity = request_identity(
            principal, "RedeliverCallbacks", request.idempotency_key, hashed
        )
        execution_id = None
        if request.execution_id:
            execution = await self._queries.execution(principal, request.execution_id)
            execution_id = execution.execution_id
        statuses = SET_ASIDE_STATUSES
        if request.include_delivered:
            statuses |= {OutboxStatus.PUBLISHED}
        return Redelivery(
            identity=identity,
            owner=owner,
            execution_id=execution_id,
            wanted=asked_filter(request.filter) if request.filter else TaskFilter(),
            statuses=statuses,
            actor=principal_text(principal),
        )
