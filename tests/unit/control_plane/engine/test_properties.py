"""Random graphs, outcomes and orders of wake-ups: the end is always the same and always legal."""

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control_plane.core.engine.retry import AttemptEnd
from control_plane.core.executions.domain import StepRef
from control_plane.core.executions.execution_state import ExecutionStatus
from control_plane.core.executions.step_state import StepStatus
from control_plane.core.workflows.compiling import CompiledWorkflow
from tests.unit.control_plane.engine.world import World, step, workflow

QUICK = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
ACTIONS_MAX = 3_000
# A seed, and not Hypothesis's own Random: thousands of choices would be too much to shrink.
ORDERS = st.integers(0, 10**6).map(Random)


@st.composite
def workflows(draw: st.DrawFn) -> CompiledWorkflow:
    """Draw a graph of up to eight steps with every kind of feature in it."""
    count = draw(st.integers(1, 8))
    steps = []
    for place in range(count):
        before = [f"s{one}" for one in range(place)]
        waits_for = (
            draw(st.lists(st.sampled_from(before), max_size=3, unique=True)) if before else []
        )
        steps.append(_drawn_step(draw, f"s{place}", waits_for))
    fields: dict[str, Any] = {}
    if draw(st.booleans()):
        steps.append(step("tell", retry={"max_attempts": 2}))
        fields["failure_step"] = "tell"
    draw(st.randoms(use_true_random=False)).shuffle(steps)
    return workflow(*steps, output={"s0": "${steps.s0.status}"}, **fields)


def _drawn_step(draw: st.DrawFn, key: str, waits_for: list[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "retry": {"max_attempts": draw(st.integers(1, 3)), "initial_delay": "1s"},
        "on_failure": draw(st.sampled_from(["fail", "fail", "continue"])),
        "input": {one: f"${{steps.{one}.output}}" for one in waits_for},
    }
    shape = draw(st.sampled_from(["plain", "plain", "skipped", "items", "no items"]))
    if shape == "skipped":
        fields["when"] = False
    elif shape == "items":
        fields |= {"for_each": "[1, 2, 3]", "max_parallel": draw(st.integers(1, 3))}
        fields["when"] = draw(st.sampled_from(["true", "item != 2"]))
    elif shape == "no items":
        fields["for_each"] = "[]"
    return step(key, *waits_for, **fields)


def _end_of(ref: StepRef, attempt_number: int, seed: int, failing: int) -> AttemptEnd | None:
    """How an attempt ends: None for success; fixed by what it is, not by when it runs."""
    dice = Random(f"{seed}/{ref}/{attempt_number}").randrange(100)
    if dice >= failing:
        return None
    return (AttemptEnd.FAILED, AttemptEnd.TIMED_OUT, AttemptEnd.LOST)[dice % 3]


def _play(flow: CompiledWorkflow, seed: int, failing: int, order: Random) -> World:
    """Run one execution with things happening in a random order, until it is over."""
    world = World(flow)
    for _ in range(ACTIONS_MAX):
        if world.is_over:
            return world
        _act(world, seed, failing, order)
    raise AssertionError(f"not over: {world.statuses()}, {world.facts}")


def _act(world: World, seed: int, failing: int, order: Random) -> None:
    running = [one.ref for one in world.facts.steps.values() if one.status is StepStatus.RUNNING]
    ready = world.dispatchable()
    kind = order.choice(["wake", "wake", "dispatch", "end", "end", "time"])
    if kind == "dispatch" and ready:
        world.dispatch(order.choice(ready))
    elif kind == "end" and running:
        _end_attempt(world, order.choice(sorted(running)), seed, failing)
    elif kind == "time":
        world.pass_time(order.random() * 3)
    else:
        world.wake()


def _end_attempt(world: World, ref: StepRef, seed: int, failing: int) -> None:
    running = world.facts.steps[ref]
    end = _end_of(ref, running.attempt_number, seed, failing)
    if running.stop_reason is not None:
        world.fail(ref, AttemptEnd.CANCELED)
    elif end is None:
        world.succeed(ref, str(ref))
    else:
        world.fail(ref, end)


@QUICK
@given(workflows(), st.integers(0, 10**6), st.sampled_from([0, 15, 50]), ORDERS)
def test_the_order_of_wake_ups_does_not_change_the_end(
    flow: CompiledWorkflow, seed: int, failing: int, order: Random
) -> None:
    """Two histories of the same outcomes end alike; World checks each write on the way."""
    first, second = (_play(flow, seed, failing, order) for _ in range(2))
    assert first.facts.status is second.facts.status
    assert first.output_json == second.output_json
    if first.facts.status is ExecutionStatus.SUCCEEDED:
        assert first.statuses() == second.statuses()
    assert not first.requests
    for world in (first, second):
        kinds = [event.value for event, _, _ in world.events]
        assert kinds.count(f"execution.{world.facts.status.lower()}") == 1
        assert kinds[-1] == f"execution.{world.facts.status.lower()}"
        progress = [percent for _, _, percent in world.events]
        assert progress == sorted(progress)


@QUICK
@given(workflows(), st.integers(0, 10**6), st.integers(0, 60), ORDERS)
def test_a_cancel_at_any_moment_ends_the_execution(
    flow: CompiledWorkflow, seed: int, moment: int, order: Random
) -> None:
    """Whenever it comes, no attempt is left, and the first closing reason decides the end."""
    world = World(flow)
    for _ in range(moment):
        if not world.is_over:
            _act(world, seed, 30, order)
    closing_as, was_over = world.facts.closing_as, world.is_over
    world.facts = replace(world.facts, cancel_requested=True)
    for _ in range(ACTIONS_MAX):
        if world.is_over:
            break
        _act(world, seed, 30, order)
    assert world.is_over
    if not was_over and closing_as is None:
        assert world.facts.status is ExecutionStatus.CANCELED
    if closing_as is not None:
        assert world.status == closing_as.value
    assert StepStatus.RUNNING not in world.statuses().values()
    assert not world.requests
