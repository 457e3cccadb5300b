"""What a rerun takes over from the run before: a pure plan over the steps as they ended.

A step is taken over only where every step that it waits for is taken over too: nothing is kept
that rests on something which runs again.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from control_plane.core.errors import ControlPlaneError
from control_plane.core.executions.domain import NO_ITEM, StepKey, StepRef
from control_plane.core.executions.step_state import StepStatus, is_complete
from control_plane.core.workflows.compiling import CompiledStep, CompiledWorkflow
from foundation.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

_KEPT: Final = frozenset({StepStatus.SUCCEEDED, StepStatus.SKIPPED})


class RerunMode(StrEnum):
    """How much of the run before is taken over.

    FROM_SCRATCH: nothing. REUSE_SUCCEEDED: what succeeded or was skipped, items of for_each
    steps included. FAILED_ITEMS: everything that is complete, but for the items that did not
    succeed. FROM_STEP: everything that is complete and does not wait for the named step.
    """

    FROM_SCRATCH = "FROM_SCRATCH"
    REUSE_SUCCEEDED = "REUSE_SUCCEEDED"
    FAILED_ITEMS = "FAILED_ITEMS"
    FROM_STEP = "FROM_STEP"


class StepUnknownError(ControlPlaneError, NotFoundError):
    """The execution's workflow has no such step, or the step no such item."""

    reason = "STEP_NOT_FOUND"


class NoFailedItemsError(ControlPlaneError, FailedPreconditionError):
    """No for_each step has an item that failed."""

    reason = "NO_FAILED_ITEMS"


class NothingToRerunError(ControlPlaneError, FailedPreconditionError):
    """The run succeeded, and all of it would be taken over."""

    reason = "NOTHING_TO_RERUN"


@dataclass(frozen=True, slots=True)
class Reuse:
    """How much a rerun takes over; `from_step` is set for FROM_STEP only."""

    mode: RerunMode = RerunMode.FROM_SCRATCH
    from_step: str = ""

    def __post_init__(self) -> None:
        """Raise InvalidArgumentError where mode and step do not go together."""
        if (self.mode is RerunMode.FROM_STEP) == bool(self.from_step):
            return
        described = "is not given" if not self.from_step else f"is {self.from_step!r}"
        raise InvalidArgumentError.of_field(
            "step_key", f"{described}: a step is named with RERUN_MODE_FROM_STEP, and only there"
        )


@dataclass(frozen=True, slots=True)
class ReusePlan:
    """Step instances of the run before: those that are taken over as they ended, and others.

    `lists` are for_each steps that keep their list and are gathered again; `items` are their
    items that run again.
    """

    kept: tuple[StepRef, ...] = ()
    lists: tuple[StepRef, ...] = ()
    items: tuple[StepRef, ...] = ()


def plan_reuse(
    workflow: CompiledWorkflow,
    ended: Mapping[StepRef, StepStatus],
    reuse: Reuse,
    *,
    has_succeeded: bool,
) -> ReusePlan:
    """Plan what the next run takes over of one whose step instances ended so.

    Raises StepUnknownError, NoFailedItemsError, NothingToRerunError, and InvalidArgumentError
    for the failure step. `has_succeeded` says that the run as a whole did.
    """
    if reuse.mode is RerunMode.FROM_SCRATCH:
        return ReusePlan()
    _check_step(workflow, reuse.from_step)
    draft = _Draft(workflow, ended, reuse)
    if reuse.mode is RerunMode.FAILED_ITEMS and not draft.has_failed_items():
        raise NoFailedItemsError(
            "no item of a for_each step has failed: use RERUN_MODE_REUSE_SUCCEEDED to repeat "
            "failed steps, or RERUN_MODE_FROM_STEP"
        )
    for step in workflow.order:
        draft.consider(step)
    if has_succeeded and draft.keeps_all():
        raise NothingToRerunError(
            "every step of this run succeeded or was skipped, so nothing is left to run: use "
            "RERUN_MODE_FROM_SCRATCH or RERUN_MODE_FROM_STEP"
        )
    return draft.plan()


def _check_step(workflow: CompiledWorkflow, from_step: str) -> None:
    if not from_step:
        return
    if StepKey(from_step) not in workflow.steps:
        raise StepUnknownError(f"the workflow has no step {from_step!r}: check its key")
    failure_step = workflow.failure_step
    if failure_step is not None and failure_step.key == from_step:
        raise InvalidArgumentError.of_field(
            "step_key", f"is the failure step {from_step!r}, which runs only after a failure"
        )


class _Draft:
    """One pass over the steps in the order of their dependencies."""

    def __init__(
        self, workflow: CompiledWorkflow, ended: Mapping[StepRef, StepStatus], reuse: Reuse
    ) -> None:
        self._workflow = workflow
        self._ended = ended
        self._reuse = reuse
        self._items: defaultdict[str, list[StepRef]] = defaultdict(list)
        for ref in sorted(ended):
            if ref.item_index != NO_ITEM:
                self._items[ref.step_key].append(ref)
        self._whole: set[str] = set()
        self._kept: list[StepRef] = []
        self._lists: list[StepRef] = []
        self._again: list[StepRef] = []

    def has_failed_items(self) -> bool:
        """Whether any item did not succeed."""
        return any(self._failed(key) for key in self._items)

    def consider(self, step: CompiledStep) -> None:
        """Keep the step, keep its list, or leave it to run again."""
        if step.key == self._reuse.from_step or not self._whole.issuperset(
            step.definition.depends_on
        ):
            return
        holder = StepRef(step.key)
        failed = self._failed(step.key)
        if self._is_kept(step, failed):
            self._whole.add(step.key)
            self._kept += [holder, *self._items[step.key]]
        elif failed:
            self._lists.append(holder)
            self._kept += [ref for ref in self._items[step.key] if self._ended[ref] in _KEPT]
            self._again += failed

    def keeps_all(self) -> bool:
        """Whether no step is left to run."""
        return len(self._whole) == len(self._workflow.order)

    def plan(self) -> ReusePlan:
        """Return what was found."""
        return ReusePlan(tuple(self._kept), tuple(self._lists), tuple(self._again))

    def _is_kept(self, step: CompiledStep, failed: list[StepRef]) -> bool:
        status = self._ended.get(StepRef(step.key))
        if status is None:
            return False
        if self._reuse.mode is RerunMode.REUSE_SUCCEEDED:
            return status in _KEPT
        if self._reuse.mode is RerunMode.FAILED_ITEMS and failed:
            return False
        return is_complete(status, continues_on_failure=step.definition.continues_on_failure)

    def _failed(self, key: str) -> list[StepRef]:
        return [ref for ref in self._items[key] if self._ended[ref] not in _KEPT]
