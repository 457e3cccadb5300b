"""Puts into words why requests wait, and tells which nodes differ in more than their load."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from control_plane.core.scheduling.domain import (
    NodeFacts,
    NodeId,
    Reason,
    Requirement,
    qualify,
    waiting_sentence,
)
from control_plane.core.scheduling.planning import Unplaced
from control_plane.core.scheduling.ports import ParkedRequest
from control_plane.core.scheduling.requirements import affinity_to_json

REASONS_SHOWN_MAX: Final = 6

Asked = tuple[str, str, str]


def asked_of(requirement: Requirement) -> Asked:
    """Return what tells requirements apart, as it is stored."""
    return (
        requirement.capability,
        requirement.capability_version,
        affinity_to_json(requirement.affinity),
    )


def shape_of(node: NodeFacts) -> object:
    """Return what decides whether the node could ever take some work."""
    return (
        node.node_id,
        node.group,
        frozenset(node.capabilities.items()),
        frozenset(node.labels.items()),
        node.resources,
        node.slot_count > 0,
    )


def sentences(
    nodes: Sequence[NodeFacts], requirement: Requirement, heartbeat_ttl_s: float
) -> list[str]:
    """Say why none of the nodes takes the work, first for all of them, then for some."""
    reasons = {node.node_id: qualify(node, requirement, heartbeat_ttl_s) for node in nodes}
    return _worded(nodes, requirement, reasons)


class Parking:
    """Puts the reasons of requests into words, once for all that ask for the same."""

    def __init__(self, nodes: Sequence[NodeFacts]) -> None:
        """Take the nodes that the requests were planned on."""
        self._nodes = nodes
        self._sentences: dict[Asked, list[str]] = {}

    def parked(self, unplaced: Iterable[Unplaced]) -> list[ParkedRequest]:
        """Return the requests with their sentences."""
        return [
            ParkedRequest(
                one.request.key,
                self._reasons(one),
                one.never,
                [use.identity for use in one.request.limits],
            )
            for one in unplaced
        ]

    def _reasons(self, one: Unplaced) -> list[str]:
        requirement = one.request.requirement
        asked = asked_of(requirement)
        if asked not in self._sentences:
            self._sentences[asked] = _worded(self._nodes, requirement, one.reasons)
        return self._sentences[asked]


def _worded(
    nodes: Sequence[NodeFacts],
    requirement: Requirement,
    reasons: Mapping[NodeId, tuple[Reason, ...]],
) -> list[str]:
    names = {node.node_id: node.name for node in nodes}
    details = [
        f"{names[node_id]}: {found[0].sentence}" for node_id, found in reasons.items() if found
    ]
    return [waiting_sentence(nodes, requirement), *details[: REASONS_SHOWN_MAX - 1]]
