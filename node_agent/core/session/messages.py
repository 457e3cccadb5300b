"""What agent and control plane say to each other in a session, free of the wire."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from node_agent.core.execution.ports import CapabilityDeclaration
from node_agent.core.journal.domain import RunSpec
from node_agent.core.journal.events import NodeEvent
from node_agent.core.session.lease_clock import AttemptId, HeldLease, LeaseVersion

PROTOCOL_VERSION = 1


# --- From the agent. ---


@dataclass(frozen=True, slots=True)
class Inventory:
    """What the machine has; free disk in the state folder."""

    cpu_millis: int
    memory_bytes: int
    disk_bytes: int
    gpu_count: int = 0


@dataclass(frozen=True, slots=True)
class MachineUsage:
    """How busy the whole machine is: cores in use since the last look, memory and disk left."""

    cpu_used_millis: int
    memory_available_bytes: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class HeldAttempt:
    """An attempt that is unfinished, or whose final event is not acknowledged."""

    lease: HeldLease
    is_finished: bool


@dataclass(frozen=True, slots=True)
class Introduction:
    """The part of Hello that stays the same for the life of the process."""

    node_id: str
    boot_id: str
    incarnation_id: str
    agent_version: str
    capabilities: Sequence[CapabilityDeclaration]
    slot_count: int
    process_slot_count: int


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether new work is taken; `reason` is UPPER_SNAKE, empty where it is."""

    is_ready: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a session."""

    introduction: Introduction
    inventory: Inventory
    last_command_sequence: int
    held: Sequence[HeldAttempt]
    job_credits: int
    readiness: Readiness


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life, which renews the listed leases; numbers count from 1 in a session."""

    number: int
    leases: Sequence[HeldLease]
    readiness: Readiness
    outbox_depth: int
    usage: MachineUsage


@dataclass(frozen=True, slots=True)
class CommandAck:
    """Every command up to the sequence is stored."""

    sequence: int
    refused_command_ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class JobCredit:
    """So many more RUN commands may be sent."""

    credit_count: int


@dataclass(frozen=True, slots=True)
class AttemptProgress:
    """How far an attempt is, 0 to 100."""

    lease: HeldLease
    percent: int
    message: str


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """The newest progress of some attempts."""

    attempts: Sequence[AttemptProgress]


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Durable events, oldest first."""

    events: Sequence[NodeEvent]


Up = Hello | Heartbeat | CommandAck | JobCredit | ProgressReport | EventBatch


# --- From the control plane. ---


class Verdict(StrEnum):
    """What becomes of a held attempt."""

    KEEP = "KEEP"
    CANCEL = "CANCEL"
    FORGET = "FORGET"


@dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to Hello; durations in seconds."""

    generation: int
    heartbeat_interval_s: float
    lease_ttl_s: float
    verdicts: Sequence[tuple[HeldLease, Verdict]]
    message_bytes_max: int
    server_version: str


@dataclass(frozen=True, slots=True)
class RunCommand:
    """Gives an attempt, under a lease of which `lease_remaining_s` was left."""

    sequence: int
    command_id: str
    spec: RunSpec
    lease_remaining_s: float
    last_heartbeat_number: int


@dataclass(frozen=True, slots=True)
class CancelCommand:
    """Stops an attempt: `stop_reason` is CANCEL or TIMEOUT."""

    sequence: int
    command_id: str
    lease: HeldLease
    stop_reason: str


@dataclass(frozen=True, slots=True)
class ExtendCommand:
    """Moves an attempt's run time-out."""

    sequence: int
    command_id: str
    lease: HeldLease
    extension_s: float


@dataclass(frozen=True, slots=True)
class DrainCommand:
    """No new work; after `grace_s` (0: never) running attempts are stopped."""

    sequence: int
    command_id: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class UndrainCommand:
    """Work is taken again."""

    sequence: int
    command_id: str


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    """An order of a newer contract: stored by its sequence, and not obeyed."""

    sequence: int
    command_id: str


Command = (
    RunCommand | CancelCommand | ExtendCommand | DrainCommand | UndrainCommand | UnknownCommand
)


@dataclass(frozen=True, slots=True)
class Commands:
    """Durable commands, by ascending sequence."""

    commands: Sequence[Command]


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """What a heartbeat renewed, and what is lost; of other leases nothing is said."""

    number: int
    renewed: Sequence[HeldLease]
    lost: Sequence[HeldLease]


@dataclass(frozen=True, slots=True)
class EventResult:
    """A stored event: whether it had its effect, and why not."""

    event_id: str
    is_accepted: bool
    reason: str


@dataclass(frozen=True, slots=True)
class EventAck:
    """Events that are stored at the server."""

    results: Sequence[EventResult]


@dataclass(frozen=True, slots=True)
class GoAway:
    """Reconnect at a random moment within this time, in seconds."""

    reconnect_within_s: float
    reason: str


Down = Welcome | Commands | HeartbeatReply | EventAck | GoAway


def attempt_lease(attempt_id: str, lease_version: int) -> HeldLease:
    """Return a lease by plain values."""
    return HeldLease(AttemptId(attempt_id), LeaseVersion(lease_version))
