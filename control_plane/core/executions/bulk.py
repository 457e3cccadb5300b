"""Cancelling and rerunning every task that a filter finds."""

from dataclasses import dataclass, replace
from typing import Final, Protocol

from control_plane.core.bulk import (
    DRY_RUN_COUNT_MAX,
    BulkAnswer,
    BulkPart,
    dry_run_answer,
    run_to_end,
)
from control_plane.core.engine.reuse import RerunMode, Reuse
from control_plane.core.executions.control import check_reason
from control_plane.core.executions.execution_state import EXECUTION_MACHINE, ExecutionStatus
from control_plane.core.executions.filters import FilterInvalidError, TaskFilter, parse_filter
from control_plane.core.executions.queries import owner_of_list
from control_plane.core.idempotency import RequestIdentity, principal_text, request_identity
from control_plane.core.wakeups import LocalHints
from foundation.canonical_json import FieldValue, request_hash
from foundation.errors import InvalidArgumentError
from foundation.principals import Principal, Scope

_CANCELABLE: Final = frozenset(
    {ExecutionStatus.CREATED, ExecutionStatus.QUEUED, ExecutionStatus.RUNNING}
)
_TERMINAL: Final = frozenset(filter(EXECUTION_MACHINE.is_terminal, ExecutionStatus))


@dataclass(frozen=True, slots=True)
class BulkRequest:
    """A bulk act as it was asked for."""

    idempotency_key: str
    application_id: str
    filter: str
    dry_run: bool
    reason: str


@dataclass(frozen=True, slots=True)
class BulkAct:
    """A checked bulk act: on whose tasks, by whom and why; `reuse` is None for a cancel."""

    identity: RequestIdentity
    owner: str | None
    wanted: TaskFilter
    actor: str
    reason: str
    reuse: Reuse | None = None


class BulkStore(Protocol):
    """Bulk acts, a part a transaction."""

    async def count(self, owner: str | None, wanted: TaskFilter, count_max: int) -> int:
        """Count the tasks that fit, up to `count_max`."""
        ...

    async def advance(self, act: BulkAct) -> BulkPart:
        """Do the next part of an act, newest task first, with how far it came.

        A task whose state changed meanwhile, or that refuses, is passed over and counted.
        IdempotencyKeyReusedError where the key stands for another request.
        """
        ...


class BulkTasks:
    """The acts of TaskService on all tasks that a filter finds."""

    def __init__(self, store: BulkStore, hints: LocalHints) -> None:
        self._store = store
        self._hints = hints

    async def cancel(self, principal: Principal, request: BulkRequest) -> BulkAnswer:
        """Ask for the cancellation of every task that fits and can be cancelled."""
        act = _act(principal, "BulkCancelTasks", request, _CANCELABLE, {})
        return await self._done(act, request)

    async def rerun(
        self, principal: Principal, request: BulkRequest, mode: RerunMode
    ) -> BulkAnswer:
        """Start the next run of every task that fits and has ended.

        What succeeded is run again from scratch only: else nothing of it would be left to run.
        """
        if mode is RerunMode.FROM_STEP:
            raise InvalidArgumentError.of_field(
                "mode", "is RERUN_MODE_FROM_STEP: rerun from a step task by task"
            )
        may_be = _TERMINAL
        if mode is not RerunMode.FROM_SCRATCH:
            may_be -= {ExecutionStatus.SUCCEEDED}
        act = _act(principal, "BulkRerunTasks", request, may_be, {"mode": mode.value})
        return await self._done(replace(act, reuse=Reuse(mode)), request)

    async def _done(self, act: BulkAct, request: BulkRequest) -> BulkAnswer:
        if request.dry_run:
            return dry_run_answer(await self._store.count(act.owner, act.wanted, DRY_RUN_COUNT_MAX))
        return await run_to_end(lambda: self._store.advance(act), self._announce)

    def _announce(self, part: BulkPart) -> None:
        if part.execution_ids:
            self._hints.events_written(part.execution_ids)
            self._hints.engine.add(part.execution_ids)


def asked_filter(text: str) -> TaskFilter:
    """Read the filter of a bulk act; FilterInvalidError also for one that fits every task."""
    wanted = parse_filter(text)
    if wanted == TaskFilter():
        raise FilterInvalidError.of_field(
            "filter", "is empty: say which tasks are meant, for example status = RUNNING"
        )
    return wanted


def _act(
    principal: Principal,
    operation: str,
    request: BulkRequest,
    may_be: frozenset[ExecutionStatus],
    how: dict[str, FieldValue],
) -> BulkAct:
    principal.require_scope(Scope.SUBMIT)
    owner = owner_of_list(principal, request.application_id)
    check_reason(request.reason)
    wanted = asked_filter(request.filter)
    asked = may_be if wanted.statuses is None else wanted.statuses & may_be
    hashed = request_hash(
        operation,
        {
            "application_id": request.application_id,
            "filter": request.filter,
            "reason": request.reason,
            **how,
        },
    )
    return BulkAct(
        identity=request_identity(principal, operation, request.idempotency_key, hashed),
        owner=owner,
        wanted=replace(wanted, statuses=asked),
        actor=principal_text(principal),
        reason=request.reason,
    )
