"""The engine's rules, one by one, on small workflows."""

import json
import time
from dataclasses import replace

import pytest

from control_plane.core.engine.domain import decide
from control_plane.core.engine.facts import StepFacts
from control_plane.core.engine.retry import AttemptEnd
from control_plane.core.executions.attempt_state import StopReason
from control_plane.core.executions.domain import StepKey, StepRef
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.step_state import StepStatus
from tests.unit.control_plane.engine.world import START, World, step, workflow


def _ref(key: str, item_index: int = -1) -> StepRef:
    return StepRef(StepKey(key), item_index)


def _event_names(world: World) -> list[str]:
    return [event.removeprefix("execution.") for event, _, _ in world.events]


def test_a_chain_runs_to_its_output() -> None:
    """Roots are created READY in one go, outputs flow into inputs, the output is mapped."""
    world = World(
        workflow(
            step("a", input={"n": "${input.n}"}),
            step("b", "a", input={"n": "${steps.a.output.n + 1}"}),
            output={"sum": "${steps.b.output}", "was": "${steps.a.status}"},
        ),
        input_json='{"n": 9007199254740993}',
    )
    first = world.wake()
    assert [(one.ref.step_key, one.to_status) for one in first.creates] == [
        ("a", "READY"),
        ("b", "PENDING"),
    ]
    assert first.moves == ()
    assert first.creates[0].input_json == '{"n":9007199254740993}'
    assert world.status == "QUEUED"
    world.dispatch(_ref("a"))
    world.wake()
    world.succeed(_ref("a"), {"n": 9007199254740993})
    world.wake()
    assert world.step("b").input_json == '{"n":9007199254740994}'
    world.dispatch(_ref("b"))
    world.succeed(_ref("b"), 5)
    world.wake()
    assert world.status == "SUCCEEDED"
    assert json.loads(world.output_json) == {"sum": 5, "was": "SUCCEEDED"}
    assert world.facts.progress_percent == 100
    assert _event_names(world) == ["started", "progress", "succeeded"]


def test_a_finished_execution_is_left_alone() -> None:
    """No decision ever follows from a terminal one, whatever its steps look like."""
    world = World(workflow(step("a")))
    world.run_out()
    facts = replace(world.facts, cancel_requested=True, steps={}, deadline_at=START)
    assert decide(world.workflow, facts, world.now).changes_nothing


def test_independent_steps_are_ready_together() -> None:
    """Nothing waits for what it does not depend on."""
    world = World(workflow(step("a"), step("b"), step("c", "a", "b")))
    world.wake()
    assert world.statuses() == {"a": "READY", "b": "READY", "c": "PENDING"}
    world.dispatch(_ref("b"))
    world.succeed(_ref("b"), None)
    world.wake()
    assert world.step("c").status is StepStatus.PENDING


def test_skipping_cascades_in_one_decision() -> None:
    """`when` false skips, dependents go on, and an execution without work succeeds at once."""
    world = World(
        workflow(
            step("a", when="input.go"),
            step("b", "a", when="steps.a.status == 'SUCCEEDED'"),
            step("c", "b", when=False),
        ),
        input_json='{"go": false}',
    )
    world.wake()
    assert set(world.statuses().values()) == {"SKIPPED"}
    assert world.status == "SUCCEEDED"
    assert _event_names(world) == ["succeeded"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"input": {"x": "${input.missing}"}}, "`input.missing` failed"),
        ({"when": "input.missing"}, "`input.missing` failed"),
        ({"when": "input.text"}, "when yields 'x', not true or false"),
        ({"for_each": "input.text"}, "for_each yields no list"),
    ],
)
def test_a_failed_expression_fails_the_step_for_good(fields: dict[str, str], words: str) -> None:
    """The failure names expression, step and reason, and the execution fails with it."""
    world = World(workflow(step("a", **fields), step("b")), input_json='{"text": "x"}')
    world.wake()
    assert world.statuses() == {"a": "FAILED", "b": "CANCELED"}
    failure = Failure.from_json(world.facts.failure_json)
    assert failure.reason == "STEP_FAILED"
    assert failure.cause is not None
    assert failure.cause.reason == "EXPRESSION_FAILED"
    assert failure.cause.message.startswith("step a: ")
    assert words in failure.message
    assert world.status == "FAILED"


def test_an_output_that_cannot_be_mapped_fails_the_execution() -> None:
    """The work is done and its result cannot be told: that is a failure with its reason."""
    world = World(workflow(step("a"), output="${steps.a.output.missing}"))
    world.run_out({"a": {}})
    assert world.status == "FAILED"
    assert "output: expression" in world.facts.failure_json


def test_a_failure_stops_what_runs_and_waits_for_it() -> None:
    """The execution stays RUNNING, closing, until the running attempt has ended."""
    world = World(workflow(step("a", retry={"max_attempts": 1}), step("b"), step("c", "b")))
    world.wake()
    for key in ("a", "b"):
        world.dispatch(_ref(key))
    world.fail(_ref("a"), AttemptEnd.FAILED)
    decision = world.wake()
    assert [(one.ref.step_key, one.reason) for one in decision.stops] == [("b", StopReason.CANCEL)]
    assert (world.status, world.facts.closing_as) == ("RUNNING", "FAILED")
    assert world.step("c").status is StepStatus.CANCELED
    world.facts = replace(world.facts, cancel_requested=True)
    world.wake()
    assert world.status == "RUNNING", "the first closing reason wins"
    world.fail(_ref("b"), AttemptEnd.CANCELED)
    world.wake()
    assert world.status == "FAILED"
    assert "step a failed: it broke" in world.facts.failure_json


def test_on_failure_continue_counts_as_complete() -> None:
    """Dependents see the status and a null output, and the execution succeeds."""
    world = World(
        workflow(
            step("a", on_failure="continue", retry={"max_attempts": 1}),
            step("b", "a", input={"was": "${steps.a.status}", "out": "${steps.a.output}"}),
        )
    )
    world.wake()
    world.dispatch(_ref("a"))
    world.fail(_ref("a"), AttemptEnd.FAILED)
    world.wake()
    assert json.loads(world.step("b").input_json) == {"was": "FAILED", "out": None}
    world.run_out()
    assert world.status == "SUCCEEDED"


def test_a_retry_gets_a_request_of_its_own() -> None:
    """The request for the next attempt is available after the back-off."""
    world = World(workflow(step("a")))
    world.wake()
    world.dispatch(_ref("a"))
    world.wake()
    world.fail(_ref("a"), AttemptEnd.FAILED)
    (request,) = world.wake().requests
    assert request.attempt_number == 2
    assert request.available_at == world.step("a").not_before
    assert world.dispatchable() == []
    world.pass_time(2)
    assert world.dispatchable() == [_ref("a")]


def test_cancel_before_anything_runs_is_immediate() -> None:
    """READY steps lose their requests, and no CANCELING is passed through."""
    world = World(workflow(step("a"), step("b", "a")))
    world.wake()
    world.facts = replace(world.facts, cancel_requested=True)
    decision = world.wake()
    assert [one.ref.step_key for one in decision.voids] == ["a"]
    assert set(world.statuses().values()) == {"CANCELED"}
    assert _event_names(world) == ["canceled"]


def test_cancel_waits_for_running_attempts() -> None:
    """CANCELING until the last attempt has stopped; its late success does not change the end."""
    world = World(workflow(step("a"), step("b")))
    world.wake()
    for key in ("a", "b"):
        world.dispatch(_ref(key))
    world.wake()
    world.facts = replace(world.facts, cancel_requested=True)
    assert len(world.wake().stops) == 2
    assert world.status == "CANCELING"
    world.fail(_ref("a"), AttemptEnd.CANCELED)
    world.wake()
    assert world.status == "CANCELING"
    world.succeed(_ref("b"), 1)
    world.wake()
    assert world.status == "CANCELED"
    assert _event_names(world)[-2:] == ["canceling", "canceled"]


def test_a_cancel_of_a_created_execution_creates_nothing() -> None:
    """Cancelled before it was first looked at, it has no steps and ends at once."""
    world = World(workflow(step("a")))
    world.facts = replace(world.facts, cancel_requested=True)
    assert world.wake().creates == ()
    assert world.status == "CANCELED"


def test_the_execution_times_out() -> None:
    """At its deadline the engine looks, stops attempts as timed out, and ends TIMED_OUT."""
    world = World(workflow(step("a"), step("b", "a"), timeout="10s"))
    world.wake()
    world.dispatch(_ref("a"))
    world.wake()
    assert world.next_due_at == world.facts.deadline_at
    world.pass_time(10)
    assert [one.reason for one in world.wake().stops] == [StopReason.TIMEOUT]
    assert world.facts.closing_as == "TIMED_OUT"
    world.set(_ref("a"), status=StepStatus.TIMED_OUT)
    world.wake()
    assert world.status == "TIMED_OUT"
    assert "did not finish within its time-out of 0:00:10" in world.facts.failure_json


def test_work_that_is_complete_at_the_deadline_succeeds() -> None:
    """A late look does not turn finished work into a time-out."""
    world = World(workflow(step("a"), timeout="10s"))
    world.wake()
    world.dispatch(_ref("a"))
    world.succeed(_ref("a"), 1)
    world.pass_time(100)
    world.wake()
    assert world.status == "SUCCEEDED"


def test_an_approval_waits_and_times_out() -> None:
    """No request is made for it; its signal completes it, its deadline ends it."""
    flow = workflow(
        {"key": "ok", "kind": "approval", "timeouts": {"total": "1h"}, "input": {"q": "go?"}},
        step("a", "ok"),
    )
    world = World(flow)
    assert world.wake().requests == ()
    assert world.step("ok").status is StepStatus.WAITING
    assert world.status == "RUNNING"
    world.succeed(_ref("ok"), {"by": "alice"})
    world.run_out()
    assert world.status == "SUCCEEDED"

    late = World(flow)
    late.wake()
    late.pass_time(3_600)
    late.wake()
    assert late.statuses() == {"ok": "TIMED_OUT", "a": "CANCELED"}
    assert "APPROVAL_TIMED_OUT" in late.facts.failure_json


def test_the_failure_step_sees_how_everything_ended() -> None:
    """It starts after all else is over, and its own end does not change the execution's."""
    world = World(
        workflow(
            step("a", retry={"max_attempts": 1}),
            step("b"),
            step("tell", input={"why": "${execution.failure.reason}", "b": "${steps.b.status}"}),
            failure_step="tell",
        )
    )
    world.wake()
    for key in ("a", "b"):
        world.dispatch(_ref(key))
    world.fail(_ref("a"), AttemptEnd.FAILED)
    world.wake()
    assert world.step("tell").status is StepStatus.PENDING
    world.fail(_ref("b"), AttemptEnd.CANCELED)
    world.wake()
    assert json.loads(world.step("tell").input_json) == {"why": "STEP_FAILED", "b": "CANCELED"}
    assert world.status == "RUNNING"
    assert world.dispatchable() == [_ref("tell")]
    world.dispatch(_ref("tell"))
    world.succeed(_ref("tell"), None)
    world.wake()
    assert world.status == "FAILED"


def test_the_failure_step_is_skipped_on_success_and_dropped_on_cancel() -> None:
    """It runs on failure only."""
    flow = workflow(step("a"), step("tell"), failure_step="tell")
    good = World(flow)
    good.run_out()
    assert good.statuses() == {"a": "SUCCEEDED", "tell": "SKIPPED"}
    canceled = World(flow)
    canceled.wake()
    canceled.facts = replace(canceled.facts, cancel_requested=True)
    canceled.wake()
    assert canceled.statuses() == {"a": "CANCELED", "tell": "CANCELED"}


def test_items_run_side_by_side_and_gather_in_order() -> None:
    """max_parallel bounds what is active, `when` skips items, the output keeps their order."""
    world = World(
        workflow(
            step(
                "mark",
                for_each="input.images",
                max_parallel=2,
                when="item != 'skip'",
                input={"image": "${item}", "n": "${index}"},
            ),
            output="${steps.mark.output}",
        ),
        input_json='{"images": ["a", "skip", "b", "c"]}',
    )
    world.wake()
    assert world.statuses() == {
        "mark": "PENDING",
        "mark[0]": "READY",
        "mark[1]": "SKIPPED",
        "mark[2]": "READY",
        "mark[3]": "PENDING",
    }
    assert json.loads(world.step("mark", 2).input_json) == {"image": "b", "n": 2}
    world.dispatch(_ref("mark", 2))
    world.succeed(_ref("mark", 2), "B")
    world.wake()
    assert world.step("mark", 3).status is StepStatus.READY
    assert world.facts.progress_percent == 50
    world.dispatch(_ref("mark", 0))
    world.fail(_ref("mark", 0), AttemptEnd.FAILED)
    world.wake()
    world.pass_time(5)
    world.run_out({"mark": "x"})
    assert json.loads(world.output_json) == ["x", None, "B", "x"]


@pytest.mark.parametrize(("on_failure", "ends"), [("fail", "FAILED"), ("continue", "SUCCEEDED")])
def test_a_failed_item(on_failure: str, ends: str) -> None:
    """With continue it becomes null; else it fails the step, and the others are stopped."""
    world = World(
        workflow(
            step("m", for_each="[1, 2]", on_failure=on_failure, retry={"max_attempts": 1}),
            output="${steps.m.output}",
        )
    )
    world.wake()
    for index in range(2):
        world.dispatch(_ref("m", index))
    world.fail(_ref("m", 0), AttemptEnd.FAILED)
    stops = world.wake().stops
    assert len(stops) == (on_failure == "fail")
    if stops:
        world.fail(_ref("m", 1), AttemptEnd.CANCELED)
        assert "item 0: it broke" in world.step("m").failure_json
    else:
        world.succeed(_ref("m", 1), 2)
    world.wake()
    assert world.status == ends
    if ends == "SUCCEEDED":
        assert json.loads(world.output_json) == [None, 2]


def test_an_empty_list_is_done_at_once() -> None:
    """Its output is [], and a `when` that asks no item decides for all of them."""
    world = World(
        workflow(
            step("e", for_each="[]"),
            step("w", for_each="input.missing", when=False),
            output="${steps.e.output}",
        )
    )
    world.wake()
    assert world.statuses() == {"e": "SUCCEEDED", "w": "SKIPPED"}
    assert world.output_json == "[]"


def test_reused_steps_are_not_run_again() -> None:
    """A rerun starts with succeeded steps in place, and only what is missing is created."""
    world = World(workflow(step("a"), step("b", "a", input="${steps.a.output}")))
    reused = StepFacts(_ref("a"), StepStatus.SUCCEEDED, output_json="7", progress_percent=100)
    world.facts = replace(world.facts, steps={reused.ref: reused})
    assert [one.ref.step_key for one in world.wake().creates] == ["b"]
    assert world.step("b").input_json == "7"
    assert world.status == "QUEUED", "nothing has run in this run"


def test_progress_is_told_at_most_once_a_second() -> None:
    """A rise within the second is held back and due when the second is over."""
    world = World(workflow(step("a"), step("b")))
    world.wake()
    for key in ("a", "b"):
        world.dispatch(_ref(key))
    world.wake()
    world.set(_ref("a"), progress_percent=50)
    world.wake()
    assert world.facts.progress_percent == 25
    world.pass_time(0.4)
    world.set(_ref("b"), progress_percent=80)
    assert world.wake().changes_nothing
    assert world.next_due_at is not None
    assert (world.next_due_at - world.now).total_seconds() == pytest.approx(0.6)
    world.pass_time(0.6)
    world.wake()
    assert world.facts.progress_percent == 65
    assert _event_names(world) == ["started", "progress", "progress"]


def test_a_chain_of_a_thousand_steps_advances_without_recursion_and_quickly() -> None:
    """Each decision is one pass: the whole chain takes seconds, not minutes."""
    steps = [step("s0")]
    steps += [
        step(f"s{n}", f"s{n - 1}", input=f"${{steps.s{n - 1}.output}}") for n in range(1, 1_000)
    ]
    world = World(workflow(*steps))
    world.wake()
    started_s = time.perf_counter()
    for n in range(20):
        world.dispatch(_ref(f"s{n}"))
        world.succeed(_ref(f"s{n}"), n)
        decision = world.wake()
        assert len(decision.moves) == 1
    assert (time.perf_counter() - started_s) / 20 < 0.5

    skipping = World(workflow(*[one | {"when": False, "input": {}} for one in steps]))
    skipping.wake()
    assert skipping.status == "SUCCEEDED"
