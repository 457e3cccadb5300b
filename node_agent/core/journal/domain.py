"""What the journal keeps: attempts and their orders, marks, and the writes that change them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from node_agent.core.journal.events import NewEvent
from node_agent.core.session.lease_clock import AttemptId


class StopReason(StrEnum):
    """Why an attempt was told to stop, as the contract names it."""

    CANCEL = "CANCEL"
    TIMEOUT = "TIMEOUT"
    DRAIN = "DRAIN"


class CommandKind(StrEnum):
    """What a stored command ordered."""

    RUN = "RUN"
    CANCEL = "CANCEL"
    EXTEND = "EXTEND"


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What RUN says of an attempt; limits in seconds and bytes, 0 for none."""

    attempt_id: AttemptId
    lease_version: int
    task_id: str
    execution_id: str
    step_key: str
    item_index: int
    attempt_number: int
    capability: str
    capability_version: str
    input_json: str
    run_timeout_s: float = 0.0
    heartbeat_timeout_s: float = 0.0
    memory_bytes_max: int = 0
    traceparent: str = ""

    def to_json(self) -> str:
        """Return the document that `from_json` reads."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "RunSpec":
        """Read what `to_json` wrote; fields of a newer version are ignored."""
        document: dict[str, Any] = json.loads(text)
        return cls(**{name: document[name] for name in cls.__slots__ if name in document})


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose journal this is; `node_id` is empty until the first enrolment."""

    incarnation_id: str
    node_id: str = ""
    credential_sha256: str = ""


@dataclass(frozen=True, slots=True)
class DrainMark:
    """That no new work is taken; after `grace_s` (0: never) running attempts are stopped."""

    grace_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StoredAttempt:
    """An attempt as the journal knows it at start-up."""

    spec: RunSpec
    was_started: bool
    is_finished: bool
    stop_reason: StopReason | None
    run_timeout_s: float
    checkpoint_json: str | None
    artifact_paths: frozenset[str]


@dataclass(frozen=True, slots=True)
class JournalContents:
    """Everything that a new process of the agent has to know."""

    identity: Identity
    last_command_sequence: int
    drain: DrainMark | None
    attempts: Sequence[StoredAttempt]
    event_count: int


# --- Writes; each is idempotent or happens once, and one transaction takes many. ---


@dataclass(frozen=True, slots=True)
class Identify:
    """The node and the hash of the credential, in hexadecimal, that this journal belongs to."""

    node_id: str
    credential_sha256: str


@dataclass(frozen=True, slots=True)
class Probe:
    """A write for its own sake: it shows that the file can be written and synced."""


@dataclass(frozen=True, slots=True)
class KeepAttempt:
    """A RUN command and its attempt; `is_started` where it starts as soon as this is stored."""

    sequence: int
    command_id: str
    spec: RunSpec
    is_started: bool


@dataclass(frozen=True, slots=True)
class KeepOrder:
    """A CANCEL or EXTEND of a held attempt, with what it changes."""

    sequence: int
    command_id: str
    kind: CommandKind
    attempt_id: AttemptId
    stop_reason: StopReason | None = None
    extension_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MarkDrain:
    """The node drains; None: it takes work again."""

    drain: DrainMark | None


@dataclass(frozen=True, slots=True)
class MarkSequence:
    """Every command up to this sequence is stored, or needs no row."""

    sequence: int


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """The work may have begun from now on."""

    attempt_id: AttemptId


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """Where the work can go on after a restart."""

    attempt_id: AttemptId
    document_json: str


@dataclass(frozen=True, slots=True)
class ReportArtifacts:
    """Uploaded artifacts; the event's paths count once each for the attempt."""

    event: NewEvent
    relative_paths: Sequence[str]


@dataclass(frozen=True, slots=True)
class FinishAttempt:
    """The attempt's end and the event that tells it, in one."""

    event: NewEvent
    waits_for_earlier: bool
    """Whether the attempt has earlier events, which must have arrived before this one."""


@dataclass(frozen=True, slots=True)
class ForgetAttempt:
    """The attempt is no longer ours; its events that are on their way stay."""

    attempt_id: AttemptId


Write = (
    Identify
    | Probe
    | KeepAttempt
    | KeepOrder
    | MarkDrain
    | MarkSequence
    | StartAttempt
    | SaveCheckpoint
    | ReportArtifacts
    | FinishAttempt
    | ForgetAttempt
)
