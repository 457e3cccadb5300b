"""The mailbox folds what waits, and says when progress may leave."""

from foundation.clock import ManualClock
from node_agent.core.session.mailbox import Mailbox
from node_agent.core.session.messages import (
    AttemptProgress,
    CommandAck,
    JobCredit,
    ProgressReport,
    attempt_lease,
)

LEASE = attempt_lease("a", 1)


def made() -> tuple[Mailbox, ManualClock]:
    clock = ManualClock()
    return Mailbox(clock.monotonic, 1.0), clock


def test_acks_and_credits_are_folded() -> None:
    """Only the highest sequence is told, and credits are added up, once."""
    mailbox, _ = made()
    mailbox.ack(5, ["x"])
    mailbox.ack(3, ["y"])
    mailbox.credit(2)
    mailbox.credit(1)
    assert mailbox.take() == [CommandAck(5, ("x", "y")), JobCredit(3)]
    assert mailbox.take() == []


def test_progress_leaves_once_a_second_and_never_goes_back() -> None:
    """The first leaves at once; later ones wait, and the highest of them is told."""
    mailbox, clock = made()
    mailbox.report_progress(LEASE, 10, "")
    assert mailbox.take() == [ProgressReport([AttemptProgress(LEASE, 10, "")])]
    mailbox.report_progress(LEASE, 30, "")
    mailbox.report_progress(LEASE, 20, "")
    assert mailbox.take() == []
    assert mailbox.next_progress_in_s() == 1.0
    clock.advance(1.0)
    assert mailbox.next_progress_in_s() == 0.0
    assert mailbox.take() == [ProgressReport([AttemptProgress(LEASE, 30, "")])]
    assert mailbox.next_progress_in_s() is None


def test_a_new_session_begins_without_the_old_ones_acks() -> None:
    """Hello says by itself what they would; progress is true in any session."""
    mailbox, _ = made()
    mailbox.ack(5)
    mailbox.credit(2)
    mailbox.send_events([])
    mailbox.report_progress(LEASE, 10, "")
    mailbox.begin_session()
    assert mailbox.take() == [ProgressReport([AttemptProgress(LEASE, 10, "")])]


def test_nothing_is_told_of_an_attempt_that_is_over() -> None:
    """Its progress is dropped."""
    mailbox, _ = made()
    mailbox.report_progress(LEASE, 10, "")
    mailbox.forget_progress(LEASE.attempt_id)
    assert mailbox.take() == []
