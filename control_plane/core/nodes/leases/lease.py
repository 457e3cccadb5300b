"""One lease: when it is renewed, skipped, lost or expired, and what RUN says of it."""

from dataclasses import dataclass
from enum import StrEnum

from control_plane.core.executions.domain import AttemptId
from control_plane.core.nodes.leases.figures import LeaseFigures
from control_plane.core.nodes.leases.guard import LeaseGuard
from control_plane.core.nodes.leases.terms import DatabaseSeconds, Generation, LeaseVersion, NodeId


@dataclass(frozen=True, slots=True)
class ListedLease:
    """A lease as a heartbeat or a Hello names it."""

    attempt_id: AttemptId
    lease_version: LeaseVersion


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """What the database says of one attempt."""

    attempt_id: AttemptId
    node_id: NodeId
    lease_version: LeaseVersion
    lease_expires_at_s: DatabaseSeconds
    is_terminal: bool
    is_accepted: bool
    """ACCEPTED or RUNNING, or its RUN is covered by the server's record of acks."""
    stop_requested: bool
    """A cancel or a time-out waits for the node's report."""


class RenewalOutcome(StrEnum):
    """What a tick does with one listed lease, and whether its answer names it."""

    RENEWED = "RENEWED"
    """Extended to now + TTL; named as renewed."""
    NOT_DUE = "NOT_DUE"
    """Most of the TTL is left; not named, since the node's older deadline holds."""
    SKIPPED = "SKIPPED"
    """Somebody holds the row's lock; not named, since nothing is known."""
    LOST = "LOST"
    """The lease is another's, over or expired; named as lost."""


def lease_end_s(lease_expires_at_s: DatabaseSeconds, guard: LeaseGuard) -> DatabaseSeconds:
    """Return when a lease may be given away: at its own end or that of the hold, the later.

    SQL: ``greatest(lease_expires_at, hold_until)``
    """
    return max(lease_expires_at_s, guard.hold_until_s)


def is_expired(
    lease_expires_at_s: DatabaseSeconds, guard: LeaseGuard, now_s: DatabaseSeconds
) -> bool:
    """Say whether a lease is past its end and past any hold; ``guard`` is the judged row.

    SQL: ``greatest(lease_expires_at, hold_until) <= now``
    """
    return lease_end_s(lease_expires_at_s, guard) <= now_s


def renewal_is_due(
    lease_expires_at_s: DatabaseSeconds, now_s: DatabaseSeconds, figures: LeaseFigures
) -> bool:
    """Say whether a listed lease is renewed now rather than at a later heartbeat.

    More than a TTL left means that the database's clock went back: such a lease is renewed too,
    or its node would hear of no renewal and stop.

    SQL: ``lease_expires_at - now < :ttl * 5 / 6 OR lease_expires_at - now > :ttl``
    """
    left_s = lease_expires_at_s - now_s
    return left_s < figures.renew_below_s or left_s > figures.lease_ttl_s


def lease_matches(listed: ListedLease, facts: LeaseFacts | None, node_id: NodeId) -> bool:
    """Say whether a listed lease is one that this node still has.

    SQL: ``a.id = :attempt AND a.node_id = :node AND a.lease_version = :lease_version``
    ``AND a.state IN (`` *the non-terminal states* ``)``
    """
    return (
        facts is not None
        and facts.node_id == node_id
        and facts.lease_version == listed.lease_version
        and not facts.is_terminal
    )


def session_is_current(session: Generation, node: Generation) -> bool:
    """Say whether a session's messages count. If not, it is closed and *no* lease is named lost.

    SQL, joined to every renewal: ``nodes.generation = :generation``
    """
    return session == node


def judge_renewal(
    listed: ListedLease,
    facts: LeaseFacts | None,
    node_id: NodeId,
    guard: LeaseGuard,
    now_s: DatabaseSeconds,
    figures: LeaseFigures,
    *,
    row_is_locked: bool,
) -> RenewalOutcome:
    """Decide one listed lease of a current session; ``facts`` is the last committed version.

    SQL: rows where *matches* ``AND NOT`` *expired* ``AND`` *due*, ``FOR UPDATE OF a SKIP LOCKED``,
    are set to ``lease_expires_at = now + :ttl`` (RENEWED); rows of that set that were skipped are
    SKIPPED; matching, unexpired and not due is NOT_DUE; every other listed lease is LOST.
    """
    if facts is None or not lease_matches(listed, facts, node_id):
        return RenewalOutcome.SKIPPED if row_is_locked else RenewalOutcome.LOST
    if is_expired(facts.lease_expires_at_s, guard, now_s):
        return RenewalOutcome.SKIPPED if row_is_locked else RenewalOutcome.LOST
    if not renewal_is_due(facts.lease_expires_at_s, now_s, figures):
        return RenewalOutcome.NOT_DUE
    return RenewalOutcome.SKIPPED if row_is_locked else RenewalOutcome.RENEWED


def renewed_until_s(now_s: DatabaseSeconds, figures: LeaseFigures) -> DatabaseSeconds:
    """Return the end of a lease granted, renewed or kept now.

    SQL: ``now + :ttl``
    """
    return DatabaseSeconds(now_s + figures.lease_ttl_s)


def is_starved(
    lease_expires_at_s: DatabaseSeconds, now_s: DatabaseSeconds, figures: LeaseFigures
) -> bool:
    """Say whether a lease that a tick had to skip was locked for so long that a hold is needed.

    SQL, over the skipped rows: ``lease_expires_at - now < :ttl / 2``
    """
    return lease_expires_at_s - now_s < figures.stall_after_s


def may_expire(
    facts: LeaseFacts, guard: LeaseGuard, as_of_s: DatabaseSeconds, now_s: DatabaseSeconds
) -> bool:
    """Say whether a sweep marks an attempt LOST.

    ``as_of_s`` is the time at which the sweep judged the lease guard, ``now_s`` the one at which it
    has the row. The earlier counts: what stalls in between must not make the lease look older, and
    a clock that goes back in between must not make a fresh lease look old.

    SQL, first statement: ``judge_guard`` returning ``now AS as_of, hold_until``; second statement,
    if ``hold_until <= :as_of``: ``state IN (`` *non-terminal* ``)``
    ``AND lease_expires_at <= least(:as_of, now) FOR UPDATE SKIP LOCKED`` (READ COMMITTED repeats it
    on the locked version).
    """
    earlier_s = min(as_of_s, now_s)
    return not facts.is_terminal and is_expired(facts.lease_expires_at_s, guard, earlier_s)


def bounded_expiry_s(
    lease_expires_at_s: DatabaseSeconds, now_s: DatabaseSeconds, figures: LeaseFigures
) -> DatabaseSeconds:
    """Return the lease's end, pulled in if the database's clock went back since it was written.

    SQL, in each sweep: ``UPDATE attempts SET lease_expires_at = now + :ttl``
    ``WHERE lease_expires_at > now + :ttl * 13 / 12``
    """
    if lease_expires_at_s - now_s > figures.lease_ttl_s + figures.stamp_interval_s:
        return renewed_until_s(now_s, figures)
    return lease_expires_at_s


def run_remaining_s(
    lease_expires_at_s: DatabaseSeconds, now_s: DatabaseSeconds, figures: LeaseFigures
) -> float:
    """Return the lease time that RUN carries, in seconds, 0 for a lease that only a hold keeps.

    The heartbeat number beside it must have been taken *before* the statement that reads this.

    SQL: ``least(greatest(lease_expires_at - now, interval '0'), :ttl)``
    """
    return min(max(lease_expires_at_s - now_s, 0.0), figures.lease_ttl_s)
