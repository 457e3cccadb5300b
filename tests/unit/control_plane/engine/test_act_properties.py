"""Acts and reruns at random: whatever people do, executions end, and legally."""

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.core.engine.reuse import (
    NoFailedItemsError,
    NothingToRerunError,
    RerunMode,
    Reuse,
)
from control_plane.core.executions.domain import StepRef
from control_plane.core.executions.operation_rules import StepStartedError, skipped
from control_plane.core.executions.step_state import StepStatus
from control_plane.core.workflows.compiling import CompiledWorkflow
from tests.unit.control_plane.engine.test_properties import (
    ACTIONS_MAX,
    ORDERS,
    QUICK,
    _act,
    _play,
    workflows,
)
from tests.unit.control_plane.engine.test_reuse import begun
from tests.unit.control_plane.engine.world import World

FEW = settings(QUICK, max_examples=30)


def _skip(world: World, ref: StepRef) -> bool:
    """Skip as the store does; False where the rule refuses."""
    instances = {
        one.item_index: facts.status
        for one, facts in world.facts.steps.items()
        if one.step_key == ref.step_key
    }
    try:
        items = skipped(ref, instances)
    except StepStartedError:
        return False
    for item in items:
        one = StepRef(ref.step_key, item)
        world.requests.pop(one, None)
        world.set(one, status=StepStatus.SKIPPED, has_request=False, deadline_at=None)
    return True


@FEW
@given(workflows(), st.integers(0, 10**6), ORDERS)
def test_acts_at_any_moment_leave_an_execution_that_ends(
    flow: CompiledWorkflow, seed: int, order: Random
) -> None:
    """Skips, pauses and resumes come at random; World checks each write and each dispatch."""
    world = World(flow)
    was_skipped: set[StepRef] = set()
    for _ in range(ACTIONS_MAX):
        if world.is_over:
            break
        kind = order.randrange(12)
        if kind == 0 and world.facts.steps:
            ref = order.choice(sorted(world.facts.steps))
            if _skip(world, ref):
                was_skipped.add(ref)
        elif kind in (1, 2):
            world.facts = replace(world.facts, paused=kind == 1 and not world.facts.paused)
        else:
            _act(world, seed, 20, order)
    assert world.is_over
    assert not world.requests
    for ref in was_skipped:
        assert world.facts.steps[ref].status is StepStatus.SKIPPED


@FEW
@given(workflows(), st.integers(0, 10**6), st.sampled_from(list(RerunMode)), ORDERS)
def test_any_run_can_be_run_again_to_its_success(
    flow: CompiledWorkflow, seed: int, mode: RerunMode, order: Random
) -> None:
    """What is kept does not run and rests on what is kept; all else runs, and the run succeeds."""
    before = _play(flow, seed, 40, order)
    from_step = order.choice(flow.order).key if mode is RerunMode.FROM_STEP else ""
    try:
        after = begun(before, Reuse(mode, from_step))
    except (NoFailedItemsError, NothingToRerunError):
        return
    kept = {ref for ref, one in after.facts.steps.items() if one.status is not StepStatus.PENDING}
    for ref in kept:
        for key in flow.steps[ref.step_key].definition.depends_on:
            assert StepRef(key) in kept, (ref, key)
    for _ in range(ACTIONS_MAX):
        if after.is_over:
            break
        _act(after, seed, 0, order)
    assert after.status == "SUCCEEDED"
    assert not {name for name, _ in after.dispatched} & {str(ref) for ref in kept}
    assert all(after.facts.steps[ref] == _as_kept(before, ref) for ref in kept)


def _as_kept(before: World, ref: StepRef) -> object:
    """Return the step as a rerun takes it over."""
    return replace(before.facts.steps[ref], attempt_number=0, ready_at=None, deadline_at=None)
