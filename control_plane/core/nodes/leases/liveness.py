"""Whether a node is live, as replicas that don't hold its session can tell."""

from collections.abc import Mapping
from dataclasses import dataclass

from control_plane.core.nodes.leases.figures import LeaseFigures
from control_plane.core.nodes.leases.terms import DatabaseSeconds, ReplicaId


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
