"""What a workflow definition says, once it is known to be right."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final

from control_plane.core.executions.domain import StepKey
from control_plane.core.expressions.values import JsonValue

WORKFLOW_TIMEOUT_DEFAULT: Final = timedelta(hours=24)
RUN_TIMEOUT_DEFAULT: Final = timedelta(hours=1)
# An approval, and a failure step, must end even if nobody answers and no node comes.
BOUNDED_STEP_TIMEOUT_DEFAULT: Final = timedelta(hours=24)


class StepKind(StrEnum):
    """Who does the work of a step: a node, or a person."""

    CAPABILITY = "capability"
    APPROVAL = "approval"


class OnFailure(StrEnum):
    """What a step's final failure means for its execution."""

    FAIL = "fail"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and when a failed attempt is repeated.

    `max_attempts` counts the first; losses of a node do not count. The wait before the
    n-th repetition is initial_delay · multiplierⁿ⁻¹, at most `max_delay`, spread by the
    fraction `jitter` (0–1) to both sides.
    """

    max_attempts: int = 3
    initial_delay: timedelta = timedelta(seconds=1)
    multiplier: float = 2.0
    max_delay: timedelta = timedelta(minutes=1)
    jitter: float = 0.2
    non_retryable_reasons: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StepTimeouts:
    """Bounds on a step's time; None means that only the larger bounds hold.

    `queue` runs while READY, `run` from dispatch of each attempt, `heartbeat` between two
    signs of life of an attempt, `total` from READY over all attempts (for an approval: how
    long it waits).
    """

    queue: timedelta | None = None
    run: timedelta = RUN_TIMEOUT_DEFAULT
    heartbeat: timedelta | None = None
    total: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Resources:
    """Amounts of a node's resources; memory and disk in bytes, CPU in thousandths of a core."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    gpu_count: int = 0


NO_RESOURCES: Final = Resources()


@dataclass(frozen=True, slots=True)
class Affinity:
    """Where a step may run, and where it would rather run."""

    node_id: str = ""
    group: str = ""
    required_labels: Mapping[str, str] = field(default_factory=dict)
    preferred_labels: Mapping[str, str] = field(default_factory=dict)
    minimum_resources: Resources = NO_RESOURCES


ANYWHERE: Final = Affinity()


class LimitScope(StrEnum):
    """Who shares the slots of a key: this workflow's executions, or all of the application's."""

    WORKFLOW = "workflow"
    APPLICATION = "application"


@dataclass(frozen=True, slots=True)
class LimitDefinition:
    """At most `count` at once for a key or, with `per`, at most so many starts in that time.

    `key` is a mapping that yields text, a number or a boolean. A step's limit counts attempts,
    a workflow's executions; in either scope these do not share slots with one another.
    """

    key: JsonValue
    count: int = 1
    per: timedelta | None = None
    scope: LimitScope = LimitScope.WORKFLOW


@dataclass(frozen=True, slots=True)
class StepDefinition:
    """One step of a workflow; expressions are still text here."""

    key: StepKey
    kind: StepKind = StepKind.CAPABILITY
    capability: str = ""
    capability_version: str = ""
    depends_on: tuple[StepKey, ...] = ()
    when: str = ""
    for_each: str = ""
    max_parallel: int | None = None
    input: JsonValue = field(default_factory=dict)
    retry: RetryPolicy = RetryPolicy()
    timeouts: StepTimeouts = StepTimeouts()
    affinity: Affinity = ANYWHERE
    on_failure: OnFailure = OnFailure.FAIL
    at_most_once: bool = False
    limits: tuple[LimitDefinition, ...] = ()

    @property
    def continues_on_failure(self) -> bool:
        """Whether the execution goes on when this step has failed for good."""
        return self.on_failure is OnFailure.CONTINUE


@dataclass(frozen=True, slots=True)
class WorkflowDefinition:
    """A whole workflow, identified by name and version; steps in the order written."""

    name: str
    version: str
    steps: tuple[StepDefinition, ...]
    input_schema: Mapping[str, JsonValue] = field(default_factory=dict)
    timeout: timedelta = WORKFLOW_TIMEOUT_DEFAULT
    output: JsonValue = None
    failure_step: StepKey | None = None
    limits: tuple[LimitDefinition, ...] = ()
