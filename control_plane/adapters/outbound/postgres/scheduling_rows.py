"""Rows of scheduling as facts and requests, and lists of these as columns."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache

from control_plane.core.executions.domain import ExecutionId, StepKey, StepRef
from control_plane.core.scheduling.domain import (
    Management,
    NodeFacts,
    NodeId,
    Runtime,
)
from control_plane.core.scheduling.limits import uses_from_json
from control_plane.core.scheduling.planning import Request, RequestKey
from control_plane.core.scheduling.ports import (
    ClaimedRequests,
    Opening,
)
from control_plane.core.scheduling.requirements import affinity_to_json, requirement_from
from control_plane.core.workflows.domain import Resources
from foundation.postgres.pool import Record


def claimed_requests(rows: Sequence[Record]) -> ClaimedRequests:
    """Return the requests that a claim has taken."""
    return ClaimedRequests(
        requests=[_request(row) for row in rows if row["execution_id"] is not None],
        now=rows[0]["now"],
        next_due_in_s=rows[0]["next_due_in_s"],
    )


def opening_columns(openings: Sequence[Opening]) -> list[list[object]]:
    """Return openings as columns."""
    asked = [one.requirement for one in openings]
    return [
        [one.capability for one in asked],
        [one.capability_version for one in asked],
        [affinity_to_json(one.affinity) for one in asked],
        [one.count for one in openings],
    ]


def shares_of(rows: Sequence[Record]) -> dict[str, int]:
    """Return how much each application has running."""
    return {row["application_id"]: row["running_count"] for row in rows}


def key_of(row: Record) -> RequestKey:
    """Return which attempt a row asks for."""
    return RequestKey(
        ExecutionId(row["execution_id"]),
        StepRef(StepKey(row["step_key"]), row["item_index"]),
        row["attempt_number"],
    )


def key_columns(keys: Sequence[RequestKey]) -> list[list[object]]:
    """Return keys as columns."""
    return [
        [key.execution_id for key in keys],
        [key.step.step_key for key in keys],
        [key.step.item_index for key in keys],
        [key.attempt_number for key in keys],
    ]


def _request(row: Record) -> Request:
    return Request(
        key=key_of(row),
        application_id=row["application_id"],
        priority=row["priority"],
        queued_at=row["created_at"],
        requirement=requirement_from(
            row["capability"], row["capability_version"], row["requirement"]
        ),
        limits=uses_from_json(row["limits"] or ""),
        was_parked=row["was_parked"],
    )


def node_facts(row: Record) -> NodeFacts:
    """Return a node's row as facts."""
    return NodeFacts(
        node_id=NodeId(row["node_id"]),
        name=row["name"],
        group=row["node_group"],
        management=Management(row["management"]),
        runtime=Runtime(row["runtime"]),
        not_ready_reason=row["not_ready_reason"],
        heartbeat_age_s=row["heartbeat_age_s"],
        capabilities=_capabilities(row["capabilities"]),
        labels=_labels(row["labels"]),
        weight=row["weight"],
        slot_count=row["slot_count"],
        running_count=row["running_count"],
        process_slot_count=row["process_slot_count"],
        process_running_count=row["process_running_count"],
        inline=_inline(row["capabilities"]),
        resources=_resources(row, ""),
        reserved=_resources(row, "reserved_"),
    )


def _resources(row: Record, prefix: str) -> Resources:
    return Resources(
        row[f"{prefix}cpu_millis"],
        row[f"{prefix}memory_bytes"],
        row[f"{prefix}disk_bytes"],
        row[f"{prefix}gpu_count"],
    )


# Hundreds of nodes are read many times a second, and what they offer hardly ever changes.


@lru_cache(maxsize=2_048)
def _capabilities(text: str) -> Mapping[tuple[str, str], str]:
    return {(name, version): refusal for name, version, refusal, _ in json.loads(text)}


@lru_cache(maxsize=2_048)
def _inline(text: str) -> frozenset[tuple[str, str]]:
    return frozenset((name, version) for name, version, _, inline in json.loads(text) if inline)


@lru_cache(maxsize=2_048)
def _labels(text: str) -> Mapping[str, str]:
    labels: dict[str, str] = json.loads(text)
    return labels
