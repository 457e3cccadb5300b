"""What the use cases of executions need of their stores."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from control_plane.core.idempotency import RequestIdentity
from control_plane.core.workflows.compiling import CompiledWorkflow
from control_plane.core.workflows.ports import PublishedWorkflow


@dataclass(frozen=True, slots=True)
class IntakeLookup:
    """What CreateTask needs to know before it checks anything; an empty version is the newest."""

    identity: RequestIdentity
    application_id: str
    workflow_name: str
    workflow_version: str


@dataclass(frozen=True, slots=True)
class IntakeFacts:
    """What is known: the key's record, the application, the workflow (None: there is none)."""

    recorded_hash: bytes | None
    recorded_answer: str | None
    application_known: bool
    application_disabled: bool
    application_callback_url: str
    workflow: PublishedWorkflow | None


@dataclass(frozen=True, slots=True)
class NewTask:
    """A checked task with its first execution and event, ready for one transaction.

    `snapshot_json` is None where the published workflow's own snapshot serves.
    """

    identity: RequestIdentity
    answer: str
    task_id: str
    execution_id: str
    application_id: str
    name: str
    external_ref: str
    workflow_name: str
    workflow_version: str
    priority: int
    input_json: str
    callback_url: str
    labels_json: str
    traceparent: str
    snapshot_digest: str
    snapshot_json: str | None
    timeout_s: float
    event_id: str
    envelope: str
    warnings: tuple[str, ...] = ()


class IntakeStore(Protocol):
    """Accepts tasks in batches; neither method sees one identity twice in a batch."""

    async def look_up(self, lookups: Sequence[IntakeLookup]) -> Sequence[IntakeFacts]:
        """Read the facts for each look-up, in order, in one statement."""
        ...

    async def create(self, tasks: Sequence[NewTask]) -> Sequence[bool]:
        """Store each task with execution, event, outbox row and record, in one transaction.

        False for a task whose idempotency key is known by then: nothing of it was stored.
        """
        ...


class IntakeBatches(Protocol):
    """The same for single items, which share the transactions of a burst."""

    async def look_up(self, lookup: IntakeLookup) -> IntakeFacts:
        """Read the facts for one look-up."""
        ...

    async def create(self, task: NewTask) -> bool:
        """Store one task; False if its key is known by then."""
        ...


class WorkflowForesight(Protocol):
    """Looks ahead to what a workflow will need."""

    async def warnings(self, workflow: CompiledWorkflow) -> tuple[str, ...]:
        """Return a sentence for each step that no known node could ever run."""
        ...


class QueueDepths(Protocol):
    """Counts what waits."""

    async def queued_executions(self, application_id: str, count_max: int) -> int:
        """Count the application's executions that are CREATED or QUEUED, up to `count_max`."""
        ...
