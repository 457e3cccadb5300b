"""Pure lease rules of the control plane: renewal, expiry, stalls, node liveness, Welcome.

The SQL statements repeat these rules; each docstring gives the predicate to write. Three
facts make the rules safe, and ``docs/adr/0004-lease-rules.md`` argues them:

* ``attempts.lease_expires_at`` and the row ``lease_guard`` are the only authorities, and both
  are compared with the database's clock alone;
* a node counts from a moment *before* the server's, and stops ``margin_s`` early;
* everything that judges expiry (tick, sweep, Hello) first judges the lease guard.

In the SQL, ``now`` stands for the database's clock (``tdp_now()``) read in the statement
that reads ``lease_guard``, and ``:ttl`` for ``LeaseFigures.lease_ttl_s`` as an interval.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from control_plane.core.executions.domain import AttemptId

NodeId = NewType("NodeId", str)
ReplicaId = NewType("ReplicaId", str)
"""One process of the control plane; new with each start."""
IncarnationId = NewType("IncarnationId", str)
"""One journal of a node agent; new with each new journal."""
LeaseVersion = NewType("LeaseVersion", int)
Generation = NewType("Generation", int)
DatabaseSeconds = NewType("DatabaseSeconds", float)
"""An instant by the database's clock, in seconds since its epoch."""


@dataclass(frozen=True, slots=True)
class LeaseFigures:
    """The times that nodes and control planes share, in seconds.

    Raises:
        ValueError: the figures contradict one another; the message names the relation.
    """

    lease_ttl_s: float
    heartbeat_interval_s: float
    scheduling_ttl_s: float
    stop_budget_s: float
    """The longest that a node may take to end an attempt once its deadline has passed."""

    def __post_init__(self) -> None:
        """Assert the relations that the rules below rest on."""
        relations = (
            ("heartbeat_interval_s > 0", self.heartbeat_interval_s > 0),
            (
                "3 * heartbeat_interval_s <= scheduling_ttl_s",
                3 * self.heartbeat_interval_s <= self.scheduling_ttl_s,
            ),
            ("scheduling_ttl_s <= lease_ttl_s / 2", self.scheduling_ttl_s <= self.stall_after_s),
            (
                "stop_budget_s <= lease_ttl_s / 12",
                0 <= self.stop_budget_s <= self.lease_ttl_s / 12,
            ),
            (
                "lease_ttl_s / 6 + heartbeat + answer_silence + reconnect_backoff <= node_deadline",
                self.lease_ttl_s / 6
                + self.heartbeat_interval_s
                + self.answer_silence_s
                + self.reconnect_backoff_s_max
                <= self.node_deadline_s,
            ),
        )
        broken = [text for text, holds in relations if not holds]
        if broken:
            message = f"lease figures {self!r} break {broken}; raise lease_ttl_s or lower the rest"
            raise ValueError(message)

    @property
    def renew_below_s(self) -> float:
        """A listed lease with less than this left is renewed: 5/6 of the TTL."""
        return self.lease_ttl_s * 5 / 6

    @property
    def margin_s(self) -> float:
        """How much earlier than the lease's end a node stops: TTL/6."""
        return self.lease_ttl_s / 6

    @property
    def node_deadline_s(self) -> float:
        """How long after sending a heartbeat its renewal lets a node run: 5/6 of the TTL."""
        return self.lease_ttl_s - self.margin_s

    @property
    def stamp_interval_s(self) -> float:
        """How often the lease guard is stamped while leases live: TTL/12."""
        return self.lease_ttl_s / 12

    @property
    def stall_after_s(self) -> float:
        """A lease guard older than this shows a stall on the server's side: TTL/2."""
        return self.lease_ttl_s / 2

    @property
    def hold_s(self) -> float:
        """How long nothing expires after a stall was noticed: one TTL."""
        return self.lease_ttl_s

    @property
    def answer_silence_s(self) -> float:
        """A node whose newest answered heartbeat is older than this moves on: TTL/3."""
        return self.lease_ttl_s / 3

    @property
    def reconnect_backoff_s_max(self) -> float:
        """The longest pause between two attempts of a node to open a session: TTL/12."""
        return self.lease_ttl_s / 12


PRODUCTION_FIGURES = LeaseFigures(
    lease_ttl_s=60.0, heartbeat_interval_s=5.0, scheduling_ttl_s=15.0, stop_budget_s=5.0
)
TEST_FIGURES = LeaseFigures(
    lease_ttl_s=3.0, heartbeat_interval_s=0.5, scheduling_ttl_s=1.5, stop_budget_s=0.25
)


# --- The lease guard: one shared row that shows whether leases could be renewed. ---


@dataclass(frozen=True, slots=True)
class LeaseGuard:
    """The one row of ``lease_guard``: when ticks last worked, and until when nothing expires."""

    stamped_at_s: DatabaseSeconds
    hold_until_s: DatabaseSeconds


def stamp_is_due(
    guard: LeaseGuard, now_s: DatabaseSeconds, figures: LeaseFigures, *, leases_live: bool
) -> bool:
    """Say whether a tick stamps, and has to run for that alone where no heartbeat came.

    SQL: ``EXISTS (SELECT FROM attempts WHERE lease_expires_at IS NOT NULL)``
    ``AND abs(now - stamped_at) >= :ttl / 12``
    """
    return leases_live and abs(now_s - guard.stamped_at_s) >= figures.stamp_interval_s


def is_stalled(guard: LeaseGuard, now_s: DatabaseSeconds, figures: LeaseFigures) -> bool:
    """Say whether the server's side could not renew for so long that leases may have suffered.

    A stamp from the future means that the database's clock went back, which is judged alike.

    SQL: ``now - stamped_at > :ttl / 2 OR stamped_at - now > :ttl / 12``
    """
    age_s = now_s - guard.stamped_at_s
    return age_s > figures.stall_after_s or -age_s > figures.stamp_interval_s


def judge_guard(guard: LeaseGuard, now_s: DatabaseSeconds, figures: LeaseFigures) -> LeaseGuard:
    """Return the row as a tick, a sweep or a Hello must leave it before it judges a lease.

    Only a tick stamps, since only a tick shows that renewing works. A plain read is enough; the
    row is written only where it changes, and only if its lock is free (``FOR UPDATE SKIP LOCKED``):
    waiting for it would let one slow commit delay every tick. Who cannot write acts upon the
    judged row all the same. A hold is never longer than
    one TTL from now; a longer one was set by a clock that has gone back since.

    SQL: ``UPDATE lease_guard SET hold_until = CASE WHEN`` *stalled* ``THEN now + :ttl``
    ``ELSE least(hold_until, now + :ttl) END`` (a tick adds ``, stamped_at = now``)
    """
    hold_end_s = DatabaseSeconds(now_s + figures.hold_s)
    if is_stalled(guard, now_s, figures):
        return LeaseGuard(guard.stamped_at_s, hold_end_s)
    return LeaseGuard(guard.stamped_at_s, min(guard.hold_until_s, hold_end_s))


def stamp_guard(
    guard: LeaseGuard,
    now_s: DatabaseSeconds,
    figures: LeaseFigures,
    *,
    starved: bool,
) -> LeaseGuard:
    """Return the row as a tick leaves it: judged, stamped, and held if a lease was starved.

    Args:
        guard: the row as locked.
        now_s: the database's clock.
        figures: the shared times.
        starved: whether ``is_starved`` holds for a row that this tick had to skip. Another
            replica's stamp cannot show that, so the tick that sees it sets the hold itself.

    Written where ``stamp_is_due``, ``starved`` or the judging asks for it, if the lock is free.

    SQL: as ``judge_guard`` with ``stamped_at = now`` and *stalled* ``OR :starved``
    """
    judged = judge_guard(guard, now_s, figures)
    hold_until_s = DatabaseSeconds(now_s + figures.hold_s) if starved else judged.hold_until_s
    return LeaseGuard(now_s, hold_until_s)


# --- Leases. ---


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


# --- Nodes as other replicas see them. ---


@dataclass(frozen=True, slots=True)
class NodeRow:
    """What the node's row says of its session."""

    replica_id: ReplicaId | None
    """The process that holds the session; none once it was closed."""
    seen_at_s: DatabaseSeconds
    """When that replica last wrote the row: at Hello, and again by a tick once TTL/2 old."""
    is_silent: bool
    """Its replica heard no heartbeat for the scheduling TTL."""


def is_fresh(seen_at_s: DatabaseSeconds, now_s: DatabaseSeconds, limit_s: float) -> bool:
    """Say whether a row was seen lately; one from the future was before the clock went back.

    SQL: ``seen_at BETWEEN now - :limit AND now + :limit / 12``
    """
    return -limit_s / 12 <= now_s - seen_at_s <= limit_s


def node_row_is_stale(node: NodeRow, now_s: DatabaseSeconds, figures: LeaseFigures) -> bool:
    """Say whether the replica that hears a node writes its row again (twice in a TTL at most).

    SQL: ``NOT`` *fresh within* ``:ttl / 2``
    """
    return not is_fresh(node.seen_at_s, now_s, figures.lease_ttl_s / 2)


def is_silent(last_heard_s: float, now_s: float, figures: LeaseFigures) -> bool:
    """Say whether a session heard nothing for the scheduling TTL; both by one monotonic clock."""
    return now_s - last_heard_s > figures.scheduling_ttl_s


def node_is_live(
    node: NodeRow,
    replica_seen_at: Mapping[ReplicaId, DatabaseSeconds],
    now_s: DatabaseSeconds,
    figures: LeaseFigures,
) -> bool:
    """Say whether work may be sent to a node, as any replica can tell.

    SQL: ``n.replica_id = r.replica_id AND n.runtime <> 'SILENT' AND`` ``r.stamped_at`` *fresh
    within* ``:scheduling_ttl AND n.last_seen_at`` *fresh within* ``:ttl``
    """
    if node.replica_id is None or node.is_silent:
        return False
    replica_seen_at_s = replica_seen_at.get(node.replica_id)
    return (
        replica_seen_at_s is not None
        and is_fresh(replica_seen_at_s, now_s, figures.scheduling_ttl_s)
        and is_fresh(node.seen_at_s, now_s, figures.lease_ttl_s)
    )


# --- Hello and Welcome. ---


class Verdict(StrEnum):
    """What Welcome tells a node to do with an attempt that it holds."""

    KEEP = "KEEP"
    """Go on: the lease was renewed, counted from Hello."""
    CANCEL = "CANCEL"
    """Stop it and report: the lease was renewed for as long as that takes."""
    FORGET = "FORGET"
    """Stop it without a report. Events already in the outbox are still sent, and acked."""


@dataclass(frozen=True, slots=True)
class WelcomePlan:
    """The answer to a Hello, and what the server has to write for it."""

    verdicts: Mapping[AttemptId, Verdict]
    renew: tuple[AttemptId, ...]
    """Leases set to now + TTL in Hello's transaction."""
    missing: tuple[ListedLease, ...]
    """Accepted by the server's belief, and unknown to the node: LOST once it is confirmed."""


def judge_held(
    held: ListedLease,
    facts: LeaseFacts | None,
    node_id: NodeId,
    guard: LeaseGuard,
    now_s: DatabaseSeconds,
) -> Verdict:
    """Decide one attempt that a node holds; ``guard`` is the judged row.

    SQL: ``CASE WHEN NOT`` *matches* ``OR`` *expired* ``THEN 'FORGET'``
    ``WHEN stop_reason IS NOT NULL THEN 'CANCEL' ELSE 'KEEP' END`` with the rows locked
    """
    if facts is None or not lease_matches(held, facts, node_id):
        return Verdict.FORGET
    if is_expired(facts.lease_expires_at_s, guard, now_s):
        return Verdict.FORGET
    return Verdict.CANCEL if facts.stop_requested else Verdict.KEEP


def plan_welcome(
    held: Sequence[ListedLease],
    attempts: Iterable[LeaseFacts],
    node_id: NodeId,
    guard: LeaseGuard,
    now_s: DatabaseSeconds,
) -> WelcomePlan:
    """Decide every attempt that the node holds, and name those that it should hold and doesn't.

    ``attempts`` are the node's non-terminal attempts and those that Hello names. ``missing`` is
    acted upon by ``may_lose_missing`` only.
    """
    known = {facts.attempt_id: facts for facts in attempts}
    verdicts = {
        lease.attempt_id: judge_held(lease, known.get(lease.attempt_id), node_id, guard, now_s)
        for lease in held
    }
    renew = tuple(key for key, verdict in verdicts.items() if verdict is not Verdict.FORGET)
    missing = tuple(
        ListedLease(facts.attempt_id, facts.lease_version)
        for facts in known.values()
        if facts.node_id == node_id
        and facts.attempt_id not in verdicts
        and facts.is_accepted
        and not facts.is_terminal
    )
    return WelcomePlan(verdicts, renew, missing)


def may_lose_missing(
    missing: ListedLease,
    facts: LeaseFacts | None,
    node_id: NodeId,
    *,
    session: Generation,
    node: Generation,
) -> bool:
    """Say whether an attempt that Hello omitted is LOST, at the session's first heartbeat.

    A Hello may be read long after it was sent (it lay in the buffer of a stalled replica while
    the node moved on and accepted more work). A heartbeat that carries the generation proves that
    the node got this Welcome, so that its list was the truth.

    SQL: ``nodes.generation = :generation AND`` *matches* ``FOR UPDATE``
    """
    return session_is_current(session, node) and lease_matches(missing, facts, node_id)


def is_new_incarnation(
    *,
    known: IncarnationId | None,
    told: IncarnationId,
    acked_watermark: int,
    told_watermark: int,
) -> bool:
    """Say whether a Hello comes from another journal than the one the server's acks are of.

    A lower command watermark than the server's record is a journal restored from an old copy: it
    counts as new although its id is known. Commands above the server's record are sent again.

    SQL: ``n.incarnation IS DISTINCT FROM :told OR :told_watermark < n.acked_sequence``
    """
    return known != told or told_watermark < acked_watermark
