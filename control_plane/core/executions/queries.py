"""Reading tasks and executions: an application sees its own, an operator all."""

from collections.abc import Sequence
from typing import Protocol

from control_plane.core.errors import ControlPlaneError
from control_plane.core.executions.filters import TaskFilter
from control_plane.core.executions.views import (
    AttemptView,
    EventView,
    ExecutionView,
    StepView,
    TaskView,
    TimelineView,
)
from foundation.errors import NotFoundError
from foundation.ids import parse_id
from foundation.principals import Principal, PrincipalKind, Scope


class TaskNotFoundError(ControlPlaneError, NotFoundError):
    """There is no such task, or it is another application's."""

    reason = "TASK_NOT_FOUND"


class ExecutionNotFoundError(ControlPlaneError, NotFoundError):
    """There is no such execution, or it is another application's."""

    reason = "EXECUTION_NOT_FOUND"


class ExecutionReader(Protocol):
    """Reads facts as they are committed; `owner` None sees every application's."""

    async def task(self, task_id: str, owner: str | None) -> TaskView | None:
        """Read one task with its current execution."""
        ...

    async def tasks(
        self, owner: str | None, wanted: TaskFilter, before_id: str | None, limit: int
    ) -> Sequence[TaskView]:
        """Read up to `limit` tasks older than `before_id`, newest first."""
        ...

    async def executions_of(
        self, task_id: str, before_run: int | None, limit: int
    ) -> Sequence[ExecutionView]:
        """Read up to `limit` executions of a task below `before_run`, newest first."""
        ...

    async def execution(self, execution_id: str, owner: str | None) -> ExecutionView | None:
        """Read one execution."""
        ...

    async def events(
        self, execution_id: str, after_sequence: int, limit: int
    ) -> Sequence[EventView]:
        """Read up to `limit` events after a sequence, in order."""
        ...

    async def steps(
        self, execution_id: str, after: tuple[int, int] | None, limit: int
    ) -> Sequence[StepView]:
        """Read up to `limit` steps after (position, item index), in that order."""
        ...

    async def attempts(
        self, execution_id: str, step_key: str, after_id: str | None, limit: int
    ) -> Sequence[AttemptView]:
        """Read up to `limit` attempts after an attempt id, oldest first; "" means every step."""
        ...

    async def attempt(self, execution_id: str, attempt_id: str) -> AttemptView | None:
        """Read one attempt of an execution."""
        ...

    async def timeline(
        self, execution_id: str, after_id: int, limit: int
    ) -> Sequence[TimelineView]:
        """Read up to `limit` timeline entries after an entry id, oldest first."""
        ...


def owner_of_view(principal: Principal) -> str | None:
    """Return whose tasks the principal may see: its own application's, or everyone's (None)."""
    principal.require_scope(Scope.READ)
    principal.require_kind(PrincipalKind.APPLICATION, PrincipalKind.OPERATOR)
    return principal.id if principal.kind is PrincipalKind.APPLICATION else None


def owner_of_list(principal: Principal, application_id: str) -> str | None:
    """Return whose tasks a list or a bulk act is about: an operator may name one application."""
    owner = owner_of_view(principal)
    if application_id and owner is None:
        return parse_id(application_id, "application_id")
    return owner


class ExecutionQueries:
    """Every read of TaskService, after the check of whose it is."""

    def __init__(self, reader: ExecutionReader) -> None:
        self.reader = reader

    async def task(self, principal: Principal, task_id: str) -> TaskView:
        """Read one task; TaskNotFoundError."""
        wanted = parse_id(task_id, "task_id")
        found = await self.reader.task(wanted, owner_of_view(principal))
        if found is None:
            raise TaskNotFoundError(f"there is no task {wanted}: check its id")
        return found

    async def execution(self, principal: Principal, execution_id: str) -> ExecutionView:
        """Read one execution; ExecutionNotFoundError. Its parts may be read after this."""
        wanted = parse_id(execution_id, "execution_id")
        found = await self.reader.execution(wanted, owner_of_view(principal))
        if found is None:
            raise ExecutionNotFoundError(f"there is no execution {wanted}: check its id")
        return found

    async def step(
        self, principal: Principal, execution_id: str, position: int, item_index: int
    ) -> StepView:
        """Read one step instance by its place in the definition; ExecutionNotFoundError."""
        execution = await self.execution(principal, execution_id)
        before = (position, item_index - 1)
        (found,) = await self.reader.steps(execution.execution_id, before, 1)
        return found

    async def attempt(
        self, principal: Principal, execution_id: str, attempt_id: str
    ) -> AttemptView:
        """Read one attempt of an execution; ExecutionNotFoundError."""
        execution = await self.execution(principal, execution_id)
        found = await self.reader.attempt(execution.execution_id, attempt_id)
        if found is None:
            raise ExecutionNotFoundError(f"attempt {attempt_id} was removed with its execution")
        return found
