"""Limits of workflows: an execution takes its slots to leave CREATED, and frees them at its end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from control_plane.adapters.outbound.postgres.limit_store import (
    TakenSlots,
    free_slots,
    lock_limits,
    take_slots,
    wake_waiting,
)
from control_plane.core.engine.limiting import workflow_uses
from control_plane.core.engine.ports import Advance, LoadedExecution
from control_plane.core.executions.execution_state import EXECUTION_MACHINE, ExecutionStatus
from control_plane.core.executions.outcomes import Aftermath
from control_plane.core.scheduling.limits import LimitUse, LimitWait
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection

_SQL: Final = NamedSql.load("control_plane.sql.queries", "limits.sql")


@dataclass(frozen=True, slots=True)
class Admitted:
    """Which of the loaded executions may be advanced now, and what follows for the slots."""

    executions: Sequence[LoadedExecution]
    uses: Mapping[str, Sequence[LimitUse]] = field(default_factory=dict)
    """The slots of those that enter."""
    held: Sequence[tuple[LoadedExecution, LimitWait]] = ()
    keys_with_room: Sequence[str] = ()

    @property
    def held_due_at(self) -> datetime | None:
        """When the first of the held ones is looked at again without being woken."""
        moments = (_due_at(execution, wait) for execution, wait in self.held)
        return min((one for one in moments if one is not None), default=None)


def waits_to_enter(execution: LoadedExecution) -> bool:
    """Whether the execution has not begun and needs a slot for that."""
    facts = execution.facts
    if facts.status is not ExecutionStatus.CREATED or not execution.workflow.limits:
        return False
    # One that is too late needs no slot to time out.
    return facts.deadline_at is None or execution.now < facts.deadline_at


def frees_slots(advance: Advance) -> bool:
    """Whether the execution ends here and may have held slots."""
    facts, change = advance.execution.facts, advance.decision.execution
    return (
        bool(advance.execution.workflow.limits)
        and facts.status is not ExecutionStatus.CREATED
        and change is not None
        and EXECUTION_MACHINE.is_terminal(change.status)
    )


async def admit(
    connection: Connection, loaded: Sequence[LoadedExecution], errors: dict[str, Exception]
) -> Admitted:
    """Lock the keys of those that wait to enter, and say who may; the urgent and older first.

    An execution whose keys cannot be evaluated is left out, its error noted.
    """
    entering = [one for one in loaded if waits_to_enter(one)]
    if not entering:
        return Admitted(loaded)
    uses: dict[str, Sequence[LimitUse]] = {}
    for one in entering:
        facts = one.facts
        try:
            uses[facts.execution_id] = workflow_uses(
                one.workflow, facts.application_id, facts.input_json
            )
        except Exception as error:  # noqa: BLE001 - stored with the execution it belongs to
            errors[facts.execution_id] = error
    board, now = await lock_limits(connection, (use for each in uses.values() for use in each))
    held: dict[str, tuple[LoadedExecution, LimitWait]] = {}
    for one in sorted(entering, key=lambda one: (-one.priority, one.facts.execution_id)):
        execution_id = one.facts.execution_id
        if execution_id in uses:
            wait = board.take(uses[execution_id], now or one.now)
            if wait is not None:
                held[execution_id] = (one, wait)
    free = [
        one
        for one in loaded
        if one.facts.execution_id not in held and one.facts.execution_id not in errors
    ]
    entered = {key: value for key, value in uses.items() if key not in held}
    return Admitted(free, entered, tuple(held.values()), board.with_room())


async def settle(
    connection: Connection, admitted: Admitted, advances: Sequence[Advance]
) -> Aftermath:
    """Write who has taken, and who waits for, a slot; free those of executions that are over."""
    entered = [
        TakenSlots(one.execution.facts.execution_id, uses)
        for one in advances
        if (uses := admitted.uses.get(one.execution.facts.execution_id)) is not None
        and not _is_over(one)
    ]
    await take_slots(connection, entered)
    if admitted.held:
        await connection.execute(
            _SQL.hold_executions,
            [one.facts.execution_id for one, _ in admitted.held],
            [wait.identity for _, wait in admitted.held],
            [one.priority for one, _ in admitted.held],
            [wait.sentence for _, wait in admitted.held],
            [_due_at(one, wait) for one, wait in admitted.held],
        )
    woken = await wake_waiting(connection, admitted.keys_with_room)
    over = [one.execution.facts.execution_id for one in advances if frees_slots(one)]
    return woken | await free_slots(connection, over)


def _is_over(advance: Advance) -> bool:
    change = advance.decision.execution
    return change is not None and EXECUTION_MACHINE.is_terminal(change.status)


def _due_at(execution: LoadedExecution, wait: LimitWait) -> datetime | None:
    moments = (execution.facts.deadline_at, wait.until)
    return min((one for one in moments if one is not None), default=None)
