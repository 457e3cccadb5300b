"""What a durable command says between sendings, as the JSON kept in node_commands.payload."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from control_plane.core.errors import DocumentInvalidError


class CommandKind(StrEnum):
    """What a command orders."""

    RUN = "RUN"
    CANCEL = "CANCEL"
    EXTEND = "EXTEND"
    DRAIN = "DRAIN"
    UNDRAIN = "UNDRAIN"


@dataclass(frozen=True, slots=True)
class RunPayload:
    """Everything of RUN that does not change between sendings; times in seconds, 0 for no limit."""

    attempt_id: str
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
        """Return the payload as JSON text."""
        document = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "RunPayload":
        """Read back what `to_json` wrote; DocumentInvalidError for anything else."""
        return cls(**_fields(text, cls.__slots__))


@dataclass(frozen=True, slots=True)
class CancelPayload:
    """Which attempt to stop, and why: CANCEL or TIMEOUT."""

    attempt_id: str
    lease_version: int
    stop_reason: str

    @classmethod
    def from_json(cls, text: str) -> "CancelPayload":
        """Read the payload; DocumentInvalidError for anything else."""
        return cls(**_fields(text, cls.__slots__))


@dataclass(frozen=True, slots=True)
class ExtendPayload:
    """Which attempt's run time-out to move, and by how many seconds."""

    attempt_id: str
    lease_version: int
    extension_s: float

    @classmethod
    def from_json(cls, text: str) -> "ExtendPayload":
        """Read the payload; DocumentInvalidError for anything else."""
        return cls(**_fields(text, cls.__slots__))


@dataclass(frozen=True, slots=True)
class DrainPayload:
    """How long running attempts may go on, in seconds; 0 until they end."""

    grace_period_s: float = 0.0

    def to_json(self) -> str:
        """Return the payload as JSON text."""
        return json.dumps({"grace_period_s": self.grace_period_s})

    @classmethod
    def from_json(cls, text: str) -> "DrainPayload":
        """Read the payload; DocumentInvalidError for anything else."""
        return cls(**_fields(text, cls.__slots__))


def _fields(text: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the known fields of the object; unknown ones are a newer version's, and ignored."""
    try:
        document = json.loads(text)
        return {name: document[name] for name in names if name in document}
    except (ValueError, TypeError) as error:
        raise DocumentInvalidError(f"{text[:200]!r} is no command payload") from error
