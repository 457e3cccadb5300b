"""What may be ordered, cancelled and run again; and the states of an order."""

import json
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from business_gateway.core.assets.domain import AssetId
from business_gateway.core.errors import TransitionForbiddenError
from business_gateway.core.orders.commands import (
    SHIPPED_WORKFLOWS,
    WorkflowChoice,
    cancel_command,
    platform_key,
    rerun_command,
    submit_command,
)
from business_gateway.core.orders.domain import (
    CancelDecision,
    CommandId,
    CommandKind,
    NewOrder,
    Order,
    OrderId,
    OrderNeverSubmittedError,
    OrderNotFinishedError,
    ProcessingMode,
    RerunMode,
    SubmitFacts,
    check_rerun,
    checked_reason,
    checked_request,
    decide_cancel,
)
from business_gateway.core.orders.state_machine import (
    FINAL_STATUSES,
    PLATFORM_STATUSES,
    OrderStatus,
    check_order_move,
    is_final,
    next_status,
    order_status_of,
)
from foundation.errors import InvalidArgumentError

ASSET_ID = "0190a000-0000-7000-8000-000000000001"
ORDER_ID = OrderId("0190a000-0000-7000-8000-000000000002")
WATERMARK = "ARCHIVE_CLEAN_THEN_WATERMARK"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
S = OrderStatus


def an_order(**changes: Any) -> Order:
    facts: dict[str, Any] = {
        "order_id": ORDER_ID,
        "name": "A",
        "processing_mode": ProcessingMode.ARCHIVE_CLEAN_ONLY,
        "watermark_text": "",
        "source_asset_id": AssetId(ASSET_ID),
        "status": S.SUBMITTING,
        "task_id": None,
        "execution_id": None,
        "run": 0,
        "last_contiguous_sequence": 0,
        "last_projected_sequence": 0,
        "platform_status": "",
        "progress_percent": 0,
        "diagnosis": "",
        "diagnosis_json": None,
        "output_json": None,
        "version": 1,
        "cancel_requested_at": None,
        "created_at": NOW,
        "updated_at": NOW,
        "completed_at": None,
    }
    return Order(**{**facts, **changes})


@given(st.text(min_size=1, max_size=200))
def test_names_are_trimmed_and_counted_in_characters(name: str) -> None:
    """Any text of 1 to 200 characters after trimming is a name, whatever its bytes; else not."""
    trimmed = name.strip()
    if trimmed and "\x00" not in trimmed:
        request = checked_request(name, "ARCHIVE_CLEAN_ONLY", "  ", ASSET_ID)
        assert (request.name, request.watermark_text) == (trimmed, "")
    else:
        with pytest.raises(InvalidArgumentError):
            checked_request(name, "ARCHIVE_CLEAN_ONLY", "", ASSET_ID)


@pytest.mark.parametrize(
    ("name", "mode", "text", "fields"),
    [
        ("漢" * 200, WATERMARK, "字" * 100, []),
        ("a", WATERMARK, " x ", []),
        ("a" * 201, WATERMARK, "x", ["name"]),
        ("a", WATERMARK, "字" * 101, ["watermark_text"]),
        ("a", WATERMARK, " \n", ["watermark_text"]),
        ("a", WATERMARK, "a\x00", ["watermark_text"]),
        ("a\ud800", WATERMARK, "a", ["name"]),
        ("", "", "x", ["name", "processing_mode"]),
        (" ", "ARCHIVE_CLEAN_ONLY", "x", ["name", "watermark_text"]),
    ],
)
def test_every_wrong_field_is_named(name: str, mode: str, text: str, fields: list[str]) -> None:
    """The limits hold in characters, and all mistakes are told at once."""
    if not fields:
        checked_request(name, mode, text, ASSET_ID)
        return
    with pytest.raises(InvalidArgumentError) as caught:
        checked_request(name, mode, text, ASSET_ID)
    assert [one.field for one in caught.value.field_violations] == fields


def test_reasons_are_bounded() -> None:
    """A reason has at most 500 characters, and no NUL."""
    assert checked_reason("  " + "r" * 500) == "r" * 500
    for reason in ("r" * 501, "a\x00b"):
        with pytest.raises(InvalidArgumentError):
            checked_reason(reason)


MOVES = {
    S.SUBMITTING: {
        S.PROCESSING, S.COMPLETED, S.NEEDS_ATTENTION, S.CANCELING, S.CANCELED,
    },
    S.PROCESSING: {S.COMPLETED, S.NEEDS_ATTENTION, S.CANCELING, S.CANCELED},
    S.CANCELING: {S.COMPLETED, S.NEEDS_ATTENTION, S.CANCELED},
}  # fmt: skip


@pytest.mark.parametrize(("current", "target"), list(product(S, S)))
def test_every_pair_of_states_is_a_move_or_is_not(current: S, target: S) -> None:
    """Exactly the table's moves are allowed; final states are left by a new run alone."""
    allowed = target in MOVES.get(current, set())
    assert next_status(current, target) is (target if allowed else current)
    assert next_status(current, target, new_run=True) is target
    if allowed or current is target:
        check_order_move(current, target)
    else:
        with pytest.raises(TransitionForbiddenError):
            check_order_move(current, target)
    assert is_final(current) == (current in FINAL_STATUSES) == (current not in MOVES)


def test_an_order_never_submitted_can_still_be_closed() -> None:
    """After a final refusal NEEDS_ATTENTION may become CANCELED or CANCELING, nothing else."""
    for target in (S.CANCELED, S.CANCELING):
        check_order_move(S.NEEDS_ATTENTION, target, never_submitted=True)
    with pytest.raises(TransitionForbiddenError):
        check_order_move(S.NEEDS_ATTENTION, S.COMPLETED, never_submitted=True)
    with pytest.raises(TransitionForbiddenError):
        check_order_move(S.COMPLETED, S.CANCELED, never_submitted=True)


def test_every_platform_state_means_something() -> None:
    """The platform's states map to business states; an empty one says nothing."""
    assert {one: order_status_of(one) for one in sorted(PLATFORM_STATUSES)} == {
        "CANCELED": S.CANCELED,
        "CANCELING": S.CANCELING,
        "CREATED": S.PROCESSING,
        "FAILED": S.NEEDS_ATTENTION,
        "QUEUED": S.PROCESSING,
        "RUNNING": S.PROCESSING,
        "SUCCEEDED": S.COMPLETED,
        "TIMED_OUT": S.NEEDS_ATTENTION,
    }
    assert order_status_of("") is None
    with pytest.raises(KeyError):
        order_status_of("PAUSED")


FACTS = [None, *(SubmitFacts(claimed, dead) for claimed, dead in product([False, True], repeat=2))]


@pytest.mark.parametrize(("status", "task_id", "submit"), list(product(S, [None, "t"], FACTS)))
def test_a_cancel_is_local_only_where_nobody_can_have_heard(
    status: S,
    task_id: str | None,
    submit: SubmitFacts | None,
) -> None:
    """Withdrawn only if SUBMIT was never claimed; closed only if given up; else told or nothing."""
    order = an_order(status=status, task_id=task_id)
    decision = decide_cancel(order, submit)
    if decision is CancelDecision.WITHDRAW:
        assert status is S.SUBMITTING
        assert submit is not None
        assert not submit.ever_claimed
    elif decision is CancelDecision.CLOSE:
        assert status is S.NEEDS_ATTENTION
        assert task_id is None
        assert submit is None or submit.given_up
    elif decision is CancelDecision.NOTHING:
        assert is_final(status) or status is S.CANCELING
    else:
        assert status in {S.SUBMITTING, S.PROCESSING, S.NEEDS_ATTENTION}
        assert not (status is S.SUBMITTING and submit is not None and not submit.ever_claimed)


def test_only_what_ended_on_the_platform_runs_again() -> None:
    """Under way: not finished; refused or withdrawn: never submitted; else it may."""
    for status in set(S) - FINAL_STATUSES:
        with pytest.raises(OrderNotFinishedError):
            check_rerun(an_order(status=status, task_id="t", run=1))
    for status in FINAL_STATUSES:
        check_rerun(an_order(status=status, task_id="t", run=1))
        with pytest.raises(OrderNeverSubmittedError):
            check_rerun(an_order(status=status))


def test_commands_say_what_the_platform_needs() -> None:
    """Payloads carry exactly their fields; keys of repeats are stable."""
    command_id = CommandId("c1")
    order = NewOrder(ORDER_ID, checked_request("A", "ARCHIVE_CLEAN_ONLY", "", ASSET_ID))
    submit = json.loads(submit_command(command_id, order).payload)
    assert submit["workflow_name"] == "archive-clean"
    assert submit["input"] == {
        "archive_ref": f"asset:{ASSET_ID}",
        "collection_ref": f"collection:{ORDER_ID}",
    }
    own = {**SHIPPED_WORKFLOWS, ProcessingMode.ARCHIVE_CLEAN_ONLY: WorkflowChoice("own", "7")}
    chosen = json.loads(submit_command(command_id, order, own).payload)
    assert (chosen["workflow_name"], chosen["workflow_version"]) == ("own", "7")
    cancel = cancel_command(command_id, ORDER_ID, 2, "why")
    assert json.loads(cancel.payload) == {"order_id": ORDER_ID, "run": 2, "reason": "why"}
    rerun = rerun_command(command_id, ORDER_ID, 2, RerunMode.FROM_SCRATCH, "")
    assert json.loads(rerun.payload)["mode"] == "FROM_SCRATCH"
    assert platform_key(CommandKind.SUBMIT, ORDER_ID, "c1") == f"submit:{ORDER_ID}"
    assert platform_key(CommandKind.CANCEL, ORDER_ID, "c1") == "cancel:c1"
    assert platform_key(CommandKind.RERUN, ORDER_ID, "c1") == "rerun:c1"
