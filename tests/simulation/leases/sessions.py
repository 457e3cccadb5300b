"""What a replica remembers of its sessions, and the rows that its rules are fed with."""

from dataclasses import dataclass, field, replace

from control_plane.core.executions.domain import AttemptId
from control_plane.core.nodes.leases import LeaseFacts, ListedLease, NodeId
from tests.simulation.leases.database import Transaction
from tests.simulation.leases.messages import (
    AttemptRow,
    Heartbeat,
    HeartbeatReply,
    NodeTableRow,
    StepRow,
)
from tests.simulation.leases.network import Stream


@dataclass(slots=True, eq=False)
class Session:
    """What one replica remembers of one stream."""

    stream: Stream
    node_id: str
    generation: int
    last_heard_s: float
    missing: tuple[ListedLease, ...]
    last_number: int = 0
    is_confirmed: bool = False
    pending: Heartbeat | None = None
    is_sending: bool = False
    is_send_wanted: bool = False
    sent_at_s: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TickAnswer:
    """What a tick has to say to one session; None closes it."""

    session: Session
    reply: HeartbeatReply | None


def facts_of(row: AttemptRow, node: NodeTableRow) -> LeaseFacts:
    """Return the lease facts of a row."""
    return LeaseFacts(
        row.attempt_id,
        NodeId(row.node_id),
        row.lease_version,
        row.lease_expires_at_s,
        is_terminal=row.is_terminal,
        is_accepted=row.sequence <= node.acked_sequence,
        stop_requested=False,
    )


def lose(transaction: Transaction, attempt_id: AttemptId, reason: str) -> None:
    """Mark an attempt as LOST and its step as READY again."""
    row: AttemptRow = transaction.get("attempts", attempt_id)
    transaction.put("attempts", attempt_id, replace(row, status="LOST", reason=reason))
    step: StepRow = transaction.get("steps", row.step_id)
    transaction.put("steps", row.step_id, replace(step, status="READY"))
