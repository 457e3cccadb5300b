"""Which due times are handled, and which runs start, wait or are left out."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from control_plane.core.schedules.calendar import parse_calendar
from control_plane.core.schedules.domain import (
    DUE_PER_TURN_MAX,
    LiveTask,
    OpenRun,
    OverlapPolicy,
    ScheduledTask,
    ScheduleSpec,
    decide_overlap,
    plan_due,
)
from control_plane.core.schedules.errors import ScheduleInvalidError
from control_plane.core.schedules.specification import (
    SpecAsSent,
    checked_spec,
    task_of_text,
    task_text,
)
from control_plane.core.schedules.starting import task_input

_TASK = ScheduledTask("t", "", "w", "", '{"n":12345678901234567890.10}', "", 0, "", "", {})
_SPEC = ScheduleSpec(
    parse_calendar("*/10 * * * *", "UTC"), OverlapPolicy.ALLOW, timedelta(hours=1), _TASK
)
_NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)


def _run(number: int, *, starting: bool = False) -> OpenRun:
    return OpenRun(f"r{number}", _NOON + number * _MINUTE, starting)


def test_due_times_within_the_window_become_runs() -> None:
    """Everything from the stored time to now is handled, and the next one is waited for."""
    plan = plan_due(_SPEC, _NOON - 20 * _MINUTE, _NOON)
    assert [one.minute for one in plan.runs] == [40, 50, 0]
    assert plan.missed is None
    assert plan.next_time == _NOON + 10 * _MINUTE


def test_due_times_before_the_window_are_missed_as_one() -> None:
    """A long silence leaves one mark, and goes on with the window's first due time."""
    plan = plan_due(_SPEC, _NOON - timedelta(days=300), _NOON)
    assert plan.missed == _NOON - timedelta(days=300)
    assert plan.runs[0] == _NOON - timedelta(hours=1)
    assert len(plan.runs) == 7


def test_a_turn_is_bounded_and_loses_nothing() -> None:
    """More due times than one turn takes are left for the next, which begins where it ended."""
    spec = replace(_SPEC, calendar=parse_calendar("* * * * *", "UTC"))
    start = _NOON - 50 * _MINUTE
    handled: list[datetime] = []
    next_time: datetime | None = start
    while next_time is not None and next_time <= _NOON:
        plan = plan_due(spec, next_time, _NOON)
        assert len(plan.runs) <= DUE_PER_TURN_MAX
        handled.extend(plan.runs)
        next_time = plan.next_time
    assert handled == [start + number * _MINUTE for number in range(51)]


@pytest.mark.parametrize(
    ("policy", "runs", "live", "moves", "cancel"),
    [
        (OverlapPolicy.ALLOW, [_run(1), _run(2, starting=True), _run(3)], ["t"],
         ["r1 START", "r3 START"], []),
        (OverlapPolicy.SKIP, [_run(1), _run(2)], [], ["r1 START", "r2 SKIP"], []),
        (OverlapPolicy.SKIP, [_run(1)], ["t"], ["r1 SKIP"], []),
        (OverlapPolicy.SKIP, [_run(1, starting=True), _run(2)], [], ["r2 SKIP"], []),
        (OverlapPolicy.BUFFER_ONE, [_run(1), _run(2), _run(3)], [],
         ["r1 START", "r2 WAIT", "r3 SKIP"], []),
        (OverlapPolicy.BUFFER_ONE, [_run(1), _run(2)], ["t"], ["r1 WAIT", "r2 SKIP"], []),
        (OverlapPolicy.CANCEL_OTHER, [_run(1), _run(2)], [], ["r1 SKIP", "r2 START"], []),
        (OverlapPolicy.CANCEL_OTHER, [_run(1), _run(2)], ["t"],
         ["r1 SKIP", "r2 WAIT"], ["t"]),
        (OverlapPolicy.CANCEL_OTHER, [_run(1, starting=True), _run(2)], [], ["r2 WAIT"], []),
        (OverlapPolicy.CANCEL_OTHER, [_run(1, starting=True)], ["t"], [], []),
        (OverlapPolicy.CANCEL_OTHER, [], ["t"], [], []),
    ],
)  # fmt: skip
def test_each_policy_decides_as_stated(
    policy: OverlapPolicy, runs: list[OpenRun], live: list[str], moves: list[str], cancel: list[str]
) -> None:
    """Which runs start, wait or are skipped, and which task is cancelled, by the policy."""
    decision = decide_overlap(policy, runs, [LiveTask(one) for one in live])
    assert [f"{one.run_id} {one.move}" for one in decision.moves] == moves
    assert list(decision.cancel) == cancel
    assert all(one.reason for one in decision.moves if one.move != "START")


def test_the_due_time_enters_the_input_without_touching_its_numbers() -> None:
    """The key is put in as text, so that a large number keeps its digits."""
    with_key = replace(_TASK, due_time_key='at"')
    text = task_input(with_key, _NOON)
    assert text == '{"at\\"":"2026-01-01T12:00:00Z","n":12345678901234567890.10}'
    empty = replace(with_key, input_json="", due_time_key="at")
    assert task_input(empty, _NOON) == '{"at":"2026-01-01T12:00:00Z"}'
    assert task_of_text(task_text(with_key)) == with_key


@pytest.mark.parametrize(
    ("changes", "task_changes", "words"),
    [
        ({"overlap": ""}, {}, "overlap_policy"),
        ({"catch_up": timedelta(seconds=9)}, {}, "catch_up_window"),
        ({"catch_up": timedelta(days=367)}, {}, "catch_up_window"),
        ({}, {"input_json": "[1]"}, "not an object"),
        ({}, {"due_time_key": "n"}, "in the input already"),
        ({}, {"labels": {str(number): "" for number in range(31)}}, "at most 30"),
    ],
)
def test_a_wrong_spec_names_its_field(
    changes: dict[str, object], task_changes: dict[str, object], words: str
) -> None:
    """What CreateTask does not check is checked when the schedule is stored."""
    sent = SpecAsSent("0 0 * * *", "", "SKIP", None, replace(_TASK, **task_changes))  # type: ignore[arg-type]
    with pytest.raises(ScheduleInvalidError, match=words):
        checked_spec(replace(sent, **changes), "nightly")  # type: ignore[arg-type]
