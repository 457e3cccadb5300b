"""What a pause stops, and what goes on."""

from dataclasses import replace
from datetime import timedelta

from control_plane.core.executions.step_state import StepStatus
from tests.unit.control_plane.engine.world import START, World, step, workflow


def test_queue_time_runs_out_unless_paused() -> None:
    """A READY step times out, its request is voided; a pause stops that clock."""
    world = World(workflow(step("a", timeouts={"queue": "5s"})))
    world.wake()
    assert world.next_due_at == world.step("a").deadline_at
    world.pass_time(5)
    world.facts = replace(world.facts, paused=True)
    assert world.wake().changes_nothing
    assert world.next_due_at == world.facts.deadline_at
    world.facts = replace(world.facts, paused=False)
    assert len(world.wake().voids) == 1
    assert world.step("a").status is StepStatus.TIMED_OUT
    assert world.status == "FAILED"
    assert "QUEUE_TIMED_OUT" in world.facts.failure_json


def test_total_time_runs_out_while_paused_too() -> None:
    """A pause stops queue time only: the earlier queue deadline rests, the total one counts."""
    world = World(workflow(step("a", timeouts={"queue": "5s", "total": "60s"})))
    world.wake()
    world.facts = replace(world.facts, paused=True)
    world.pass_time(10)
    assert world.wake().changes_nothing
    assert world.next_due_at == START + timedelta(seconds=60)
    world.pass_time(50)
    world.wake()
    assert world.step("a").status is StepStatus.TIMED_OUT
