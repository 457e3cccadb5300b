"""Why a step runs where it does, or waits: one sentence, and a verdict on every node."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from control_plane.core.errors import ControlPlaneError
from control_plane.core.executions.domain import StepKey, StepRef
from control_plane.core.executions.execution_state import EXECUTION_MACHINE, ExecutionStatus
from control_plane.core.executions.step_state import STEP_MACHINE, StepStatus
from control_plane.core.scheduling.domain import (
    HEARTBEAT_TTL_S,
    NodeFacts,
    Requirement,
    could_ever_qualify,
    qualify,
    score,
    waiting_sentence,
)
from control_plane.core.scheduling.foresight import KnownNodes
from foundation.errors import NotFoundError

NODES_SHOWN_MAX: Final = 1_000


class StepNotFoundError(ControlPlaneError, NotFoundError):
    """The execution's workflow has no such step."""

    reason = "STEP_NOT_FOUND"


@dataclass(frozen=True, slots=True)
class StepStanding:
    """Where a step instance stands; of a step without items `ref` has none, whatever was asked.

    `requirement` is None for an approval; `step_status` None for an instance that does not
    exist yet. `sentence` says what a READY or WAITING one waits for, without its subject;
    `is_parked` that it is a node. `unfinished` are the dependencies that are not complete.
    """

    ref: StepRef
    execution_status: ExecutionStatus
    paused: bool
    step_status: StepStatus | None
    attempt_number: int = 0
    requirement: Requirement | None = None
    sentence: str = ""
    is_parked: bool = False
    requested_at: datetime | None = None
    node_name: str = ""
    dispatched_at: datetime | None = None
    unfinished: Sequence[StepKey] = ()


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """What one node is to a step: `reasons` is empty, and `points` its score, if it qualifies."""

    node_id: str
    name: str
    points: int
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer: the best nodes first, at most 1,000."""

    summary: str
    nodes: tuple[NodeVerdict, ...]
    never: bool


class StandingReader(Protocol):
    """Reads where step instances stand."""

    async def standing(self, execution_id: str, ref: StepRef) -> StepStanding | None:
        """Read one; None if the workflow of the execution has no such step."""
        ...


class Explanations:
    """The use case of ExplainScheduling; whose execution it is was checked before."""

    def __init__(
        self, reader: StandingReader, known: KnownNodes, heartbeat_ttl_s: float = HEARTBEAT_TTL_S
    ) -> None:
        self._reader = reader
        self._known = known
        self._heartbeat_ttl_s = heartbeat_ttl_s

    async def explain(self, execution_id: str, ref: StepRef) -> Explanation:
        """Explain one step instance; StepNotFoundError."""
        standing = await self._reader.standing(execution_id, ref)
        if standing is None:
            raise StepNotFoundError(
                f"the workflow of execution {execution_id} has no step {ref.step_key!r}: "
                "list its steps for their keys"
            )
        nodes = await self._known.nodes() if standing.requirement is not None else ()
        return explain(standing, nodes, self._heartbeat_ttl_s)


def explain(
    standing: StepStanding,
    nodes: Sequence[NodeFacts],
    heartbeat_ttl_s: float = HEARTBEAT_TTL_S,
) -> Explanation:
    """Judge every node, and put into one sentence what the step waits for."""
    requirement = standing.requirement
    if requirement is None:
        return Explanation(_summary(standing, nodes, ()), (), never=False)
    verdicts: list[tuple[tuple[int, int, str], NodeVerdict]] = []
    for node in nodes:
        reasons = qualify(node, requirement, heartbeat_ttl_s)
        points = 0 if reasons else score(node, requirement)
        lasting = sum(not one.is_passing for one in reasons)
        sentences = tuple(one.sentence for one in reasons)
        order = (lasting * 100 + len(reasons), -points, node.node_id)
        verdicts.append((order, NodeVerdict(node.node_id, node.name, points, sentences)))
    best = tuple(one for _, one in sorted(verdicts, key=lambda pair: pair[0]))
    return Explanation(
        _summary(standing, nodes, best),
        best[:NODES_SHOWN_MAX],
        never=not could_ever_qualify(nodes, requirement),
    )


def _summary(
    standing: StepStanding, nodes: Sequence[NodeFacts], best: Sequence[NodeVerdict]
) -> str:
    subject, status = f"Step {standing.ref}", standing.step_status
    if status is not None and STEP_MACHINE.is_terminal(status):
        return f"{subject} is {status}; it waits for nothing."
    if EXECUTION_MACHINE.is_terminal(standing.execution_status):
        return f"The execution is {standing.execution_status}; step {standing.ref} will not run."
    if status is StepStatus.RUNNING:
        since = _moment(standing.dispatched_at)
        return (
            f"Attempt {standing.attempt_number} of step {standing.ref} was given to node "
            f"{standing.node_name} at {since}; it ends with its report, or its lease."
        )
    if standing.unfinished:
        return f"{subject} waits for {', '.join(standing.unfinished)} to complete."
    if standing.paused:
        return f"{subject} waits because the execution is paused: resume it."
    if status is None or status is StepStatus.PENDING:
        return f"{subject} waits for the engine to open it: it is next."
    if standing.is_parked and standing.requirement is not None:
        return f"{subject} waits for a node since {_since(standing, nodes, best)}"
    return f"{subject} {standing.sentence}"


def _since(standing: StepStanding, nodes: Sequence[NodeFacts], best: Sequence[NodeVerdict]) -> str:
    assert standing.requirement is not None
    since = _moment(standing.requested_at)
    if best and not best[0].reasons:
        return f"{since}: {best[0].name} can take it now, and it is next or others come first."
    return f"{since}: {waiting_sentence(nodes, standing.requirement)}"


def _moment(at: datetime | None) -> str:
    return "an unknown time" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
