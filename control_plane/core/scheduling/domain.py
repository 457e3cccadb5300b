"""Which nodes qualify for a step, in one function, and which of them is best.

The same reasons are shown by admission, by ExplainScheduling and in the console.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NewType

from control_plane.core.workflows.domain import ANYWHERE, NO_RESOURCES, Affinity, Resources

NodeId = NewType("NodeId", str)

HEARTBEAT_TTL_S: Final = 15.0
DEFAULT_WEIGHT: Final = 100

_PREFERRED_LABEL_POINTS: Final = 1_000_000
_WEIGHT_POINTS: Final = 1_000
_RUNNING_POINTS: Final = 10_000
_RESOURCE_WORDS: Final = {
    "cpu_millis": "CPU (thousandths of a core)",
    "memory_bytes": "memory (bytes)",
    "disk_bytes": "disk (bytes)",
    "gpu_count": "GPUs",
}


class Management(StrEnum):
    """What the operator wants of a node."""

    ACTIVE = "ACTIVE"
    CORDONED = "CORDONED"
    DRAINING = "DRAINING"


class Runtime(StrEnum):
    """What the node's session shows."""

    READY = "READY"
    NOT_READY = "NOT_READY"
    SILENT = "SILENT"


class ReasonCode(StrEnum):
    """Why a node does not qualify, for programs."""

    OTHER_NODE_PINNED = "OTHER_NODE_PINNED"
    OTHER_GROUP = "OTHER_GROUP"
    CAPABILITY_MISSING = "CAPABILITY_MISSING"
    CAPABILITY_REFUSED = "CAPABILITY_REFUSED"
    LABEL_MISSING = "LABEL_MISSING"
    RESOURCES_TOO_SMALL = "RESOURCES_TOO_SMALL"
    NO_SLOTS = "NO_SLOTS"
    NOT_ACTIVE = "NOT_ACTIVE"
    NOT_READY = "NOT_READY"
    NOT_ELIGIBLE = "NOT_ELIGIBLE"
    HEARTBEAT_OLD = "HEARTBEAT_OLD"
    SLOTS_TAKEN = "SLOTS_TAKEN"
    RESOURCES_TAKEN = "RESOURCES_TAKEN"


_PASSING: Final = frozenset(
    {
        ReasonCode.NOT_ACTIVE,
        ReasonCode.NOT_READY,
        ReasonCode.NOT_ELIGIBLE,
        ReasonCode.HEARTBEAT_OLD,
        ReasonCode.SLOTS_TAKEN,
        ReasonCode.RESOURCES_TAKEN,
    }
)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a node does not qualify; `sentence` is for people."""

    code: ReasonCode
    sentence: str

    @property
    def is_passing(self) -> bool:
        """Whether waiting may be enough, or the node would have to be another one."""
        return self.code in _PASSING


@dataclass(frozen=True, slots=True)
class Requirement:
    """What an attempt asks of its node."""

    capability: str
    capability_version: str
    affinity: Affinity = ANYWHERE


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is known of a node at the moment of looking.

    `capabilities` maps (name, version) to why it is refused, empty where it is not.
    `inline` are those that take none of the process slots, which are a part of all slots; 0 of
    them where the node tells no kinds apart.
    `ineligible_because` is empty for a node that scheduling may use. `heartbeat_age_s` is
    None for a node that was never seen.
    """

    node_id: NodeId
    name: str
    group: str = ""
    management: Management = Management.ACTIVE
    runtime: Runtime = Runtime.READY
    not_ready_reason: str = ""
    ineligible_because: str = ""
    heartbeat_age_s: float | None = 0.0
    capabilities: Mapping[tuple[str, str], str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    weight: int = DEFAULT_WEIGHT
    slot_count: int = 1
    running_count: int = 0
    process_slot_count: int = 0
    process_running_count: int = 0
    inline: AbstractSet[tuple[str, str]] = frozenset()
    resources: Resources = NO_RESOURCES
    reserved: Resources = NO_RESOURCES


def qualify(
    node: NodeFacts, requirement: Requirement, heartbeat_ttl_s: float = HEARTBEAT_TTL_S
) -> tuple[Reason, ...]:
    """Return every reason why the node cannot take the work now; none means that it can."""
    return (
        *lasting_reasons(node, requirement),
        *_state_reasons(node, heartbeat_ttl_s),
        *_slot_reasons(node, requirement),
        *_capacity_reasons(node, requirement.affinity.minimum_resources),
    )


def could_ever_qualify(nodes: Iterable[NodeFacts], requirement: Requirement) -> bool:
    """Whether some known node could take the work, once it is up, idle and uncordoned."""
    return any(not lasting_reasons(node, requirement) for node in nodes)


def score(node: NodeFacts, requirement: Requirement) -> int:
    """Return how well a qualified node suits; more is better."""
    wanted = requirement.affinity.preferred_labels
    matches = sum(node.labels.get(name) == value for name, value in wanted.items())
    weight = node.weight if node.weight > 0 else DEFAULT_WEIGHT
    return (
        matches * _PREFERRED_LABEL_POINTS
        + weight * _WEIGHT_POINTS
        - node.running_count * _RUNNING_POINTS
    )


def choose(
    nodes: Iterable[NodeFacts],
    requirement: Requirement,
    heartbeat_ttl_s: float = HEARTBEAT_TTL_S,
) -> NodeFacts | None:
    """Return the best qualified node, the smaller id among equals; None when none qualifies."""
    qualified = (node for node in nodes if not qualify(node, requirement, heartbeat_ttl_s))
    return min(qualified, key=lambda node: (-score(node, requirement), node.node_id), default=None)


def waiting_sentence(nodes: Sequence[NodeFacts], requirement: Requirement) -> str:
    """Say in one sentence why nothing was chosen, and what would unblock it."""
    wanted = f"{requirement.capability} {requirement.capability_version}"
    if not nodes:
        return f"No node is known; enrol one that offers {wanted}."
    if not could_ever_qualify(nodes, requirement):
        return (
            f"None of the {len(nodes)} known nodes could ever run {wanted} as required; "
            "add a node, change a node's labels, or relax the step's affinity."
        )
    return (
        f"Of {len(nodes)} known nodes none can take {wanted} now; it starts when a suitable "
        "one joins, becomes ready or frees capacity."
    )


def lasting_reasons(node: NodeFacts, requirement: Requirement) -> list[Reason]:
    """Return why the node could not take the work even if it were up, idle and uncordoned."""
    affinity = requirement.affinity
    reasons: list[Reason] = []
    if affinity.node_id and affinity.node_id != node.node_id:
        reasons.append(
            Reason(ReasonCode.OTHER_NODE_PINNED, f"The step is pinned to node {affinity.node_id}.")
        )
    if affinity.group and affinity.group != node.group:
        own = f"this node's group is {node.group}" if node.group else "this node has no group"
        reasons.append(
            Reason(ReasonCode.OTHER_GROUP, f"The step wants group {affinity.group}; {own}.")
        )
    reasons.extend(_capability_reasons(node, requirement))
    reasons.extend(_label_reasons(node, affinity.required_labels))
    reasons.extend(_size_reasons(node, affinity.minimum_resources))
    return reasons


def closest(nodes: Iterable[NodeFacts], requirement: Requirement) -> str:
    """Say what stands in the way on the node that lacks least; empty without a node."""
    lacking = ((lasting_reasons(node, requirement), node) for node in nodes)
    found = min(lacking, key=lambda pair: (len(pair[0]), pair[1].name), default=None)
    if found is None:
        return ""
    reasons, node = found
    return f"Closest is {node.name}: {' '.join(one.sentence for one in reasons)}"


def _capability_reasons(node: NodeFacts, requirement: Requirement) -> list[Reason]:
    name, version = requirement.capability, requirement.capability_version
    refusal = node.capabilities.get((name, version))
    if refusal is None:
        others = sorted(one for known, one in node.capabilities if known == name)
        offers = f"it offers {', '.join(others)}" if others else "it offers no version of it"
        sentence = f"The node does not offer {name} {version}; {offers}."
        return [Reason(ReasonCode.CAPABILITY_MISSING, sentence)]
    if refusal:
        sentence = f"The node's {name} {version} is not used: {refusal}."
        return [Reason(ReasonCode.CAPABILITY_REFUSED, sentence)]
    return []


def _label_reasons(node: NodeFacts, required: Mapping[str, str]) -> list[Reason]:
    return [
        Reason(
            ReasonCode.LABEL_MISSING,
            f"The step needs label {name}={value}; the node has {_label(node, name)}.",
        )
        for name, value in sorted(required.items())
        if node.labels.get(name) != value
    ]


def _label(node: NodeFacts, name: str) -> str:
    return f"{name}={node.labels[name]}" if name in node.labels else "no such label"


def _size_reasons(node: NodeFacts, minimum: Resources) -> list[Reason]:
    reasons = [
        Reason(
            ReasonCode.RESOURCES_TOO_SMALL,
            f"The step needs {needed} of {words}; the node has {has}.",
        )
        for words, needed, has in _amounts(minimum, node.resources)
        if has < needed
    ]
    if node.slot_count <= 0:
        reasons.append(Reason(ReasonCode.NO_SLOTS, "The node offers no slots."))
    return reasons


def _state_reasons(node: NodeFacts, heartbeat_ttl_s: float) -> list[Reason]:
    reasons: list[Reason] = []
    if node.management is not Management.ACTIVE:
        reasons.append(Reason(ReasonCode.NOT_ACTIVE, f"The node is {node.management.lower()}."))
    if node.runtime is not Runtime.READY:
        because = f": {node.not_ready_reason}" if node.not_ready_reason else ""
        state = node.runtime.lower().replace("_", " ")
        reasons.append(Reason(ReasonCode.NOT_READY, f"The node is {state}{because}."))
    if node.ineligible_because:
        sentence = f"Scheduling does not use the node: {node.ineligible_because}."
        reasons.append(Reason(ReasonCode.NOT_ELIGIBLE, sentence))
    if node.heartbeat_age_s is None:
        reasons.append(Reason(ReasonCode.HEARTBEAT_OLD, "The node was never heard of."))
    elif node.heartbeat_age_s > heartbeat_ttl_s:
        sentence = (
            f"The node was last heard of {node.heartbeat_age_s:.0f} s ago; "
            f"{heartbeat_ttl_s:g} s are allowed."
        )
        reasons.append(Reason(ReasonCode.HEARTBEAT_OLD, sentence))
    return reasons


def takes_process_slot(node: NodeFacts, requirement: Requirement) -> bool:
    """Whether the work would run in a child process there, and not in the agent itself."""
    return (requirement.capability, requirement.capability_version) not in node.inline


def free_slot_count(node: NodeFacts, requirement: Requirement) -> int:
    """Return how many such attempts the node has slots for now."""
    (_, slot_count, running_count) = _slots(node, requirement)
    return max(0, min(node.slot_count - node.running_count, slot_count - running_count))


def idle_slot_count(node: NodeFacts) -> int:
    """Return how many attempts the node has slots for, of the kind that it has least for."""
    free_count = node.slot_count - node.running_count
    if node.process_slot_count:
        free_count = min(free_count, node.process_slot_count - node.process_running_count)
    return max(0, free_count)


def _slots(node: NodeFacts, requirement: Requirement) -> tuple[str, int, int]:
    """Return the kind of slots that the work takes, how many there are, and how many are taken."""
    if not node.process_slot_count:
        return "slots", node.slot_count, node.running_count
    if takes_process_slot(node, requirement):
        return "process slots", node.process_slot_count, node.process_running_count
    return (
        "inline slots",
        node.slot_count - node.process_slot_count,
        node.running_count - node.process_running_count,
    )


def _slot_reasons(node: NodeFacts, requirement: Requirement) -> list[Reason]:
    if node.slot_count <= 0 or free_slot_count(node, requirement):
        return []
    words, slot_count, running_count = _slots(node, requirement)
    if running_count < slot_count:
        words, slot_count = "slots", node.slot_count
    sentence = f"All {slot_count} {words} of the node are taken."
    return [Reason(ReasonCode.SLOTS_TAKEN, sentence)]


def _capacity_reasons(node: NodeFacts, minimum: Resources) -> list[Reason]:
    reasons: list[Reason] = []
    free = free_resources(node)
    sizes = _amounts(minimum, node.resources)
    for (words, needed, left), (_, _, whole) in zip(_amounts(minimum, free), sizes, strict=True):
        if left < needed <= whole:
            sentence = f"The step needs {needed} of {words}; {left} of {whole} are free."
            reasons.append(Reason(ReasonCode.RESOURCES_TAKEN, sentence))
    return reasons


def free_resources(node: NodeFacts) -> Resources:
    """Return what no attempt has reserved."""
    has, taken = node.resources, node.reserved
    return Resources(
        has.cpu_millis - taken.cpu_millis,
        has.memory_bytes - taken.memory_bytes,
        has.disk_bytes - taken.disk_bytes,
        has.gpu_count - taken.gpu_count,
    )


def _amounts(minimum: Resources, available: Resources) -> list[tuple[str, int, int]]:
    return [
        (words, getattr(minimum, name), getattr(available, name))
        for name, words in _RESOURCE_WORDS.items()
    ]
