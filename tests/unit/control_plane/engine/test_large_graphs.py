"""Graphs of up to 1,000 steps: random outcomes, restarts and repetitions lead to one end."""

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from control_plane.core.engine.domain import decide
from control_plane.core.engine.retry import AttemptEnd
from control_plane.core.executions.domain import StepRef
from control_plane.core.executions.execution_state import ExecutionStatus
from control_plane.core.executions.step_state import StepStatus
from control_plane.core.workflows.compiling import CompiledWorkflow, CompiledWorkflows
from tests.unit.control_plane.engine.world import CEL, World, step

ROUNDS_MAX = 4_000


def _definition(size: int, lenient: float, dice: Random) -> str:
    """Return a graph in which each step waits for up to three of the last third before it."""
    steps: list[dict[str, Any]] = []
    for place in range(size):
        near = range(max(place - size // 3, 0), place)
        chosen = dice.sample(near, min(len(near), dice.randint(0, 3)))
        waits_for = [f"s{one}" for one in sorted(chosen)]
        fields: dict[str, Any] = {
            "retry": {"max_attempts": dice.randint(2, 3), "initial_delay": "1s", "jitter": 0},
            "on_failure": "continue" if dice.random() < lenient else "fail",
        }
        if dice.random() < 0.05:
            fields["when"] = "false"
        elif dice.random() < 0.02:
            fields |= {"for_each": "[1, 2, 3]", "max_parallel": 2}
        elif waits_for:
            fields["input"] = {"seen": f"${{steps.{waits_for[0]}.output}}"}
        steps.append(step(f"s{place}", *waits_for, **fields))
    dice.shuffle(steps)
    return json.dumps({"name": "w", "version": "1", "steps": steps, "timeout": "300d"})


class _History:
    """One history of an execution: what happens when is random, how attempts end is not."""

    def __init__(
        self,
        replicas: list[CompiledWorkflow],
        seed: int,
        failing_percent: int,
        order: Random,
    ) -> None:
        self._replicas = replicas
        self._seed = seed
        self._failing_percent = failing_percent
        self._order = order
        self.world = World(replicas[0])

    def play(self) -> World:
        """Take turns until the execution is over."""
        for _ in range(ROUNDS_MAX):
            if self.world.is_over:
                return self.world
            self._turn()
        raise AssertionError(f"not over after {ROUNDS_MAX} rounds")

    def _turn(self) -> None:
        world, order = self.world, self._order
        world._apply(decide(world.workflow, world.facts, world.now))
        if order.random() < 0.5:
            self._restart()
        if order.random() < 0.1:  # The same wake-up again finds nothing to do.
            assert decide(world.workflow, world.facts, world.now).changes_nothing
        for ref in _some(world.dispatchable(), order):
            world.dispatch(ref)
        for ref in _some(self._running(), order):
            self._end(ref)
        if order.random() < 0.3:
            world.pass_time(order.random() * 3)

    def _restart(self) -> None:
        """Let another replica go on: it has compiled the snapshot itself, and loads the facts."""
        facts = self.world.facts
        self.world.workflow = self._order.choice(self._replicas)
        shuffled = list(facts.steps.items())
        self._order.shuffle(shuffled)
        self.world.facts = replace(facts, steps=dict(shuffled))

    def _running(self) -> list[StepRef]:
        steps = self.world.facts.steps.values()
        return sorted(one.ref for one in steps if one.status is StepStatus.RUNNING)

    def _end(self, ref: StepRef) -> None:
        running = self.world.facts.steps[ref]
        if running.stop_reason is not None:
            self.world.fail(ref, AttemptEnd.CANCELED)
            return
        dice = Random(f"{self._seed}/{ref}/{running.attempt_number}").randrange(100)
        if dice >= self._failing_percent:
            self.world.succeed(ref, str(ref))
        else:
            ends = (AttemptEnd.FAILED, AttemptEnd.TIMED_OUT, AttemptEnd.LOST)
            self.world.fail(ref, ends[dice % 3])


def _some(refs: list[StepRef], order: Random) -> list[StepRef]:
    chosen = [one for one in refs if order.random() < 0.8]
    order.shuffle(chosen)
    return chosen


@pytest.mark.parametrize(
    ("size", "failing_percent", "lenient", "seed"),
    [(1_000, 10, 1.0, 1), (120, 40, 1.0, 2), (100, 0, 0.5, 3), (60, 20, 0.9, 4), (40, 60, 0.8, 5)],
)
def test_every_history_of_a_large_graph_ends_alike(
    size: int, failing_percent: int, lenient: float, seed: int
) -> None:
    """Restarts between decisions, any order and repeated wake-ups change nothing about the end."""
    definition = _definition(size, lenient, Random(seed))
    replicas = [CompiledWorkflows(CEL).get(definition, "digest") for _ in range(2)]
    first, second = (
        _History(replicas, seed, failing_percent, Random(f"{seed}/{number}")).play()
        for number in range(2)
    )

    assert first.facts.status is second.facts.status
    if first.facts.status is ExecutionStatus.SUCCEEDED:
        assert first.statuses() == second.statuses()
    for world in (first, second):
        assert not world.requests
        assert StepStatus.RUNNING not in world.statuses().values()
        assert len(set(world.dispatched)) == len(world.dispatched)
    if lenient == 1.0 or failing_percent == 0:
        assert first.facts.status is ExecutionStatus.SUCCEEDED
        assert sorted(first.dispatched) == sorted(second.dispatched)
