"""Tests of the control plane's pure lease rules."""

from dataclasses import replace

import pytest

from control_plane.core.executions.domain import AttemptId
from control_plane.core.nodes.leases import (
    PRODUCTION_FIGURES,
    TEST_FIGURES,
    DatabaseSeconds,
    Generation,
    IncarnationId,
    LeaseFacts,
    LeaseFigures,
    LeaseGuard,
    LeaseVersion,
    ListedLease,
    NodeId,
    NodeRow,
    RenewalOutcome,
    ReplicaId,
    Verdict,
    bounded_expiry_s,
    is_new_incarnation,
    is_silent,
    is_starved,
    judge_guard,
    judge_held,
    judge_renewal,
    may_expire,
    may_lose_missing,
    node_is_live,
    node_row_is_stale,
    plan_welcome,
    renewal_is_due,
    run_remaining_s,
    stamp_guard,
    stamp_is_due,
)

F = PRODUCTION_FIGURES
NODE = NodeId("node-1")
OTHER = NodeId("node-2")
A = AttemptId("attempt-a")
LISTED = ListedLease(A, LeaseVersion(3))


def t(seconds: float) -> DatabaseSeconds:
    return DatabaseSeconds(1000.0 + seconds)


def guard(stamped_s: float = 0.0, hold_s: float = -999.0) -> LeaseGuard:
    return LeaseGuard(t(stamped_s), t(hold_s))


FACTS = LeaseFacts(
    A, NODE, LeaseVersion(3), t(30), is_terminal=False, is_accepted=True, stop_requested=False
)


def test_the_profiles_are_those_of_the_specification() -> None:
    """Production is 60/5/15 s, the test profile 3/0.5/1.5 s."""
    assert (F.lease_ttl_s, F.heartbeat_interval_s, F.scheduling_ttl_s) == (60, 5, 15)
    test = TEST_FIGURES
    assert (test.lease_ttl_s, test.heartbeat_interval_s, test.scheduling_ttl_s) == (3, 0.5, 1.5)


@pytest.mark.parametrize(
    ("change", "relation"),
    [
        ({"heartbeat_interval_s": 0.0}, "heartbeat_interval_s > 0"),
        ({"heartbeat_interval_s": 6.0}, "3 \\* heartbeat_interval_s <= scheduling_ttl_s"),
        ({"scheduling_ttl_s": 31.0}, "scheduling_ttl_s <= lease_ttl_s / 2"),
        ({"stop_budget_s": 5.1}, "stop_budget_s <= lease_ttl_s / 12"),
        ({"heartbeat_interval_s": 15.1}, "<= node_deadline"),
    ],
)
def test_contradicting_figures_are_refused(change: dict[str, float], relation: str) -> None:
    """Each relation that the rules rest on is asserted, and named when broken."""
    with pytest.raises(ValueError, match=relation):
        replace(F, **change)


def test_figures_scale() -> None:
    """All derived times are fractions of the TTL."""
    assert (F.renew_below_s, F.margin_s, F.node_deadline_s) == (50, 10, 50)
    assert (F.stamp_interval_s, F.stall_after_s, F.hold_s) == (5, 30, 60)
    assert LeaseFigures(120, 10, 30, 10).answer_silence_s == 40


@pytest.mark.parametrize(
    ("now_s", "hold_s"),
    [(30.0, -999.0), (30.1, 90.1), (-5.0, -999.0), (-5.1, 54.9)],
)
def test_a_guard_older_than_half_a_ttl_or_from_the_future_sets_the_hold(
    now_s: float, hold_s: float
) -> None:
    """A stall is an old stamp, or one that a clock which went back left in the future."""
    assert judge_guard(guard(), t(now_s), F).hold_until_s == pytest.approx(t(hold_s))


def test_judging_does_not_stamp_and_a_tick_does() -> None:
    """Only a tick shows that renewing works."""
    assert judge_guard(guard(), t(40), F).stamped_at_s == t(0)
    assert stamp_guard(guard(), t(40), F, starved=False) == LeaseGuard(t(40), t(100))


def test_a_hold_from_before_the_clock_went_back_is_pulled_in() -> None:
    """No hold reaches further than one TTL from now."""
    assert judge_guard(guard(0, 3600), t(1), F).hold_until_s == t(61)


def test_a_starved_lease_sets_the_hold_though_the_stamp_is_fresh() -> None:
    """A long lock on one row hides it from renewal while everything else goes on."""
    assert stamp_guard(guard(), t(1), F, starved=False).hold_until_s == t(-999)
    assert stamp_guard(guard(), t(1), F, starved=True).hold_until_s == t(61)
    assert is_starved(t(29), t(0), F)
    assert not is_starved(t(30), t(0), F)


def test_stamps_are_due_only_while_leases_live() -> None:
    """Every TTL/12, and not at all when nothing is leased."""
    assert stamp_is_due(guard(), t(5), F, leases_live=True)
    assert not stamp_is_due(guard(), t(4.9), F, leases_live=True)
    assert not stamp_is_due(guard(), t(500), F, leases_live=False)


@pytest.mark.parametrize(("left_s", "due"), [(49.9, True), (50, False), (60, False), (60.1, True)])
def test_renewal_is_due_below_five_sixths_or_above_the_ttl(left_s: float, due: bool) -> None:  # noqa: FBT001 - an expected value
    """More than a TTL left can only come of a clock that went back."""
    assert renewal_is_due(t(left_s), t(0), F) is due


def judged(
    facts: LeaseFacts | None, *, now_s: float = 0.0, hold_s: float = -999.0, locked: bool = False
) -> RenewalOutcome:
    return judge_renewal(LISTED, facts, NODE, guard(0, hold_s), t(now_s), F, row_is_locked=locked)


def test_a_renewal_names_what_it_did() -> None:
    """Due leases are renewed, fresh ones not looked at, locked ones skipped."""
    assert judged(FACTS) is RenewalOutcome.RENEWED
    assert judged(replace(FACTS, lease_expires_at_s=t(55))) is RenewalOutcome.NOT_DUE
    assert judged(FACTS, locked=True) is RenewalOutcome.SKIPPED


@pytest.mark.parametrize(
    "facts",
    [
        None,
        replace(FACTS, node_id=OTHER),
        replace(FACTS, lease_version=LeaseVersion(4)),
        replace(FACTS, is_terminal=True),
        replace(FACTS, lease_expires_at_s=t(0)),
    ],
)
def test_what_is_no_longer_the_nodes_is_lost(facts: LeaseFacts | None) -> None:
    """Unknown, another's, another version, over, or expired: all lost, unless locked."""
    assert judged(facts) is RenewalOutcome.LOST
    assert judged(facts, locked=True) is RenewalOutcome.SKIPPED


def test_a_hold_keeps_an_expired_lease_renewable() -> None:
    """Past its own end but inside the hold, a lease is renewed, not lost."""
    late = replace(FACTS, lease_expires_at_s=t(-100))
    assert judged(late, hold_s=1) is RenewalOutcome.RENEWED
    assert judged(late, hold_s=0) is RenewalOutcome.LOST


@pytest.mark.parametrize(
    ("as_of_s", "now_s", "hold_s", "expires"),
    [
        (30, 30, -999, True),
        (29.9, 29.9, -999, False),
        (29.9, 500, -999, False),
        (500, 29.9, -999, False),
        (50, 50, 51, False),
        (50, 50, 50, True),
    ],
)
def test_a_sweep_judges_by_the_earlier_of_two_times_and_the_hold(
    as_of_s: float,
    now_s: float,
    hold_s: float,
    expires: bool,  # noqa: FBT001 - an expected value
) -> None:
    """Neither a stall nor a clock set back between the sweep's statements expires a lease."""
    assert may_expire(FACTS, guard(0, hold_s), t(as_of_s), t(now_s)) is expires


def test_a_sweep_leaves_terminal_attempts_alone() -> None:
    """What is over cannot be lost."""
    assert not may_expire(replace(FACTS, is_terminal=True), guard(), t(500), t(500))


def test_leases_from_before_the_clock_went_back_are_pulled_in() -> None:
    """A lease that seems to last more than 13/12 TTL ends one TTL from now."""
    assert bounded_expiry_s(t(3600), t(0), F) == t(60)
    assert bounded_expiry_s(t(65), t(0), F) == t(65)


@pytest.mark.parametrize(("end_s", "left_s"), [(30, 30), (-5, 0), (3600, 60)])
def test_run_carries_what_is_left_within_bounds(end_s: float, left_s: float) -> None:
    """Nothing negative for a lease that only a hold keeps, and never above the TTL."""
    assert run_remaining_s(t(end_s), t(0), F) == left_s


R1 = ReplicaId("replica-1")
LIVE = NodeRow(R1, t(0), is_silent=False)


@pytest.mark.parametrize(
    ("node", "replicas", "live"),
    [
        (LIVE, {R1: t(0)}, True),
        (LIVE, {R1: t(-15)}, True),
        (LIVE, {R1: t(-15.1)}, False),
        (LIVE, {R1: t(2)}, False),
        (LIVE, {}, False),
        (replace(LIVE, is_silent=True), {R1: t(0)}, False),
        (replace(LIVE, replica_id=None), {R1: t(0)}, False),
        (replace(LIVE, replica_id=ReplicaId("replica-1 before")), {R1: t(0)}, False),
        (replace(LIVE, seen_at_s=t(-61)), {R1: t(0)}, False),
        (replace(LIVE, seen_at_s=t(3600)), {R1: t(0)}, False),
    ],
)
def test_a_node_is_live_when_both_rows_are_fresh(
    node: NodeRow,
    replicas: dict[ReplicaId, DatabaseSeconds],
    live: bool,  # noqa: FBT001 - an expected value
) -> None:
    """Its replica is fresh and the very process that the node names, and it is not SILENT."""
    assert node_is_live(node, replicas, t(0), F) is live


def test_a_node_row_is_written_twice_in_a_ttl_at_most() -> None:
    """Not per heartbeat, but soon after the clock went back."""
    assert not node_row_is_stale(LIVE, t(30), F)
    assert node_row_is_stale(LIVE, t(30.1), F)
    assert node_row_is_stale(LIVE, t(-3600), F)


def test_a_node_is_silent_after_the_scheduling_ttl() -> None:
    """Three missed heartbeats, by the replica's monotonic clock."""
    assert not is_silent(0.0, 15.0, F)
    assert is_silent(0.0, 15.1, F)


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        (FACTS, Verdict.KEEP),
        (replace(FACTS, stop_requested=True), Verdict.CANCEL),
        (replace(FACTS, is_terminal=True), Verdict.FORGET),
        (replace(FACTS, is_terminal=True, stop_requested=True), Verdict.FORGET),
        (replace(FACTS, node_id=OTHER), Verdict.FORGET),
        (replace(FACTS, lease_version=LeaseVersion(2)), Verdict.FORGET),
        (replace(FACTS, lease_version=LeaseVersion(4)), Verdict.FORGET),
        (replace(FACTS, lease_expires_at_s=t(0)), Verdict.FORGET),
        (replace(FACTS, is_accepted=False), Verdict.KEEP),
        (None, Verdict.FORGET),
    ],
)
def test_welcome_judges_what_the_node_holds(facts: LeaseFacts | None, verdict: Verdict) -> None:
    """KEEP what is the node's, CANCEL what is to stop, FORGET everything else."""
    assert judge_held(LISTED, facts, NODE, guard(), t(0)) is verdict


def test_welcome_keeps_an_expired_lease_inside_a_hold() -> None:
    """After an outage the first Hello finds its lease past its end, and keeps it."""
    stalled = judge_guard(guard(-600), t(0), F)
    late = replace(FACTS, lease_expires_at_s=t(-500))
    assert judge_held(LISTED, late, NODE, stalled, t(0)) is Verdict.KEEP


def test_welcome_renews_what_it_keeps_and_names_what_is_missing() -> None:
    """Kept and cancelled leases are renewed; accepted ones that Hello omits are missing."""
    cancel = replace(FACTS, attempt_id=AttemptId("cancel"), stop_requested=True)
    gone = replace(FACTS, attempt_id=AttemptId("gone"))
    unsent = replace(FACTS, attempt_id=AttemptId("unsent"), is_accepted=False)
    over = replace(FACTS, attempt_id=AttemptId("over"), is_terminal=True)
    others = replace(FACTS, attempt_id=AttemptId("others"), node_id=OTHER)
    held = [
        LISTED,
        ListedLease(AttemptId("cancel"), LeaseVersion(3)),
        ListedLease(AttemptId("unknown"), LeaseVersion(1)),
    ]
    plan = plan_welcome(held, [FACTS, cancel, gone, unsent, over, others], NODE, guard(), t(0))
    assert plan.verdicts == {
        A: Verdict.KEEP,
        AttemptId("cancel"): Verdict.CANCEL,
        AttemptId("unknown"): Verdict.FORGET,
    }
    assert plan.renew == (A, AttemptId("cancel"))
    assert plan.missing == (ListedLease(AttemptId("gone"), LeaseVersion(3)),)


def test_what_is_missing_is_lost_only_in_a_current_session() -> None:
    """A newer session, or an attempt that moved on meanwhile, makes the old Hello's word void."""
    five, six = Generation(5), Generation(6)
    assert may_lose_missing(LISTED, FACTS, NODE, session=five, node=five)
    assert not may_lose_missing(LISTED, FACTS, NODE, session=five, node=six)
    over = replace(FACTS, is_terminal=True)
    assert not may_lose_missing(LISTED, over, NODE, session=five, node=five)
    assert not may_lose_missing(LISTED, None, NODE, session=five, node=five)


@pytest.mark.parametrize(
    ("known", "told", "acked", "watermark", "new"),
    [
        ("j1", "j1", 5, 5, False),
        ("j1", "j1", 5, 9, False),
        ("j1", "j1", 5, 4, True),
        ("j1", "j2", 5, 5, True),
        (None, "j1", 0, 0, True),
    ],
)
def test_a_hello_shows_a_new_journal(
    known: str | None,
    told: str,
    acked: int,
    watermark: int,
    new: bool,  # noqa: FBT001 - an expected value
) -> None:
    """Another id, or a watermark below the server's record of acks."""
    shown = is_new_incarnation(
        known=None if known is None else IncarnationId(known),
        told=IncarnationId(told),
        acked_watermark=acked,
        told_watermark=watermark,
    )
    assert shown is new
