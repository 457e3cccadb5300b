"""Steering a task: cancel the current run, or run it again."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from control_plane.core.engine.reuse import Reuse
from control_plane.core.errors import ControlPlaneError
from control_plane.core.executions.queries import ExecutionQueries, TaskNotFoundError, owner_of_view
from control_plane.core.executions.views import ExecutionView
from control_plane.core.idempotency import RequestIdentity, request_identity
from control_plane.core.wakeups import LocalHints
from foundation.canonical_json import request_hash
from foundation.errors import FailedPreconditionError, InvalidArgumentError
from foundation.ids import parse_id
from foundation.principals import Principal, Scope

REASON_CHARS_MAX: Final = 500


class RunNotTerminalError(ControlPlaneError, FailedPreconditionError):
    """The current execution is still going, so there is nothing to run again."""

    reason = "RUN_NOT_TERMINAL"


@dataclass(frozen=True, slots=True)
class TaskAct:
    """One act on a task's run (0: the current one), by whom and why."""

    identity: RequestIdentity
    task_id: str
    owner: str | None
    run: int
    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class ActResult:
    """The execution that the answer shows, and whether this call changed anything."""

    execution_id: str
    created: bool


class TaskControlStore(Protocol):
    """Acts on tasks, one transaction each; a repeated identity repeats the first answer."""

    async def cancel(self, act: TaskAct) -> ActResult | None:
        """Ask for the cancellation of a live current run; None for an unknown task.

        A run that is not current, or terminal already, is answered and left alone.
        """
        ...

    async def rerun(self, act: TaskAct, reuse: Reuse) -> ActResult | None:
        """Start the next run, taking over what `reuse` says; None for an unknown task.

        RunNotTerminalError while the current one lives, and the errors of `plan_reuse`; a run
        that is not current is answered with the current one and changes nothing.
        """
        ...


def check_reason(reason: str) -> None:
    """Raise InvalidArgumentError for a reason that is too long to keep."""
    if len(reason) > REASON_CHARS_MAX:
        raise InvalidArgumentError.of_field(
            "reason", f"has {len(reason)} characters, over {REASON_CHARS_MAX}"
        )


class TaskControl:
    """The acts of TaskService on whole tasks."""

    def __init__(
        self, store: TaskControlStore, queries: ExecutionQueries, hints: LocalHints
    ) -> None:
        self._store = store
        self._queries = queries
        self._hints = hints

    async def cancel(
        self, principal: Principal, key: str, task_id: str, run: int, reason: str
    ) -> tuple[ExecutionView, bool]:
        """Ask for the cancellation of a run; TaskNotFoundError."""
        act = self._act(principal, "CancelTask", key, task_id, run, reason)
        return await self._shown(principal, act, await self._store.cancel(act))

    async def rerun(
        self,
        principal: Principal,
        key: str,
        task_id: str,
        run: int,
        reason: str,
        reuse: Reuse,
    ) -> tuple[ExecutionView, bool]:
        """Start the next run; TaskNotFoundError, RunNotTerminalError, errors of `plan_reuse`."""
        how = {"mode": reuse.mode.value, "step_key": reuse.from_step}
        act = self._act(principal, "RerunTask", key, task_id, run, reason, how)
        return await self._shown(principal, act, await self._store.rerun(act, reuse))

    def _act(
        self,
        principal: Principal,
        operation: str,
        key: str,
        task_id: str,
        run: int,
        reason: str,
        how: Mapping[str, str] = MappingProxyType({}),
    ) -> TaskAct:
        principal.require_scope(Scope.SUBMIT)
        if run < 0:
            raise InvalidArgumentError.of_field("run", f"is {run}: send 0 for the current run")
        check_reason(reason)
        hashed = request_hash(operation, {"task_id": task_id, "run": run, "reason": reason, **how})
        return TaskAct(
            identity=request_identity(principal, operation, key, hashed),
            task_id=parse_id(task_id, "task_id"),
            owner=owner_of_view(principal),
            run=run,
            actor=f"{principal.kind}:{principal.id}",
            reason=reason,
        )

    async def _shown(
        self, principal: Principal, act: TaskAct, result: ActResult | None
    ) -> tuple[ExecutionView, bool]:
        if result is None:
            raise TaskNotFoundError(f"there is no task {act.task_id}: check its id")
        if result.created:
            self._hints.events_written([result.execution_id])
            self._hints.engine.add([result.execution_id])
        return await self._queries.execution(principal, result.execution_id), result.created
