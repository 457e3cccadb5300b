"""Slots of limits: never more than there are, turns for rates, and keys as definitions say."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.adapters.outbound.cel import CelCompiler
from control_plane.core.engine.limiting import workflow_uses
from control_plane.core.expressions.errors import ExpressionFailedError
from control_plane.core.scheduling.limits import (
    LimitBoard,
    LimitState,
    LimitUse,
    uses_from_json,
    uses_to_json,
)
from control_plane.core.workflows.compiling import CompiledWorkflow, CompiledWorkflows

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_A, _B = LimitUse("a", "Key 'a'", 2), LimitUse("b", "Key 'b'", 1)
_RATE = LimitUse("r", "The limit", 2, per_s=10.0)


def test_all_slots_or_none() -> None:
    """Who lacks one of two keys takes none of the other, which then has room for somebody else."""
    board = LimitBoard({"a": LimitState([_NOW]), "b": LimitState([_NOW])})
    wait = board.take([_A, _B], _NOW)
    assert wait is not None
    assert (wait.identity, wait.until) == ("b", None)
    assert board.with_room() == ["a"]
    assert board.take([_A], _NOW) is None
    assert board.with_room() == []
    assert board.take([_A], _NOW) is not None


def test_waiting_for_a_rate_gives_each_a_turn_of_its_own() -> None:
    """Two may start in 10 s: the next two turn with the slots' ends, the third 10 s later."""
    starts = [_NOW - timedelta(seconds=8), _NOW - timedelta(seconds=3)]
    board = LimitBoard({"r": LimitState(starts, waiting_count=1)})
    turns = [board.take([_RATE], _NOW) for _ in range(3)]
    assert [one.until - _NOW if one and one.until else None for one in turns] == [
        timedelta(seconds=7),
        timedelta(seconds=12),
        timedelta(seconds=17),
    ]
    assert turns[0] is not None
    assert "has started 2 times within 10 s" in turns[0].sentence


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.sampled_from("xyz"), st.booleans()), max_size=40),
)
def test_no_order_of_starts_and_ends_exceeds_a_limit(
    count: int, steps: list[tuple[str, bool]]
) -> None:
    """Each key never has more holders than slots, and refuses only when it is full."""
    held = dict.fromkeys("xyz", 0)
    for key, starts in steps:
        board = LimitBoard({key: LimitState([_NOW] * held[key])})
        if starts:
            wait = board.take([LimitUse(key, key, count)], _NOW)
            assert (wait is None) == (held[key] < count)
            held[key] += wait is None
        else:
            held[key] = max(held[key] - 1, 0)
        assert held[key] <= count


def test_uses_survive_being_stored() -> None:
    """What a request needs is read back the same; nothing is stored for none."""
    assert uses_to_json([]) == ""
    assert uses_from_json("") == ()
    assert uses_from_json(uses_to_json([_A, _RATE])) == (_A, _RATE)


def _workflow(**fields: object) -> CompiledWorkflow:
    step = {"key": "a", "capability": "c", "capability_version": "1"}
    definition = {"name": "w", "version": "1", "steps": [step], **fields}
    return CompiledWorkflows(CelCompiler()).get(json.dumps(definition), json.dumps(fields))


@pytest.mark.parametrize(
    ("key", "document", "identity"),
    [
        ("${ input.c }", '{"c":"x/y"}', "execution/concurrency/app/w/x/y"),
        ("${ input.c }", '{"c":7}', "execution/concurrency/app/w/7"),
        ("c-${ input.c }", '{"c":true}', "execution/concurrency/app/w/c-true"),
        ("all", "{}", "execution/concurrency/app/w/all"),
    ],
)
def test_a_key_is_text_a_number_or_a_boolean(key: str, document: str, identity: str) -> None:
    """Keys are told apart by level, kind, application and workflow."""
    (use,) = workflow_uses(_workflow(concurrency_key=key), "app", document)
    assert (use.identity, use.count, use.per_s) == (identity, 1, 0.0)


def test_scopes_and_kinds_are_kept_apart() -> None:
    """In scope application the workflow is left out of the key; a rate is not a concurrency."""
    both = _workflow(
        concurrency_key={"key": "k", "max": 3, "scope": "application"},
        rate_limit={"max": 5, "per": "1m"},
    )
    first, second = workflow_uses(both, "app", "{}")
    assert (first.identity, first.label) == (
        "execution/concurrency/app//k",
        "Key 'k' of the application",
    )
    assert (second.identity, second.label, second.per_s) == (
        "execution/rate/app/w/",
        "The limit of workflow w",
        60.0,
    )


@pytest.mark.parametrize(
    "document", ['{"c":null}', '{"c":[1]}', "{}", json.dumps({"c": "x" * 201})]
)
def test_a_key_without_a_usable_value_fails(document: str) -> None:
    """Null, lists, missing and overlong ones are errors, and never one key for all of them."""
    with pytest.raises(ExpressionFailedError):
        workflow_uses(_workflow(concurrency_key="${ input.c }"), "app", document)
