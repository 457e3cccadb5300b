"""CreateTask: a task is checked, then accepted durably with its first execution, once."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from control_plane.core.applications.endpoints import (
    CALLBACK_SCHEMES,
    EndpointPolicy,
    check_endpoint,
)
from control_plane.core.applications.errors import ApplicationNotFoundError
from control_plane.core.engine.limiting import workflow_uses
from control_plane.core.errors import ControlPlaneError
from control_plane.core.executions.admission import Admission
from control_plane.core.executions.domain import (
    ExecutionEvent,
    ExecutionEventType,
    ExecutionId,
    TaskId,
)
from control_plane.core.executions.envelope import envelope
from control_plane.core.executions.execution_state import ExecutionStatus
from control_plane.core.executions.ports import (
    IntakeBatches,
    IntakeFacts,
    IntakeLookup,
    NewTask,
    WorkflowForesight,
)
from control_plane.core.expressions.errors import ExpressionFailedError
from control_plane.core.expressions.values import from_json
from control_plane.core.idempotency import RequestIdentity, request_identity, reused
from control_plane.core.wakeups import LocalHints
from control_plane.core.workflows.application import (
    WorkflowDeprecatedError,
    WorkflowNotFoundError,
)
from control_plane.core.workflows.compiling import CompiledWorkflows
from control_plane.core.workflows.constraints import merge_constraints
from control_plane.core.workflows.ports import PublishedWorkflow
from control_plane.core.workflows.publishing import digest_of
from control_plane.limits import (
    EXTERNAL_REF_CHARS_MAX,
    LABEL_CHARS_MAX,
    LABEL_COUNT_MAX,
    PRIORITY_MAX,
    TASK_NAME_CHARS_MAX,
)
from foundation.canonical_json import JsonText, canonical_json, request_hash
from foundation.clock import Clock
from foundation.errors import FailedPreconditionError, FieldViolation, InvalidArgumentError
from foundation.failpoints import failpoint
from foundation.ids import IdSource, parse_id
from foundation.principals import Principal, PrincipalKind, Scope

_OPERATION: Final = "CreateTask"


class ApplicationDisabledError(ControlPlaneError, FailedPreconditionError):
    """The application takes no new tasks."""

    reason = "APPLICATION_DISABLED"


class TaskInvalidError(ControlPlaneError, InvalidArgumentError):
    """Fields of the request are wrong; each violation names one."""

    reason = "TASK_INVALID"


@dataclass(frozen=True, slots=True)
class CreateTask:
    """The request as sent; documents are JSON text, empty ones mean {} and none."""

    idempotency_key: str
    application_id: str
    name: str
    external_ref: str
    workflow_name: str
    workflow_version: str
    input_json: str
    priority: int
    callback_url: str
    step_constraints_json: str
    labels: Mapping[str, str]
    traceparent: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """What was created, or what the first call with this key created."""

    task_id: str
    execution_id: str
    workflow_version: str
    created: bool
    warnings: tuple[str, ...] = ()


class TaskIntake:
    """Accepts tasks: look-up, checks, one transaction. Both trips are shared by a burst."""

    def __init__(
        self,
        batches: IntakeBatches,
        workflows: CompiledWorkflows,
        foresight: WorkflowForesight,
        admission: Admission,
        ids: IdSource,
        clock: Clock,
        hints: LocalHints,
        policy: EndpointPolicy,
    ) -> None:
        self._batches = batches
        self._workflows = workflows
        self._foresight = foresight
        self._admission = admission
        self._ids = ids
        self._clock = clock
        self._hints = hints
        self._policy = policy

    async def create(self, principal: Principal, request: CreateTask) -> Accepted:
        """Accept the task, or repeat what was accepted under its key.

        Raises TaskInvalidError, InputInvalidError, ConstraintsInvalidError,
        EndpointRefusedError, WorkflowNotFoundError, WorkflowDeprecatedError,
        ApplicationDisabledError, AdmissionRefusedError, IdempotencyKeyReusedError.
        """
        principal.require_scope(Scope.SUBMIT)
        application_id = _owner(principal, request)
        identity = request_identity(
            principal, _OPERATION, request.idempotency_key, _hash_of(request)
        )
        lookup = IntakeLookup(
            identity, application_id, request.workflow_name, request.workflow_version
        )
        facts = await self._batches.look_up(lookup)
        replayed = _replay(identity, facts)
        if replayed is not None:
            return replayed
        _check_fields(request)
        await self._admission.admit(application_id)
        task = await self._new_task(identity, application_id, request, facts)
        return await self._accept(task, lookup)

    async def check(self, principal: Principal, request: CreateTask) -> None:
        """Raise what `create` would refuse the request for now; its key and admission aside.

        Nothing is stored: for schedules, which create their tasks later.
        """
        principal.require_scope(Scope.SUBMIT)
        application_id = _owner(principal, request)
        # A key that nobody has used, so that no stored answer is found.
        identity = request_identity(principal, "CheckTask", self._ids.new_id(), _hash_of(request))
        lookup = IntakeLookup(
            identity, application_id, request.workflow_name, request.workflow_version
        )
        facts = await self._batches.look_up(lookup)
        _check_fields(request)
        await self._new_task(identity, application_id, request, facts)

    async def _accept(self, task: NewTask, lookup: IntakeLookup) -> Accepted:
        await failpoint("intake.commit.before")
        created = await self._batches.create(task)
        await failpoint("intake.commit.after")
        if not created:  # A rival with the same key was faster: its answer counts.
            replayed = _replay(lookup.identity, await self._batches.look_up(lookup))
            assert replayed is not None, "a lost race leaves the winner's record"
            return replayed
        self._hints.events_written([task.execution_id])
        self._hints.engine.add([task.execution_id])
        return Accepted(
            task.task_id,
            task.execution_id,
            task.workflow_version,
            created=True,
            warnings=task.warnings,
        )

    async def _new_task(
        self,
        identity: RequestIdentity,
        application_id: str,
        request: CreateTask,
        facts: IntakeFacts,
    ) -> NewTask:
        workflow = _usable_workflow(request, facts)
        callback_url = _callback_url(request, facts, self._policy)
        snapshot_json = merge_constraints(workflow.definition_json, request.step_constraints_json)
        changed = snapshot_json != workflow.definition_json
        digest = digest_of(snapshot_json) if changed else workflow.digest
        input_json = canonical_json(request.input_json or "{}", field="input_json")
        compiled = self._workflows.get(snapshot_json, digest)
        compiled.input_schema.check(from_json(input_json), "input")
        try:
            workflow_uses(compiled, application_id, input_json)
        except ExpressionFailedError as error:
            raise TaskInvalidError.of_field(
                "input_json", f"gives the workflow no key: {error}"
            ) from error
        warnings = await self._foresight.warnings(compiled)
        task_id, execution_id = TaskId(self._ids.new_id()), ExecutionId(self._ids.new_id())
        event_id = self._ids.new_id()
        event = ExecutionEvent(
            application_id=application_id,
            task_id=task_id,
            execution_id=execution_id,
            external_ref=request.external_ref,
            sequence=1,
            run=1,
            status=ExecutionStatus.CREATED,
            progress=0,
        )
        return NewTask(
            identity=identity,
            answer=_answer(task_id, execution_id, workflow.version, warnings),
            warnings=warnings,
            task_id=task_id,
            execution_id=execution_id,
            application_id=application_id,
            name=request.name.strip(),
            external_ref=request.external_ref,
            workflow_name=workflow.name,
            workflow_version=workflow.version,
            priority=request.priority,
            input_json=input_json,
            callback_url=callback_url,
            labels_json=json.dumps(dict(request.labels), ensure_ascii=False),
            traceparent=request.traceparent,
            snapshot_digest=digest,
            snapshot_json=snapshot_json if changed else None,
            timeout_s=compiled.definition.timeout.total_seconds(),
            event_id=event_id,
            envelope=envelope(event, ExecutionEventType.CREATED, event_id, self._clock.now()),
        )


def _owner(principal: Principal, request: CreateTask) -> str:
    asked = request.application_id
    if principal.kind is PrincipalKind.OPERATOR:
        if not asked:
            raise TaskInvalidError.of_field(
                "application_id", "is empty: an operator names the application that owns the task"
            )
        return parse_id(asked, "application_id")
    principal.require_kind(PrincipalKind.APPLICATION)
    if asked and asked != principal.id:
        raise ApplicationNotFoundError(
            f"there is no application {asked}: leave application_id empty for your own"
        )
    return principal.id


def _hash_of(request: CreateTask) -> bytes:
    """Hash the fields as sent: an empty version stays empty, the trace context is left out."""
    return request_hash(
        _OPERATION,
        {
            "application_id": request.application_id,
            "name": request.name,
            "external_ref": request.external_ref,
            "workflow_name": request.workflow_name,
            "workflow_version": request.workflow_version,
            "input": _document(request.input_json),
            "priority": request.priority,
            "callback_url": request.callback_url,
            "step_constraints": _document(request.step_constraints_json),
            "labels": dict(request.labels),
        },
    )


def _document(text: str) -> JsonText | None:
    return JsonText(text) if text.strip() else None


def _replay(identity: RequestIdentity, facts: IntakeFacts) -> Accepted | None:
    if facts.recorded_answer is None:
        return None
    answer = json.loads(facts.recorded_answer)
    if facts.recorded_hash != identity.request_hash:
        raise reused(identity, answer["task_id"])
    return Accepted(
        answer["task_id"],
        answer["execution_id"],
        answer["workflow_version"],
        created=False,
        warnings=tuple(answer.get("warnings", ())),
    )


def _answer(
    task_id: str, execution_id: str, workflow_version: str, warnings: tuple[str, ...]
) -> str:
    answer: dict[str, object] = {
        "task_id": task_id,
        "execution_id": execution_id,
        "workflow_version": workflow_version,
    }
    if warnings:
        answer["warnings"] = warnings
    return json.dumps(answer, ensure_ascii=False)


def _check_fields(request: CreateTask) -> None:
    violations = list(_violations(request))
    if violations:
        raise TaskInvalidError.of_fields(violations)


def _violations(request: CreateTask) -> list[FieldViolation]:
    found: list[FieldViolation] = []

    def check(field: str, *, holds: bool, description: str) -> None:
        if not holds:
            found.append(FieldViolation(field, description))

    name_chars = len(request.name.strip())
    check(
        "name",
        holds=1 <= name_chars <= TASK_NAME_CHARS_MAX,
        description=f"has {name_chars} characters after trimming: send 1 to {TASK_NAME_CHARS_MAX}",
    )
    check(
        "external_ref",
        holds=len(request.external_ref) <= EXTERNAL_REF_CHARS_MAX,
        description=f"has {len(request.external_ref)} characters, over {EXTERNAL_REF_CHARS_MAX}",
    )
    check("workflow_name", holds=bool(request.workflow_name), description="is empty")
    check(
        "priority",
        holds=abs(request.priority) <= PRIORITY_MAX,
        description=f"is {request.priority}: send -{PRIORITY_MAX} to {PRIORITY_MAX}",
    )
    check(
        "labels",
        holds=len(request.labels) <= LABEL_COUNT_MAX
        and all(
            1 <= len(key) <= LABEL_CHARS_MAX and len(value) <= LABEL_CHARS_MAX
            for key, value in request.labels.items()
        ),
        description=f"send at most {LABEL_COUNT_MAX}, {LABEL_CHARS_MAX} characters a side",
    )
    texts = {
        field: getattr(request, field)
        for field in ("name", "external_ref", "workflow_name", "workflow_version", "traceparent")
    }
    for field, text in {**texts, "labels": "".join(chain(*request.labels.items()))}.items():
        check(
            field,
            holds="\x00" not in text,
            description="holds a NUL character: leave it out",
        )
    return found


def _usable_workflow(request: CreateTask, facts: IntakeFacts) -> PublishedWorkflow:
    if not facts.application_known:
        raise ApplicationNotFoundError("there is no such application: register it first")
    if facts.application_disabled:
        raise ApplicationDisabledError(
            "the application is disabled and takes no new tasks: ask an operator"
        )
    workflow = facts.workflow
    if workflow is None:
        version = request.workflow_version or "(any version)"
        raise WorkflowNotFoundError(
            f"there is no published workflow {request.workflow_name} {version}: publish it, or "
            "check name and version"
        )
    if workflow.deprecated_at is not None:
        raise WorkflowDeprecatedError(
            f"workflow {workflow.name} {workflow.version} is deprecated: name a newer version"
        )
    return workflow


def _callback_url(request: CreateTask, facts: IntakeFacts, policy: EndpointPolicy) -> str:
    if request.callback_url:
        return check_endpoint(request.callback_url, "callback_url", CALLBACK_SCHEMES, policy)
    return facts.application_callback_url
