"""What nodes and the control plane tell each other, free of wire and tables."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from control_plane.core.executions.attempt_state import StopReason
from control_plane.core.executions.domain import AttemptId
from control_plane.core.executions.failures import Failure
from control_plane.core.nodes.commands import CommandKind
from control_plane.core.nodes.leases import LeaseVersion, ListedLease, Verdict
from control_plane.core.scheduling.domain import Management, Runtime
from control_plane.core.workflows.domain import Resources

PROTOCOL_VERSION: Final = 1


# --- Sessions. ---


@dataclass(frozen=True, slots=True)
class SessionRef:
    """A session by its node and generation."""

    node_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class CapabilityDeclaration:
    """A capability version that a node offers; its schemas are canonical JSON text."""

    name: str
    version: str
    input_schema_json: str
    output_schema_json: str
    inline: bool = False
    """Whether it runs in the agent itself, and takes no process slot."""


@dataclass(frozen=True, slots=True)
class HeldAttempt:
    """An attempt that a node still holds; `finished` once its final event is in its journal."""

    lease: ListedLease
    finished: bool


@dataclass(frozen=True, slots=True)
class Hello:
    """What a node says first."""

    node_id: str
    boot_id: str
    incarnation_id: str
    agent_version: str
    capabilities: Sequence[CapabilityDeclaration]
    resources: Resources
    slot_count: int
    last_command_sequence: int
    held: Sequence[HeldAttempt]
    job_credits: int
    ready: bool
    not_ready_reason: str = ""
    process_slot_count: int = 0
    """Of the slots those for child processes; 0 where the node tells no kinds apart."""


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """The answer to a Hello.

    `missing` are attempts that were believed accepted and that Hello omits: to be confirmed as
    LOST when the first heartbeat of this generation proves that the node got the answer.
    """

    generation: int
    verdicts: Mapping[ListedLease, Verdict]
    missing: Sequence[ListedLease]


# --- Commands. ---


@dataclass(frozen=True, slots=True)
class CommandDemand:
    """What a session can take now: RUN commands by credits, and unacknowledged ones in all."""

    session: SessionRef
    credit_count: int
    window_size: int


@dataclass(frozen=True, slots=True)
class SentCommand:
    """A command marked as SENT, to be written. `lease_remaining_s` is set for RUN only."""

    node_id: str
    sequence: int
    command_id: str
    kind: CommandKind
    payload: str
    is_first: bool
    """Whether it was never sent in this session, so that a RUN takes a credit."""
    lease_remaining_s: float


@dataclass(frozen=True, slots=True)
class CommandAck:
    """Every command up to a sequence is in the node's journal."""

    session: SessionRef
    sequence: int


# --- Events. ---


class EventKind(StrEnum):
    """What a node's event tells."""

    ARTIFACTS = "ARTIFACTS"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class ReportedArtifact:
    """One uploaded file."""

    relative_path: str
    resource_ref: str
    size_bytes: int
    sha256: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class ArtifactsReported:
    """A part of the list of artifacts, ahead of the result."""

    artifacts: Sequence[ReportedArtifact]


@dataclass(frozen=True, slots=True)
class WorkSucceeded:
    """The work is done."""

    output_json: str
    artifact_count: int = 0
    collection_ref: str = ""
    usage_json: str = ""


@dataclass(frozen=True, slots=True)
class WorkFailed:
    """The work failed; `infrastructure` where it is innocent (drain, restart)."""

    failure: Failure
    infrastructure: bool = False
    next_delay_s: float | None = None
    usage_json: str = ""
    log_tail: str = ""


@dataclass(frozen=True, slots=True)
class WorkStopped:
    """The attempt was stopped, as the node says why."""

    stop_reason: StopReason | None
    usage_json: str = ""


Fact = ArtifactsReported | WorkSucceeded | WorkFailed | WorkStopped


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A durable fact about an attempt, from the journal of a node."""

    event_id: str
    node_id: str
    attempt_id: str
    lease_version: int
    incarnation_id: str
    boot_id: str
    fact: Fact

    @property
    def kind(self) -> EventKind:
        """What it tells."""
        match self.fact:
            case ArtifactsReported():
                return EventKind.ARTIFACTS
            case WorkSucceeded():
                return EventKind.SUCCEEDED
            case WorkFailed():
                return EventKind.FAILED
            case WorkStopped():
                return EventKind.STOPPED

    def payload_json(self) -> str:
        """Return what it said, to be kept for diagnosis where it had no effect."""
        match self.fact:
            case ArtifactsReported(artifacts):
                return _text({"resource_refs": [one.resource_ref for one in artifacts]})
            case WorkSucceeded() as done:
                return _text(
                    {
                        "output_json": done.output_json,
                        "artifact_count": done.artifact_count,
                        "collection_ref": done.collection_ref,
                        "usage_json": done.usage_json,
                    }
                )
            case WorkFailed() as failed:
                failure = json.loads(failed.failure.to_json())
                return _text({"failure": failure, "log_tail": failed.log_tail})
            case WorkStopped(stop_reason):
                return _text({"stop_reason": stop_reason})


@dataclass(frozen=True, slots=True)
class EventFate:
    """What became of an event; `reason` is UPPER_SNAKE, empty where it was accepted."""

    event_id: str
    accepted: bool
    reason: str = ""


# --- Heartbeats and progress. ---


@dataclass(frozen=True, slots=True)
class HeartbeatList:
    """The leases that one session's newest heartbeat lists."""

    session: SessionRef
    leases: Sequence[ListedLease]


@dataclass(frozen=True, slots=True)
class TickResult:
    """What one tick did: leases by node id, and the nodes whose sessions were replaced.

    A listed lease in neither list was not due or not free: nothing is said of it.
    """

    renewed: Mapping[str, Sequence[ListedLease]] = field(default_factory=dict)
    lost: Mapping[str, Sequence[ListedLease]] = field(default_factory=dict)
    replaced: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NodeState:
    """What a session shows of its node, for its row."""

    session: SessionRef
    runtime: Runtime
    not_ready_reason: str = ""
    disk_bytes: int = 0
    """Free disk in bytes; 0 where nothing new was heard."""
    cpu_used_millis: int = 0
    memory_available_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ProgressMark:
    """How far an attempt has come, 0–100."""

    node_id: str
    attempt_id: str
    lease_version: int
    progress_percent: int


@dataclass(frozen=True, slots=True)
class ExpiryRound:
    """What one sweep did; `next_due_in_s` is None while no lease lives."""

    expired_count: int
    next_due_in_s: float | None
    more: bool
    """Whether the batch was full, so that more may be due."""


# --- Nodes as operators see them. ---


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node with all that is known of it."""

    node_id: str
    name: str
    group: str
    management: Management
    runtime: Runtime
    generation: int
    labels: Mapping[str, str]
    weight: int
    capabilities: Sequence[tuple[str, str, str]]
    """Name, version, and why it is refused (empty where it is not)."""
    slot_count: int
    running_count: int
    resources: Resources
    reserved: Resources
    unacked_command_count: int
    last_seen_at: datetime | None
    enrolled_at: datetime
    agent_version: str
    managed_by: str = ""
    management_reason: str = ""
    drain_deadline_at: datetime | None = None
    process_slot_count: int = 0
    process_running_count: int = 0
    cpu_used_millis: int = 0
    memory_available_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ManagementChange:
    """What an operator says that a node may do, who it is and why.

    `grace_s` is how long what runs may go on under a drain, in seconds; 0 until it ends.
    """

    management: Management
    actor: str
    reason: str = ""
    grace_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NodePlacement:
    """What scheduling is to know of a node that only operators may say."""

    labels: Mapping[str, str]
    weight: int
    group: str


@dataclass(frozen=True, slots=True)
class JoinToken:
    """A registered join token; the token itself is known to its maker only."""

    join_token_id: str
    expires_at: datetime


def lease(attempt_id: str, lease_version: int) -> ListedLease:
    """Return a lease by plain values."""
    return ListedLease(AttemptId(attempt_id), LeaseVersion(lease_version))


def _text(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
