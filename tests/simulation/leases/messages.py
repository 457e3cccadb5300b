"""What nodes and replicas say to each other, and the rows they share."""

from collections.abc import Mapping
from dataclasses import dataclass

from control_plane.core.executions.domain import AttemptId
from control_plane.core.nodes.leases import (
    DatabaseSeconds,
    LeaseVersion,
    ListedLease,
    ReplicaId,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class Hello:
    watermark: int
    held: tuple[ListedLease, ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    generation: int
    number: int
    leases: tuple[ListedLease, ...]


@dataclass(frozen=True, slots=True)
class Ack:
    generation: int
    watermark: int


@dataclass(frozen=True, slots=True)
class Result:
    attempt_id: AttemptId
    lease_version: LeaseVersion


@dataclass(frozen=True, slots=True)
class Welcome:
    generation: int
    verdicts: Mapping[AttemptId, Verdict]


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    number: int
    renewed: tuple[ListedLease, ...]
    lost: tuple[ListedLease, ...]


@dataclass(frozen=True, slots=True)
class Run:
    sequence: int
    attempt_id: AttemptId
    lease_version: LeaseVersion
    step_id: str
    remaining_s: float
    last_heartbeat_number: int


@dataclass(frozen=True, slots=True)
class ResultAck:
    attempt_id: AttemptId


Up = Hello | Heartbeat | Ack | Result
Down = Welcome | HeartbeatReply | Run | ResultAck


@dataclass(frozen=True, slots=True)
class StepRow:
    step_id: str
    status: str
    lease_version: int
    succeeded_attempt: AttemptId | None = None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    attempt_id: AttemptId
    step_id: str
    node_id: str
    sequence: int
    lease_version: LeaseVersion
    lease_expires_at_s: DatabaseSeconds
    status: str
    reason: str = ""

    @property
    def is_terminal(self) -> bool:
        return self.status in {"LOST", "SUCCEEDED"}


@dataclass(frozen=True, slots=True)
class NodeTableRow:
    node_id: str
    generation: int
    replica_id: ReplicaId | None
    seen_at_s: DatabaseSeconds
    is_silent: bool
    last_sequence: int
    acked_sequence: int
