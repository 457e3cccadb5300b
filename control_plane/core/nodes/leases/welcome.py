"""Hello and Welcome: what becomes of the attempts that a node holds, or should hold."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from control_plane.core.executions.domain import AttemptId
from control_plane.core.nodes.leases.guard import LeaseGuard
from control_plane.core.nodes.leases.lease import (
    LeaseFacts,
    ListedLease,
    is_expired,
    lease_matches,
    session_is_current,
)
from control_plane.core.nodes.leases.terms import DatabaseSeconds, Generation, IncarnationId, NodeId


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
