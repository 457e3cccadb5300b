"""Creates a schedule's tasks through the same intake that serves CreateTask."""

import json
from datetime import UTC, datetime
from typing import Final

from control_plane.core.executions.control import TaskControl
from control_plane.core.executions.intake import CreateTask, TaskIntake
from control_plane.core.executions.queries import TaskNotFoundError
from control_plane.core.schedules.domain import ScheduledTask
from control_plane.core.schedules.ports import Cancellation, ClaimedRun
from foundation.canonical_json import canonical_json
from foundation.principals import Principal, PrincipalKind, Scope

LABEL_SCHEDULE: Final = "tdp.schedule"
LABEL_DUE: Final = "tdp.due"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class IntakeTaskStarter:
    """Implements TaskStarter."""

    def __init__(self, intake: TaskIntake, control: TaskControl) -> None:
        self._intake = intake
        self._control = control

    async def check(
        self, principal: Principal, application_id: str, task: ScheduledTask, name: str
    ) -> None:
        """Raise what CreateTask would refuse the task for, now; nothing is stored."""
        await self._intake.check(
            principal, _request("check", application_id, "", name, task, _EPOCH)
        )

    async def start(self, run: ClaimedRun) -> str:
        """Create the run's task, or find it, and return its id; raises as CreateTask."""
        key = f"schedule:{run.schedule_id}:{due_text(run.due_at)}"
        if run.triggered:  # A trigger at a due time is a run of its own.
            key = f"{key}:{run.run_id}"
        accepted = await self._intake.create(
            _application(run.application_id),
            _request(key, "", run.schedule_id, run.task.name, run.task, run.due_at),
        )
        return accepted.task_id

    async def cancel(self, cancellation: Cancellation) -> None:
        """Ask for the cancellation of a task; one that is gone is none."""
        try:
            await self._control.cancel(
                _application(cancellation.application_id),
                f"schedule:{cancellation.schedule_id}:{cancellation.task_id}",
                cancellation.task_id,
                0,
                f"A newer run of schedule {cancellation.schedule_id} takes its place.",
            )
        except TaskNotFoundError:
            return


def due_text(due_at: datetime) -> str:
    """Return a due time as it stands in keys, labels and inputs: RFC 3339, UTC."""
    return due_at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def task_input(task: ScheduledTask, due_at: datetime) -> str:
    """Return the input of a run's task: the schedule's, with the due time under its key."""
    document = canonical_json(task.input_json or "{}", field="spec.task.input_json")
    if not task.due_time_key:
        return document
    # Put in as text, so that the other numbers stay as they were written.
    entry = f"{json.dumps(task.due_time_key, ensure_ascii=False)}:{json.dumps(due_text(due_at))}"
    rest = document.removeprefix("{")
    return "{" + entry + ("" if rest == "}" else ",") + rest


def _request(
    key: str,
    application_id: str,
    schedule_id: str,
    name: str,
    task: ScheduledTask,
    due_at: datetime,
) -> CreateTask:
    return CreateTask(
        idempotency_key=key,
        application_id=application_id,
        name=name,
        external_ref=task.external_ref,
        workflow_name=task.workflow_name,
        workflow_version=task.workflow_version,
        input_json=task_input(task, due_at),
        priority=task.priority,
        callback_url=task.callback_url,
        step_constraints_json=task.step_constraints_json,
        labels={**task.labels, LABEL_SCHEDULE: schedule_id, LABEL_DUE: due_text(due_at)},
        traceparent="",
    )


def _application(application_id: str) -> Principal:
    return Principal(
        PrincipalKind.APPLICATION, application_id, frozenset({Scope.SUBMIT, Scope.READ})
    )
