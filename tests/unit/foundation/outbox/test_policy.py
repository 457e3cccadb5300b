"""The rule from an outcome to a mark."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from foundation.outbox.model import (
    ERROR_LENGTH_MAX,
    Dead,
    Delivered,
    DestinationUnreachable,
    Held,
    OutboxRow,
    OutboxStatus,
    Retry,
)
from foundation.outbox.policy import OutboxPolicy, mark_for

POLICY = OutboxPolicy("test", back_off_s=lambda attempts: 10.0 * attempts, attempts_max=3)


def row(attempts: int = 0) -> OutboxRow:
    return OutboxRow(
        outbox_id=UUID(int=1),
        ordering_key=None,
        position=1,
        destination="stream",
        payload="{}",
        attempts=attempts,
        claims=1,
        claim_id=UUID(int=2),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_delivered_is_published_under_the_claim() -> None:
    """A delivery marks the very claim, without an attempt or an error."""
    mark = mark_for(row(), Delivered(), POLICY)
    assert (mark.status, mark.attempts_added, mark.error) == (OutboxStatus.PUBLISHED, 0, None)
    assert (mark.outbox_id, mark.claim_id) == (UUID(int=1), UUID(int=2))


def test_retry_backs_off_by_the_attempts_including_this_one() -> None:
    """The policy's back-off sees the failure that has just been counted."""
    mark = mark_for(row(attempts=1), Retry("no"), POLICY)
    assert (mark.status, mark.attempts_added, mark.due_in_s) == (OutboxStatus.FAILED, 1, 20.0)


def test_retry_honours_what_the_receiver_asks_but_never_less_than_the_policy() -> None:
    """Retry-After lengthens the wait and cannot shorten it."""
    assert mark_for(row(), Retry("no", retry_after_s=60.0), POLICY).due_in_s == 60.0
    assert mark_for(row(), Retry("no", retry_after_s=1.0), POLICY).due_in_s == 10.0


def test_the_last_counted_attempt_is_dead() -> None:
    """After `attempts_max` counted failures the row is given up."""
    assert mark_for(row(attempts=2), Retry("no"), POLICY).status is OutboxStatus.DEAD
    uncounted = mark_for(row(attempts=2), Retry("no", counts_attempt=False), POLICY)
    assert (uncounted.status, uncounted.attempts_added) == (OutboxStatus.FAILED, 0)


def test_without_a_maximum_a_row_is_never_given_up() -> None:
    """Node events wait for as long as the network is away."""
    policy = OutboxPolicy("test", back_off_s=lambda _: 30.0)
    assert mark_for(row(attempts=10_000), Retry("no"), policy).status is OutboxStatus.FAILED


def test_unreachable_and_held_count_no_attempt() -> None:
    """What says nothing about the row costs it nothing, and can be released."""
    lost = mark_for(row(), DestinationUnreachable("down"), POLICY)
    assert (lost.status, lost.attempts_added, lost.held) == (OutboxStatus.FAILED, 0, True)
    assert lost.due_in_s == POLICY.probe_interval_s
    held = mark_for(row(), Held("gone", recheck_after_s=7.0), POLICY)
    assert (held.attempts_added, held.held, held.due_in_s) == (0, True, 7.0)


def test_a_final_refusal_is_dead_at_once() -> None:
    """No retry is made of what can never succeed."""
    mark = mark_for(row(), Dead("NOT_FOUND"), POLICY)
    assert (mark.status, mark.attempts_added, mark.error) == (OutboxStatus.DEAD, 1, "NOT_FOUND")


def test_errors_are_cut_and_fit_for_a_database() -> None:
    """A receiver's endless or binary answer cannot fill or break the row."""
    mark = mark_for(row(), Retry("\x00" + "x" * 10_000), POLICY)
    assert mark.error is not None
    assert len(mark.error) == ERROR_LENGTH_MAX
    assert "\x00" not in mark.error


@pytest.mark.parametrize(
    "figures",
    [
        {"publish_timeout_s": 60.0},
        {"batch_size_max": 0},
        {"attempts_max": 0},
        {"claims_max": 0},
        {"name": "Not a word"},
    ],
)
def test_contradicting_figures_are_refused(figures: dict[str, object]) -> None:
    """A publish may not outlast its claim, and sizes start at 1."""
    settings: dict[str, object] = {"name": "test", "back_off_s": lambda _: 1.0, **figures}
    with pytest.raises(ValueError, match=r"must be below|start at 1|not a lower-case"):
        OutboxPolicy(**settings)  # type: ignore[arg-type]  # the wrong figures are the point


def test_failpoints_are_named_after_the_outbox() -> None:
    """A process declares the pump's points under the outbox's name."""
    assert POLICY.failpoints[:2] == ("test.claim.before", "test.claim.after")
    assert len(POLICY.failpoints) == 6
