"""Acting on a live execution: answer an approval, skip a step, pause, resume, extend a time-out."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from control_plane.core.executions.control import check_reason
from control_plane.core.executions.domain import NO_ITEM, StepKey, StepRef
from control_plane.core.executions.operation_rules import Signal
from control_plane.core.executions.queries import ExecutionQueries, owner_of_view
from control_plane.core.executions.views import AttemptView, ExecutionView, StepView
from control_plane.core.idempotency import RequestIdentity, request_identity
from control_plane.core.wakeups import LocalHints
from foundation.canonical_json import FieldValue, JsonText, canonical_json, request_hash
from foundation.errors import InvalidArgumentError
from foundation.ids import parse_id
from foundation.principals import Principal, Scope

EXTENSION_MIN: Final = timedelta(seconds=1)
EXTENSION_MAX: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class OperationRequest:
    """What every act is asked with; `subject_id` names an execution, or an attempt to extend."""

    idempotency_key: str
    subject_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StepAddress:
    """Which step instance of the execution is meant; the item index is -1 without for_each."""

    step_key: str
    item_index: int = NO_ITEM


@dataclass(frozen=True, slots=True)
class Act:
    """A checked act on an execution or attempt, by whom and why; `owner` None acts on anybody's."""

    identity: RequestIdentity
    subject_id: str
    owner: str | None
    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class StepActed:
    """The step's place in its definition, and whether this call changed anything."""

    position: int
    created: bool


@dataclass(frozen=True, slots=True)
class Extended:
    """The attempt's place and its present run deadline, and whether this call moved it."""

    execution_id: str
    node_id: str
    run_deadline_at: datetime | None
    created: bool


class OperationStore(Protocol):
    """Acts, one transaction each, decided under the execution's lock.

    A repeated identity changes nothing and answers as the first call did; what is as it is
    wanted already is left alone. Each raises ExecutionNotFoundError, ExecutionEndedError and
    IdempotencyKeyReusedError; changes go on the timeline with who and why.
    """

    async def signal(self, act: Act, ref: StepRef, signal: Signal) -> StepActed:
        """Answer a waiting approval.

        ExecutionCancelingError, StepUnknownError, StepNotWaitingError, InvalidArgumentError.
        """
        ...

    async def skip(self, act: Act, ref: StepRef) -> StepActed:
        """Skip a step that has not started.

        ExecutionCancelingError, StepUnknownError, StepStartedError.
        """
        ...

    async def pause(self, act: Act) -> bool:
        """Stop dispatching; ExecutionCancelingError."""
        ...

    async def resume(self, act: Act) -> bool:
        """Undo a pause, or the setting aside of an execution whose advance kept failing.

        What was left of queue times when the pause began is left of them afterwards.
        """
        ...

    async def extend(self, act: Act, extension: timedelta) -> Extended:
        """Move the run time-out of a live attempt, and tell its node.

        AttemptNotFoundError, AttemptNotRunningError.
        """
        ...


class ExecutionOperations:
    """The acts of TaskService on one live execution."""

    def __init__(self, store: OperationStore, queries: ExecutionQueries, hints: LocalHints) -> None:
        self._store = store
        self._queries = queries
        self._hints = hints

    async def signal(
        self,
        principal: Principal,
        request: OperationRequest,
        step: StepAddress,
        payload_json: str,
        *,
        approved: bool,
    ) -> tuple[StepView, bool]:
        """Answer a waiting approval; see OperationStore."""
        payload = canonical_json(payload_json or "{}", field="payload_json")
        fields: dict[str, FieldValue] = {
            **_step_fields(step),
            "approved": approved,
            "payload_json": JsonText(payload_json) if payload_json else "",
        }
        act = self._act(principal, "SignalStep", "execution_id", request, fields)
        signal = Signal(approved, payload, act.actor, act.reason)
        acted = await self._store.signal(act, _ref(step), signal)
        return await self._step(principal, act, step, acted)

    async def skip(
        self, principal: Principal, request: OperationRequest, step: StepAddress
    ) -> tuple[StepView, bool]:
        """Skip a step that has not started; see OperationStore."""
        act = self._act(principal, "SkipStep", "execution_id", request, _step_fields(step))
        acted = await self._store.skip(act, _ref(step))
        return await self._step(principal, act, step, acted)

    async def pause(
        self, principal: Principal, request: OperationRequest
    ) -> tuple[ExecutionView, bool]:
        """Stop dispatching; running attempts go on. See OperationStore."""
        act = self._act(principal, "PauseExecution", "execution_id", request, {})
        created = await self._store.pause(act)
        if created:
            self._hints.engine.add([act.subject_id])
        return await self._queries.execution(principal, act.subject_id), created

    async def resume(
        self, principal: Principal, request: OperationRequest
    ) -> tuple[ExecutionView, bool]:
        """Undo a pause; see OperationStore."""
        act = self._act(principal, "ResumeExecution", "execution_id", request, {})
        created = await self._store.resume(act)
        if created:
            self._hints.engine.add([act.subject_id])
            self._hints.requests_ready()
        return await self._queries.execution(principal, act.subject_id), created

    async def extend(
        self, principal: Principal, request: OperationRequest, extension: timedelta
    ) -> tuple[AttemptView, Extended]:
        """Move a live attempt's run time-out; see OperationStore."""
        if not EXTENSION_MIN <= extension <= EXTENSION_MAX:
            raise InvalidArgumentError.of_field(
                "extension", f"is {extension.total_seconds():g} s: send 1 s to 7 days"
            )
        fields = {"extension_us": extension // timedelta(microseconds=1)}
        act = self._act(principal, "ExtendAttempt", "attempt_id", request, fields)
        extended = await self._store.extend(act, extension)
        if extended.created:
            self._hints.nodes.add([extended.node_id])
        return (
            await self._queries.attempt(principal, extended.execution_id, act.subject_id),
            extended,
        )

    def _act(
        self,
        principal: Principal,
        operation: str,
        subject_field: str,
        request: OperationRequest,
        fields: Mapping[str, FieldValue],
    ) -> Act:
        principal.require_scope(Scope.SUBMIT)
        check_reason(request.reason)
        hashed = request_hash(
            operation, {subject_field: request.subject_id, "reason": request.reason, **fields}
        )
        return Act(
            identity=request_identity(principal, operation, request.idempotency_key, hashed),
            subject_id=parse_id(request.subject_id, subject_field),
            owner=owner_of_view(principal),
            actor=f"{principal.kind}:{principal.id}",
            reason=request.reason,
        )

    async def _step(
        self, principal: Principal, act: Act, step: StepAddress, acted: StepActed
    ) -> tuple[StepView, bool]:
        if acted.created:
            self._hints.engine.add([act.subject_id])
        found = await self._queries.step(principal, act.subject_id, acted.position, step.item_index)
        return found, acted.created


def _ref(step: StepAddress) -> StepRef:
    if not step.step_key:
        raise InvalidArgumentError.of_field("step_key", "is not given: name a step")
    if step.item_index < NO_ITEM:
        raise InvalidArgumentError.of_field(
            "item_index", f"is {step.item_index}: send an item's index, or -1 without for_each"
        )
    return StepRef(StepKey(step.step_key), step.item_index)


def _step_fields(step: StepAddress) -> dict[str, FieldValue]:
    return {"step_key": step.step_key, "item_index": step.item_index}
