"""Tests of the node's own lease deadlines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.core.session.lease_clock import (
    HELLO_NUMBER,
    SENT_HEARTBEATS_MAX,
    AttemptId,
    HeldLease,
    LeaseClock,
    LeaseVersion,
    SessionNumber,
    Standing,
)

TTL_S = 60.0
A = AttemptId("attempt-a")
B = AttemptId("attempt-b")
V1 = LeaseVersion(1)
V2 = LeaseVersion(2)


def open_session(clock: LeaseClock, at_s: float = 0.0, ttl_s: float = TTL_S) -> SessionNumber:
    session = clock.hello_sent(at_s)
    clock.welcomed(session, ttl_s)
    return session


def test_a_renewal_counts_from_the_sending_of_its_heartbeat() -> None:
    """The deadline is the sending time + 5/6 TTL, however late the answer comes."""
    clock = LeaseClock()
    session = open_session(clock)
    clock.run_received(A, V1, 60.0, session, HELLO_NUMBER)
    clock.heartbeat_sent(session, 1, 5.0)
    clock.heartbeat_sent(session, 2, 10.0)
    assert clock.renewed(A, V1, session, 1) is Standing.RUNNABLE
    assert clock.next_deadline_s() == 55.0


def test_a_late_answer_never_moves_a_deadline_back() -> None:
    """Answers out of their order leave the latest deadline."""
    clock = LeaseClock()
    session = open_session(clock)
    clock.run_received(A, V1, 60.0, session, HELLO_NUMBER)
    clock.heartbeat_sent(session, 1, 5.0)
    clock.heartbeat_sent(session, 2, 10.0)
    clock.renewed(A, V1, session, 2)
    clock.renewed(A, V1, session, 1)
    assert clock.next_deadline_s() == 60.0


@given(
    sent_s=st.floats(0, 1000),
    delay_s=st.floats(0, 100),
    remaining_s=st.floats(0, TTL_S),
    rate=st.floats(0.92, 1.08),
    stop_s=st.floats(0, TTL_S / 12),
)
def test_a_run_stops_before_the_lease_ends_whatever_is_left(
    sent_s: float, delay_s: float, remaining_s: float, rate: float, stop_s: float
) -> None:
    """With any remainder, delay, clock rate and stop time, the child ends before the lease."""
    clock = LeaseClock()
    session = open_session(clock, sent_s * rate)
    clock.run_received(A, V1, remaining_s, session, HELLO_NUMBER)
    deadline_s = clock.next_deadline_s()
    lease_ends_s = sent_s + delay_s + remaining_s
    assert deadline_s is None or deadline_s / rate + stop_s <= lease_ends_s + sent_s * 1e-9 + 1e-6


def test_a_run_with_a_margin_or_less_left_waits() -> None:
    """A RUN that has TTL/6 left is held, but not begun before a renewal."""
    clock = LeaseClock()
    session = open_session(clock)
    assert clock.run_received(A, V1, TTL_S / 6, session, HELLO_NUMBER) is Standing.WAITING
    assert not clock.may_run(A, 0.0)
    clock.heartbeat_sent(session, 1, 1.0)
    assert clock.renewed(A, V1, session, 1) is Standing.RUNNABLE


def test_a_run_naming_an_unknown_heartbeat_waits() -> None:
    """A number that was never sent gives no deadline."""
    clock = LeaseClock()
    session = open_session(clock)
    assert clock.run_received(A, V1, 60.0, session, 7) is Standing.WAITING


def test_a_recovered_attempt_waits_for_keep() -> None:
    """After a restart nothing runs until KEEP, whose heartbeat is Hello."""
    clock = LeaseClock()
    clock.recovered(A, V1)
    session = clock.hello_sent(100.0)
    assert clock.kept(A, V1, session) is Standing.WAITING
    clock.welcomed(session, TTL_S)
    assert not clock.may_run(A, 100.0)
    assert clock.kept(A, V1, session) is Standing.RUNNABLE
    assert clock.next_deadline_s() == 150.0


def test_answers_of_an_earlier_session_do_not_count() -> None:
    """Heartbeat numbers begin anew, so an old session's answer must not meet a new number."""
    clock = LeaseClock()
    old = open_session(clock)
    clock.run_received(A, V1, 60.0, old, HELLO_NUMBER)
    clock.heartbeat_sent(old, 1, 5.0)
    new = open_session(clock, 40.0)
    clock.heartbeat_sent(new, 1, 45.0)
    clock.renewed(A, V1, old, 1)
    clock.heartbeat_answered(old, 1)
    assert clock.next_deadline_s() == 50.0
    assert clock.answer_overdue_at_s() == 60.0


def test_an_expired_attempt_is_named_once_and_stays_held() -> None:
    """Past its deadline an attempt is stopped, still listed, and may go on once renewed."""
    clock = LeaseClock()
    session = open_session(clock)
    clock.run_received(A, V1, 60.0, session, HELLO_NUMBER)
    assert clock.expired(49.999) == ()
    assert clock.expired(50.0) == (A,)
    assert clock.expired(51.0) == ()
    assert clock.held() == (HeldLease(A, V1),)
    assert clock.next_deadline_s() is None
    clock.heartbeat_sent(session, 1, 51.0)
    assert clock.renewed(A, V1, session, 1) is Standing.RUNNABLE


def test_only_the_attempts_past_their_deadline_expire() -> None:
    """Each attempt has its own deadline, and the next one is the earliest."""
    clock = LeaseClock()
    session = open_session(clock)
    clock.run_received(A, V1, 30.0, session, HELLO_NUMBER)
    clock.run_received(B, V1, 60.0, session, HELLO_NUMBER)
    assert clock.next_deadline_s() == 20.0
    assert clock.expired(25.0) == (A,)
    assert clock.may_run(B, 25.0)
    assert clock.next_deadline_s() == 50.0


def test_another_lease_version_changes_nothing() -> None:
    """Renewals, losses and RUNs of another version are ignored."""
    clock = LeaseClock()
    session = open_session(clock)
    clock.run_received(A, V2, 60.0, session, HELLO_NUMBER)
    clock.heartbeat_sent(session, 1, 5.0)
    assert clock.renewed(A, V1, session, 1) is Standing.UNKNOWN
    assert clock.run_received(A, V1, 60.0, session, 1) is Standing.UNKNOWN
    assert not clock.lost(A, V1)
    assert clock.next_deadline_s() == 50.0


def test_a_lost_lease_is_dropped() -> None:
    """LOST drops the lease, says so once, and a later renewal does not bring it back."""
    clock = LeaseClock()
    session = open_session(clock)
    clock.run_received(A, V1, 60.0, session, HELLO_NUMBER)
    assert clock.lost(A, V1)
    assert not clock.lost(A, V1)
    assert clock.renewed(A, V1, session, HELLO_NUMBER) is Standing.UNKNOWN
    assert clock.held() == ()


def test_a_released_attempt_is_no_longer_listed() -> None:
    """What is over is neither listed nor awaited; releasing it twice is harmless."""
    clock = LeaseClock()
    clock.recovered(A, V1)
    clock.released(A)
    clock.released(A)
    assert clock.held() == ()


def test_sending_times_are_bounded() -> None:
    """However many heartbeats go unanswered, only those that can still count are kept."""
    clock = LeaseClock()
    session = open_session(clock)
    for number in range(1, 10_000):
        clock.heartbeat_sent(session, number, number * 0.01)
    assert len(clock._session.sent_at_s) <= SENT_HEARTBEATS_MAX
    session = open_session(clock, 200.0)
    for number in range(1, 40):
        clock.heartbeat_sent(session, number, 200.0 + number * 5.0)
    assert min(clock._session.sent_at_s.values()) > 200.0 + 39 * 5.0 - TTL_S


def test_a_heartbeat_number_must_grow() -> None:
    """A number used twice would give one answer two meanings."""
    clock = LeaseClock()
    session = open_session(clock)
    clock.heartbeat_sent(session, 1, 1.0)
    with pytest.raises(ValueError, match="heartbeat 1 was sent after 1"):
        clock.heartbeat_sent(session, 1, 2.0)


@pytest.mark.parametrize("ttl_s", [0.0, -1.0, float("nan")])
def test_welcome_must_name_a_ttl(ttl_s: float) -> None:
    """A TTL that is not above 0 is refused with its value."""
    clock = LeaseClock()
    session = clock.hello_sent(0.0)
    with pytest.raises(ValueError, match="lease TTL of"):
        clock.welcomed(session, ttl_s)


def test_silence_counts_from_the_newest_answered_heartbeat() -> None:
    """A session is overdue TTL/3 after the newest heartbeat that was answered was sent."""
    clock = LeaseClock()
    session = clock.hello_sent(0.0)
    assert clock.answer_overdue_at_s() is None
    clock.welcomed(session, TTL_S)
    assert clock.answer_overdue_at_s() == 20.0
    clock.heartbeat_sent(session, 1, 5.0)
    clock.heartbeat_sent(session, 2, 10.0)
    clock.heartbeat_answered(session, 2)
    clock.heartbeat_answered(session, 1)
    assert clock.answer_overdue_at_s() == 30.0
