"""Durable events about attempts, and the JSON in which the outbox keeps them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, assert_never

from node_agent.core.execution.ports import UploadedArtifact, Usage, WorkFailure
from node_agent.core.session.lease_clock import AttemptId


@dataclass(frozen=True, slots=True)
class ArtifactsReported:
    """A part of the list of artifacts, ahead of the result; at most 500."""

    artifacts: Sequence[UploadedArtifact]


@dataclass(frozen=True, slots=True)
class WorkSucceeded:
    """The work is done; `artifact_count` were reported before."""

    output_json: str
    artifact_count: int
    collection_ref: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class WorkFailed:
    """The work failed."""

    failure: WorkFailure
    usage: Usage


@dataclass(frozen=True, slots=True)
class WorkStopped:
    """The work was stopped: CANCEL, TIMEOUT or DRAIN."""

    stop_reason: str
    usage: Usage


Fact = ArtifactsReported | WorkSucceeded | WorkFailed | WorkStopped


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to be stored; `occurred_at` is wall time in UTC, ISO 8601, for people only."""

    event_id: str
    attempt_id: AttemptId
    lease_version: int
    boot_id: str
    occurred_at: str
    fact: Fact


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A stored event, as it is sent: with the journal's incarnation."""

    event_id: str
    attempt_id: AttemptId
    lease_version: int
    boot_id: str
    incarnation_id: str
    occurred_at: str
    fact: Fact


def fact_to_json(fact: Fact) -> str:
    """Return the document that `fact_from_json` reads."""
    return json.dumps(_document(fact), ensure_ascii=False, separators=(",", ":"))


def fact_from_json(text: str) -> Fact:
    """Read what `fact_to_json` wrote."""
    document: dict[str, Any] = json.loads(text)
    match document.pop("kind"):
        case "ARTIFACTS":
            return ArtifactsReported(tuple(_artifact(one) for one in document["artifacts"]))
        case "SUCCEEDED":
            return WorkSucceeded(**{**document, "usage": Usage(**document["usage"])})
        case "FAILED":
            failure = WorkFailure(**document["failure"])
            return WorkFailed(failure, Usage(**document["usage"]))
        case "STOPPED":
            return WorkStopped(document["stop_reason"], Usage(**document["usage"]))
        case kind:
            message = f"the journal holds an event of kind {kind!r}, which this version cannot send"
            raise ValueError(message)


def _document(fact: Fact) -> dict[str, object]:
    match fact:
        case ArtifactsReported(artifacts):
            listed = [{**asdict(one), "sha256": one.sha256.hex()} for one in artifacts]
            return {"kind": "ARTIFACTS", "artifacts": listed}
        case WorkSucceeded(output_json, artifact_count, collection_ref, usage):
            return {
                "kind": "SUCCEEDED",
                "output_json": output_json,
                "artifact_count": artifact_count,
                "collection_ref": collection_ref,
                "usage": _usage(usage),
            }
        case WorkFailed(failure, usage):
            return {"kind": "FAILED", "failure": asdict(failure), "usage": _usage(usage)}
        case WorkStopped(stop_reason, usage):
            return {"kind": "STOPPED", "stop_reason": stop_reason, "usage": _usage(usage)}
        case _ as unreachable:
            assert_never(unreachable)


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "cpu_time_ms": usage.cpu_time_ms,
        "memory_bytes_max": usage.memory_bytes_max,
        "duration_ms": usage.duration_ms,
    }


def _artifact(document: dict[str, Any]) -> UploadedArtifact:
    return UploadedArtifact(**{**document, "sha256": bytes.fromhex(document["sha256"])})
