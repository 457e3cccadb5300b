"""What a rerun takes over: modes, ancestors, items, and that the engine goes on from there."""

from dataclasses import replace

import pytest

from control_plane.core.engine.facts import StepFacts
from control_plane.core.engine.retry import AttemptEnd
from control_plane.core.engine.reuse import (
    NoFailedItemsError,
    NothingToRerunError,
    RerunMode,
    Reuse,
    StepUnknownError,
    plan_reuse,
)
from control_plane.core.executions.domain import StepKey, StepRef
from control_plane.core.executions.execution_state import ExecutionStatus
from control_plane.core.executions.step_state import StepStatus
from control_plane.core.workflows.compiling import CompiledWorkflow
from foundation.errors import InvalidArgumentError
from tests.unit.control_plane.engine.world import World, step, workflow

ONCE = {"max_attempts": 1}
SCRATCH = Reuse()
SUCCEEDED = Reuse(RerunMode.REUSE_SUCCEEDED)
ITEMS = Reuse(RerunMode.FAILED_ITEMS)


def _from(key: str) -> Reuse:
    return Reuse(RerunMode.FROM_STEP, key)


def _run(flow: CompiledWorkflow, *failing: str, input_json: str = "{}") -> World:
    """Run an execution to its end; the named instances fail, all others succeed."""
    world = World(flow, input_json=input_json)
    world.wake()
    while ready := world.dispatchable():
        for ref in ready:
            world.dispatch(ref)
            if str(ref) in failing:
                world.fail(ref, AttemptEnd.FAILED)
            else:
                world.succeed(ref, f"first {ref}")
        for ref, one in world.facts.steps.items():
            if one.status is StepStatus.RUNNING and one.stop_reason:
                world.fail(ref, AttemptEnd.CANCELED)
        world.wake()
    assert world.is_over
    return world


def begun(before: World, reuse: Reuse) -> World:
    """Begin the next run as the store would."""
    plan = plan_reuse(
        before.workflow,
        {ref: one.status for ref, one in before.facts.steps.items()},
        reuse,
        has_succeeded=before.facts.status is ExecutionStatus.SUCCEEDED,
    )
    refs = [*plan.kept, *plan.lists, *plan.items]
    assert len(refs) == len(set(refs)), "each instance has one fate"
    after = World(before.workflow, input_json=before.input_json)
    steps = {
        ref: replace(before.facts.steps[ref], attempt_number=0, ready_at=None, deadline_at=None)
        for ref in plan.kept
    }
    for ref in plan.lists:
        steps[ref] = StepFacts(ref, input_json=before.facts.steps[ref].input_json)
    steps |= {ref: StepFacts(ref) for ref in plan.items}
    after.facts = replace(after.facts, steps=steps)
    return after


def _rerun(before: World, reuse: Reuse) -> World:
    """Begin the next run, and run it to its end."""
    after = begun(before, reuse)
    after.wake()
    while ready := after.dispatchable():
        for ref in ready:
            after.dispatch(ref)
            after.succeed(ref, f"second {ref}")
        after.wake()
    return after


def _ran(world: World) -> list[str]:
    return [name for name, _ in world.dispatched]


def _diamond() -> CompiledWorkflow:
    return workflow(
        step("a"),
        step("b", "a", retry=ONCE),
        step("c", "a"),
        step("d", "b", "c"),
        output="${[steps.a.output, steps.b.output, steps.c.output, steps.d.output]}",
    )


def test_from_scratch_everything_runs_again() -> None:
    """Nothing is taken over."""
    after = _rerun(_run(_diamond(), "b"), SCRATCH)
    assert sorted(_ran(after)) == ["a", "b", "c", "d"]


def test_succeeded_steps_are_taken_over() -> None:
    """Only what failed, and what comes after it, runs; the output joins old and new."""
    after = _rerun(_run(_diamond(), "b"), SUCCEEDED)
    assert "a" not in _ran(after)
    assert after.status == "SUCCEEDED"
    assert after.output_json.startswith('["first a","second b"')
    assert after.output_json.endswith('"second d"]')


def test_nothing_rests_on_what_runs_again() -> None:
    """A step that succeeded after a failed one that counts as complete runs again with it."""
    flow = workflow(
        step("a", on_failure="continue", retry=ONCE),
        step("b", "a"),
        step("c"),
    )
    before = _run(flow, "a")
    assert before.status == "SUCCEEDED"
    assert _ran(_rerun(before, SUCCEEDED)) == ["a", "b"]
    assert _ran(_rerun(before, _from("b"))) == ["b"]


def test_from_a_step_it_and_its_descendants_run_again() -> None:
    """Whatever does not wait for the named step is kept."""
    before = _run(_diamond())
    assert _ran(_rerun(before, _from("c"))) == ["c", "d"]
    assert sorted(_ran(_rerun(before, _from("a")))) == ["a", "b", "c", "d"]


def test_only_failed_items_run_again() -> None:
    """The list and the good items are kept, the step is gathered anew, dependents run again."""
    flow = workflow(
        step("list"),
        step("each", "list", for_each="[1, 2, 3]", on_failure="continue", retry=ONCE),
        step("after", "each"),
        step("other"),
        output="${steps.each.output}",
    )
    before = _run(flow, "each[1]")
    assert before.status == "SUCCEEDED"
    after = _rerun(before, ITEMS)
    assert _ran(after) == ["each[1]", "after"]
    assert after.output_json == '["first each[0]","second each[1]","first each[2]"]'
    assert after.status == "SUCCEEDED"
    with pytest.raises(NothingToRerunError):
        _rerun(before, SUCCEEDED)


def test_items_of_a_failed_step_are_taken_over_too() -> None:
    """An item's failure failed the run: the items that had succeeded are not repeated."""
    flow = workflow(step("each", for_each="[1, 2, 3]", retry=ONCE), output="${steps.each.output}")
    before = _run(flow, "each[2]")
    assert before.status == "FAILED"
    for reuse in (SUCCEEDED, ITEMS):
        after = _rerun(before, reuse)
        assert _ran(after) == ["each[2]"]
        assert after.output_json == '["first each[0]","first each[1]","second each[2]"]'


def test_items_begin_anew_where_an_ancestor_does() -> None:
    """A list that an earlier step made is made again with it."""
    flow = workflow(
        step("a"),
        step("each", "a", for_each="[1, 2]", on_failure="continue", retry=ONCE),
    )
    before = _run(flow, "each[0]")
    assert sorted(_ran(_rerun(before, _from("a")))) == ["a", "each[0]", "each[1]"]


def test_without_failed_items_there_is_nothing_to_repeat() -> None:
    """The refusal names the modes that fit."""
    with pytest.raises(NoFailedItemsError, match="REUSE_SUCCEEDED"):
        _rerun(_run(_diamond(), "b"), ITEMS)
    with pytest.raises(NothingToRerunError, match="FROM_STEP"):
        _rerun(_run(_diamond()), SUCCEEDED)


def test_skipped_steps_stay_skipped() -> None:
    """What an operator or `when` skipped is not run by a rerun, nor does it make others run."""
    flow = workflow(step("a", when="input.go"), step("b", "a"), step("c", "b", retry=ONCE))
    before = _run(flow, "c", input_json='{"go":false}')
    after = _rerun(before, SUCCEEDED)
    assert _ran(after) == ["c"]
    assert after.step("a").status is StepStatus.SKIPPED


def test_the_failure_step_is_never_taken_over() -> None:
    """It ran because others failed; in the next run that is yet to be seen."""
    flow = workflow(step("a", retry=ONCE), step("sorry"), failure_step="sorry")
    before = _run(flow, "a")
    assert "sorry" in _ran(before)
    after = _rerun(before, SUCCEEDED)
    assert after.step("sorry").status is StepStatus.SKIPPED
    with pytest.raises(InvalidArgumentError, match="failure step"):
        _rerun(before, _from("sorry"))
    with pytest.raises(StepUnknownError, match="'b'"):
        _rerun(before, _from("b"))


def test_a_run_that_never_began_has_nothing_to_give() -> None:
    """All steps run where the run before was cancelled before its steps existed."""
    flow = _diamond()
    plan = plan_reuse(flow, {}, SUCCEEDED, has_succeeded=False)
    assert (plan.kept, plan.lists, plan.items) == ((), (), ())
    plan = plan_reuse(
        flow, {StepRef(StepKey("a")): StepStatus.CANCELED}, SUCCEEDED, has_succeeded=False
    )
    assert plan.kept == ()


@pytest.mark.parametrize(
    ("mode", "key"), [(RerunMode.FROM_STEP, ""), (RerunMode.FAILED_ITEMS, "a")]
)
def test_a_step_is_named_with_its_mode_only(mode: RerunMode, key: str) -> None:
    """A missing and a superfluous step are refused."""
    with pytest.raises(InvalidArgumentError, match="RERUN_MODE_FROM_STEP"):
        Reuse(mode, key)
