"""Says of a new task, at once, which of its steps no known node could ever run."""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from control_plane.core.scheduling.domain import (
    NodeFacts,
    Requirement,
    closest,
    could_ever_qualify,
    waiting_sentence,
)
from control_plane.core.workflows.compiling import CompiledWorkflow
from control_plane.core.workflows.domain import StepKind
from foundation.clock import Clock

# Good news may be this old. Bad news is checked again before it is told, but not more often
# than that, so that a burst of impossible tasks costs no query each.
NODES_AGE_MAX_S: Final = 5.0
RECHECK_AFTER_S: Final = 0.5
WARNINGS_MAX: Final = 20
_DIGESTS_MAX: Final = 1_000


class KnownNodes(Protocol):
    """Where the nodes are read."""

    async def nodes(self) -> Sequence[NodeFacts]:
        """Return all nodes as they are now."""
        ...


class Foresight:
    """Judges workflows by the nodes that are known, at the cost of a query every few seconds."""

    def __init__(self, known: KnownNodes, clock: Clock) -> None:
        """Nothing is read before the first workflow is judged."""
        self._known = known
        self._clock = clock
        self._reading = asyncio.Lock()
        self._nodes: Sequence[NodeFacts] = ()
        self._read_at_s: float | None = None
        self._warnings: dict[str, tuple[str, ...]] = {}

    async def warnings(self, workflow: CompiledWorkflow) -> tuple[str, ...]:
        """Return a sentence for each step that no known node could ever run, at most 20."""
        await self._refresh(NODES_AGE_MAX_S)
        if self._judged(workflow):
            await self._refresh(RECHECK_AFTER_S)
        return self._judged(workflow)

    def _judged(self, workflow: CompiledWorkflow) -> tuple[str, ...]:
        if workflow.digest not in self._warnings:
            if len(self._warnings) >= _DIGESTS_MAX:
                self._warnings.clear()
            self._warnings[workflow.digest] = impossible_steps(workflow, self._nodes)
        return self._warnings[workflow.digest]

    async def _refresh(self, age_max_s: float) -> None:
        if self._is_younger(age_max_s):
            return
        async with self._reading:
            if not self._is_younger(age_max_s):  # Another one may have read meanwhile.
                self._nodes = await self._known.nodes()
                self._warnings.clear()
                self._read_at_s = self._clock.monotonic()

    def _is_younger(self, age_max_s: float) -> bool:
        read_at_s = self._read_at_s
        return read_at_s is not None and self._clock.monotonic() - read_at_s < age_max_s


def impossible_steps(workflow: CompiledWorkflow, nodes: Sequence[NodeFacts]) -> tuple[str, ...]:
    """Return a sentence for each step that none of the nodes could ever run, at most 20."""
    sentences: list[str] = []
    for step in workflow.steps.values():
        definition = step.definition
        if definition.kind is not StepKind.CAPABILITY:
            continue
        requirement = Requirement(
            definition.capability, definition.capability_version, definition.affinity
        )
        if not could_ever_qualify(nodes, requirement):
            sentence = f"Step {step.key}: {waiting_sentence(nodes, requirement)}"
            sentences.append(f"{sentence} {closest(nodes, requirement)}".strip())
    return tuple(sentences[:WARNINGS_MAX])
