"""Facts behind the gauges of a control plane, as they are at one moment."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueFact:
    """Requests for nodes of one capability version that are due; the age is in seconds."""

    capability: str
    version: str
    waiting_count: int
    never_count: int
    oldest_age_s: float


@dataclass(frozen=True, slots=True)
class ExecutionFact:
    """Live executions in one status; paused and quarantined ones are counted apart as well."""

    status: str
    live_count: int
    paused_count: int
    quarantined_count: int


@dataclass(frozen=True, slots=True)
class NodeFact:
    """Nodes that share runtime and management state, with their slots."""

    runtime: str
    management: str
    node_count: int
    slot_count: int
    used_count: int


@dataclass(frozen=True, slots=True)
class GaugeFacts:
    """All of them. `finished` counts executions that ended in the last minute, by status."""

    queues: Sequence[QueueFact]
    executions: Sequence[ExecutionFact]
    finished: Sequence[tuple[str, int]]
    nodes: Sequence[NodeFact]
    open_command_count: int
    live_attempt_count: int
