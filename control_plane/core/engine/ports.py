"""What the engine's driver asks of storage."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from control_plane.core.engine.decisions import Decision
from control_plane.core.engine.facts import ExecutionFacts
from control_plane.core.executions.outcomes import Aftermath
from control_plane.core.workflows.compiling import CompiledWorkflow


@dataclass(frozen=True, slots=True)
class LoadedExecution:
    """A locked execution with all that deciding and telling about it needs.

    `now` is the database's time, read after the lock was taken.
    """

    facts: ExecutionFacts
    workflow: CompiledWorkflow
    now: datetime
    last_sequence: int
    next_due_at: datetime | None
    advance_failures: int
    priority: int
    with_callback: bool


@dataclass(frozen=True, slots=True)
class EnvelopedEvent:
    """A planned event with its identity, its place in the order, and its envelope."""

    event_id: str
    sequence: int
    type: str
    status: str
    progress_percent: int
    envelope: str


@dataclass(frozen=True, slots=True)
class Advance:
    """What one advance writes."""

    execution: LoadedExecution
    decision: Decision
    events: tuple[EnvelopedEvent, ...]

    @property
    def changes_nothing(self) -> bool:
        """Whether the stored row is already as it is to be."""
        before = self.execution
        return (
            self.decision.changes_nothing
            and self.decision.next_due_at == before.next_due_at
            and before.advance_failures == 0
        )


Advancing = Callable[[LoadedExecution], Advance]
"""Decides one execution; pure, so that it may run again when a transaction has to."""


@dataclass(frozen=True, slots=True)
class AdvancedBatch:
    """What a committed batch came to.

    `sequences` maps each execution that was looked at to its last event's sequence by then.
    Those that were asked for and are in neither it nor `failed` are over, set aside, or wait
    for their next try. `due_in_s` is when the first of them wants to be looked at again.
    """

    sequences: Mapping[str, int] = field(default_factory=dict)
    failed: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()
    """Executions that have new events."""
    asks_for_nodes: bool = False
    due_in_s: float | None = None
    aftermath: Aftermath = field(default_factory=Aftermath)


@dataclass(frozen=True, slots=True)
class DueExecutions:
    """Executions whose due time has come, and in how many seconds the next one's will."""

    execution_ids: Sequence[str]
    next_due_in_s: float | None


class EngineStore(Protocol):
    """Executions as the engine advances them."""

    async def advance(self, execution_ids: Sequence[str], advancing: Advancing) -> AdvancedBatch:
        """Lock, load, decide and write the executions, in one transaction for all of them.

        No id occurs twice. An execution whose decision or data fails is stored with its
        error and a later due time, and the others go on without it; after ten failures in a
        row it is set aside. Raises only what strikes all alike: an unreachable database.
        """
        ...

    async def due(self, count_max: int) -> DueExecutions:
        """Return the executions that nobody set aside and that are due, the oldest first."""
        ...
