"""What the node use cases ask of storage and of other replicas."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from control_plane.core.engine.ports import AdvancedBatch
from control_plane.core.executions.outcomes import Aftermath, Settlement
from control_plane.core.idempotency import RequestIdentity
from control_plane.core.nodes.domain import (
    CommandAck,
    CommandDemand,
    EventFate,
    ExpiryRound,
    HeartbeatList,
    Hello,
    JoinToken,
    ManagementChange,
    NodeEvent,
    NodePlacement,
    NodeState,
    NodeView,
    OpenedSession,
    ProgressMark,
    SentCommand,
    SessionRef,
    TickResult,
)
from control_plane.core.nodes.leases import ListedLease


class NodeStore(Protocol):
    """Nodes and their sessions."""

    async def enrol(
        self,
        token_sha256: bytes,
        key: str,
        request_hash: bytes,
        node_name: str,
        credential_sha256: bytes,
    ) -> str:
        """Return the id of the node, made by the first call with this token and key.

        Raises JoinTokenInvalidError, IdempotencyKeyReusedError, JoinTokenSpentError,
        NodeExistsError.
        """
        ...

    async def open_session(self, hello: Hello) -> OpenedSession:
        """Open the node's next session: in one transaction, with its verdicts.

        NodeUnknownError for a node that was removed.
        """
        ...

    async def lose_missing(self, session: SessionRef, missing: Sequence[ListedLease]) -> Aftermath:
        """End as LOST what the node should hold and doesn't, if the session is still current."""
        ...

    async def close_sessions(self, sessions: Sequence[SessionRef]) -> None:
        """Note that sessions are over; newer ones of the same nodes are left alone."""
        ...

    async def write_states(self, states: Sequence[NodeState]) -> frozenset[str]:
        """Write what sessions show of their nodes; return the nodes whose rows were written."""
        ...


class NodeDirectory(Protocol):
    """Nodes and join tokens as operators see and change them."""

    async def list_nodes(self, after_name: str, count_max: int) -> list[NodeView]:
        """Return nodes by name, those after `after_name`."""
        ...

    async def get_node(self, node_id: str) -> NodeView | None:
        """Return one node."""
        ...

    async def create_join_token(
        self,
        identity: RequestIdentity,
        token_sha256: bytes,
        ttl: timedelta,
        use_count_max: int,
        node_group: str,
    ) -> tuple[JoinToken, bool]:
        """Register a token; (first answer, False) for a replay. JoinTokenExistsError."""
        ...

    async def revoke_join_token(self, identity: RequestIdentity, join_token_id: str) -> bool:
        """End a token; False for a replay. JoinTokenUnknownError."""
        ...


class NodeManagementStore(Protocol):
    """What operators do with nodes; each answers whether it was done now, and not before."""

    async def set_management(
        self, identity: RequestIdentity, node_id: str, change: ManagementChange
    ) -> bool:
        """Say what a node may do, and order it to drain or to work again. NodeUnknownError."""
        ...

    async def set_placement(
        self, identity: RequestIdentity, node_id: str, placement: NodePlacement
    ) -> bool:
        """Replace labels, weight and group. NodeUnknownError."""
        ...

    async def remove(
        self, identity: RequestIdentity, node_id: str, *, loses_attempts: bool
    ) -> tuple[bool, Aftermath]:
        """Forget a node and its credential; what it holds is LOST, if that is allowed.

        NodeUnknownError, NodeBusyError.
        """
        ...


class CommandStore(Protocol):
    """Durable commands."""

    async def take(self, demands: Sequence[CommandDemand]) -> list[SentCommand]:
        """Mark the next commands of the sessions as SENT, and return them by node and sequence.

        It is committed when this returns: only then may they be written. A session that is no
        longer current gets none.
        """
        ...

    async def ack(self, acks: Sequence[CommandAck]) -> Sequence[int]:
        """Note what nodes have stored; returns how many commands each node's newest ack covers."""
        ...

    async def undelivered(self, node_ids: Sequence[str]) -> list[str]:
        """Return those of the nodes that have commands to be sent, or sent again."""
        ...


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a batch of events, one fate for each in order, and whom it wakes.

    `advanced` are the executions that the same transaction went on to advance; those that are
    left to the engine are in `aftermath`.
    """

    fates: Sequence[EventFate]
    aftermath: Aftermath
    advanced: AdvancedBatch = field(default_factory=AdvancedBatch)


class InboxStore(Protocol):
    """What nodes report."""

    async def accept(self, events: Sequence[NodeEvent]) -> Accepted:
        """Store events, what they change and what the engine makes of it, in one transaction.

        A repeated event, in the batch or before, gets the fate of its first arrival.
        """
        ...

    async def reject(self, event: NodeEvent, reason: str) -> EventFate:
        """Store an event that cannot be applied, without its payload."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> Aftermath:
        """End pending results; those that are not pending (any more) are left alone."""
        ...


class OutputSchemas(Protocol):
    """The registered schemas of what capabilities answer."""

    async def problem_of(self, capability: str, version: str, output_json: str) -> str:
        """Return why an output breaks its schema; empty where it does not, or none is known."""
        ...


class LeaseStore(Protocol):
    """Leases: renewal, expiry, run time-outs, progress."""

    async def tick(
        self, sessions: Sequence[SessionRef], lists: Sequence[HeartbeatList]
    ) -> TickResult:
        """Renew the listed leases that are due, in one statement; stamp guard and replica."""
        ...

    async def expire(self) -> tuple[ExpiryRound, Aftermath]:
        """End attempts whose leases ran out, unless the guard holds expiry back."""
        ...

    async def stop_overdue(self) -> tuple[ExpiryRound, Aftermath]:
        """Order attempts past their run time-out to stop."""
        ...

    async def write_progress(self, marks: Sequence[ProgressMark]) -> frozenset[str]:
        """Raise progress where it grows; returns the executions whose engine is to look."""
        ...


class RemoteNodeWakeups(Protocol):
    """Wakes the replicas that hold the sessions of nodes with new commands."""

    async def wake(self, node_ids: Sequence[str]) -> None:
        """Forward the hint to wherever the nodes are in session; losing it costs time only."""
        ...
